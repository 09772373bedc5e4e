//! What is counted, and the spans of attempts. None of it costs a call that succeeds at once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{Unit, counter, describe_counter};
use steadfast_core::Outcome;
use tracing::{Span, field::Empty};

use crate::{Reason, Resend, failure::Why};

/// What a layer has sent again, over all its services. Plain data, of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetrySnapshot {
    /// Attempts sent again because the peer certainly never processed the one before.
    pub resent: u64,
    /// Attempts that repeated one which may have been processed.
    pub repeated: u64,
    /// Repetitions for which the budget didn't pay.
    pub denied: u64,
    /// Calls that failed after the last attempt that they had.
    pub exhausted: u64,
}

#[derive(Debug)]
pub(crate) struct Stats {
    pool: String,
    resent: AtomicU64,
    repeated: AtomicU64,
    denied: AtomicU64,
    exhausted: AtomicU64,
}

impl Stats {
    pub(crate) fn new(pool: &str) -> Self {
        describe_counter!(
            "steadfast.retry",
            Unit::Count,
            "Attempts sent again, by kind (resend: the one before was never processed; repeat: it may have \
             been) and by the outcome of the one before"
        );
        describe_counter!(
            "steadfast.budget.denied",
            Unit::Count,
            "Repetitions for which the retry budget didn't pay"
        );
        Self {
            pool: pool.to_owned(),
            resent: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
        }
    }

    pub(crate) fn snapshot(&self) -> RetrySnapshot {
        RetrySnapshot {
            resent: self.resent.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            denied: self.denied.load(Relaxed),
            exhausted: self.exhausted.load(Relaxed),
        }
    }

    pub(crate) fn sent_again(&self, how: &Resend, outcome: Outcome) {
        let (count, kind) = if how.unprocessed {
            (&self.resent, "resend")
        } else {
            (&self.repeated, "repeat")
        };
        count.fetch_add(1, Relaxed);
        let (pool, outcome) = (self.pool.clone(), outcome.label());
        counter!("steadfast.retry", "pool" => pool, "kind" => kind, "outcome" => outcome)
            .increment(1);
    }

    pub(crate) fn gave_up(&self, why: &Why) {
        match why {
            Why::Denied => {
                self.denied.fetch_add(1, Relaxed);
                counter!("steadfast.budget.denied", "pool" => self.pool.clone()).increment(1);
            }
            Why::Decided(Reason::Attempts) => {
                self.exhausted.fetch_add(1, Relaxed);
            }
            Why::Decided(_) => {}
        }
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
