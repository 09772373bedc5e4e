//! What is counted, and the spans of attempts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{Unit, counter, describe_counter};
use steadfast_core::Outcome;
use tracing::{Span, field::Empty};

use crate::{Reason, failure::Why, next::Next};

/// What a layer has resumed, over all its services. Plain data, of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumeSnapshot {
    /// One for each rule, by the method's name.
    pub rules: Vec<RuleSnapshot>,
}

/// The calls of one rule's method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSnapshot {
    /// The method's path.
    pub method: String,
    /// Calls that came.
    pub calls: u64,
    /// Calls that went through unresumed: their request was above `resume.request_limit`, or not one message.
    pub passed: u64,
    /// Attempts that carried a stream on, or began it anew before anything came.
    pub resumed: u64,
    /// Streams that broke when all was delivered already, and ended with OK.
    pub completed: u64,
    /// Attempts given up because they were silent for the gap time-out.
    pub gap_timeouts: u64,
    /// Streams that failed after the last attempt that they had.
    pub exhausted: u64,
    /// Streams that failed because the budget didn't pay for another attempt.
    pub denied: u64,
    /// Streams that their rule couldn't carry on, or a message of which couldn't be read.
    pub refused: u64,
}

#[derive(Debug)]
pub(crate) struct Counts {
    pool: String,
    calls: AtomicU64,
    passed: AtomicU64,
    resumed: AtomicU64,
    completed: AtomicU64,
    gap_timeouts: AtomicU64,
    exhausted: AtomicU64,
    denied: AtomicU64,
    refused: AtomicU64,
}

pub(crate) fn describe() {
    describe_counter!(
        "steadfast.resume",
        Unit::Count,
        "Attempts that carried a stream on, by the outcome of the one before"
    );
    describe_counter!(
        "steadfast.gap_timeout",
        Unit::Count,
        "Attempts of streams given up because nothing came for the gap time-out while the caller waited"
    );
    describe_counter!(
        "steadfast.budget.denied",
        Unit::Count,
        "Repetitions for which the retry budget didn't pay"
    );
}

impl Counts {
    pub(crate) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned(),
            calls: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            gap_timeouts: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn snapshot(&self) -> RuleSnapshot {
        RuleSnapshot {
            method: String::new(),
            calls: self.calls.load(Relaxed),
            passed: self.passed.load(Relaxed),
            resumed: self.resumed.load(Relaxed),
            completed: self.completed.load(Relaxed),
            gap_timeouts: self.gap_timeouts.load(Relaxed),
            exhausted: self.exhausted.load(Relaxed),
            denied: self.denied.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn passed(&self) {
        self.passed.fetch_add(1, Relaxed);
    }

    /// A message or a request that can't be read.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, outcome: Outcome, next: &Next) {
        if outcome == Outcome::GapTimeout {
            self.gap_timeouts.fetch_add(1, Relaxed);
            counter!("steadfast.gap_timeout", "pool" => self.pool.clone()).increment(1);
        }
        let count = match next {
            Next::Send(_) => {
                let (pool, outcome) = (self.pool.clone(), outcome.label());
                counter!("steadfast.resume", "pool" => pool, "outcome" => outcome).increment(1);
                &self.resumed
            }
            Next::Complete => &self.completed,
            Next::GiveUp(Why::Denied) => {
                counter!("steadfast.budget.denied", "pool" => self.pool.clone()).increment(1);
                &self.denied
            }
            Next::GiveUp(Why::Decided(Reason::Attempts)) => &self.exhausted,
            Next::GiveUp(Why::Rule(_)) => &self.refused,
            Next::GiveUp(Why::Decided(_) | Why::Late) => return,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// The span of one attempt.
pub(crate) fn attempt_span(pool: &str, path: &str, attempt: u32) -> Span {
    tracing::debug_span!(
        "attempt",
        pool,
        path,
        attempt,
        channel = Empty,
        cause = Empty
    )
}
