//! Whether a stream that failed goes on.
//!
//! It decides when an attempt failed, from what is known of it, and does nothing itself: it has no clock, no
//! random source, no lock and no budget. It is told the time that is left. What the rule says of the stream
//! is asked before it.

use std::time::Duration;

use steadfast_classify::details::Pushback;
use steadfast_core::{LocalKind, Outcome};

use crate::{AttemptsPer, ResumeConfig, ResumeOn};

/// What time is too short to try again in: the resolution of tokio's timers.
const INSTANT: Duration = Duration::from_millis(1);

const UNAVAILABLE: u16 = 14;
const REFUSED_STREAM: u32 = 7;

/// What is known when an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// What became of it.
    pub outcome: Outcome,
    /// What the server said about trying again.
    pub pushback: Option<Pushback>,
    /// What is left until the caller's deadline, if there is one.
    pub left: Option<Duration>,
    /// A random number from 0 to 1, for the wait.
    pub random: f64,
}

/// What to do about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on with another one.
    Resume {
        /// After this time; zero is at once.
        after: Duration,
        /// Whether the budget must pay for it.
        paid: bool,
    },
    /// Report the failure.
    GiveUp(Reason),
}

/// Why a failure is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// This failure isn't one after which a stream goes on.
    NotResumed,
    /// It has been sent as often as it may be.
    Attempts,
    /// There is no time left.
    Deadline,
    /// The server asked not to.
    Pushback,
}

/// One stream's attempts so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePolicy {
    /// Attempts, the present one included.
    attempts: u32,
    /// Waits before them.
    waits: u32,
}

impl Default for ResumePolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl ResumePolicy {
    /// A stream that is sent for the first time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            attempts: 1,
            waits: 0,
        }
    }

    /// A message was delivered. Says whether the attempts count anew.
    pub fn progressed(&mut self, config: &ResumeConfig) -> bool {
        let anew = config.attempts_per == AttemptsPer::Progress && *self != Self::new();
        if anew {
            *self = Self::new();
        }
        anew
    }

    /// How long the present attempt may be silent. None for the last one.
    #[must_use]
    pub fn gap(&self, config: &ResumeConfig) -> Option<Duration> {
        (self.attempts < config.max_attempts).then_some(config.gap_timeout)
    }

    /// Whether a stream goes on after this: the column "resume" of the table of failures.
    #[must_use]
    pub fn resumes(config: &ResumeConfig, outcome: Outcome) -> bool {
        is_in(&config.resume_on, outcome)
    }

    /// The present attempt failed: what to do.
    pub fn failed(&mut self, config: &ResumeConfig, facts: &Facts) -> Decision {
        if !Self::resumes(config, facts.outcome) {
            return Decision::GiveUp(Reason::NotResumed);
        }
        if self.attempts >= config.max_attempts {
            return Decision::GiveUp(Reason::Attempts);
        }
        if facts.left.is_some_and(|left| left < INSTANT) {
            return Decision::GiveUp(Reason::Deadline);
        }
        let after = match facts.pushback {
            Some(Pushback::Never) => return Decision::GiveUp(Reason::Pushback),
            Some(Pushback::After(time)) => time,
            // The silence was wait enough.
            None if facts.outcome == Outcome::GapTimeout => Duration::ZERO,
            None => self.backoff(config).mul_f64(facts.random.clamp(0.0, 1.0)),
        };
        self.attempts += 1;
        Decision::Resume {
            after,
            paid: !is_free(facts.outcome),
        }
    }

    /// The longest wait before the next attempt.
    fn backoff(&mut self, config: &ResumeConfig) -> Duration {
        let factor = 1_u32.checked_shl(self.waits).unwrap_or(u32::MAX);
        self.waits += 1;
        let wait = config.backoff.saturating_mul(factor);
        wait.min(config.backoff_max)
    }
}

/// What the attempts alone bound: the process itself ended it, or the peer never saw it.
fn is_free(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Local(LocalKind::Quarantine) | Outcome::NeverSent | Outcome::Unprocessed
    )
}

fn is_in(set: &ResumeOn, outcome: Outcome) -> bool {
    match outcome {
        Outcome::GapTimeout => true,
        // A pool without a channel is one whose dials failed.
        Outcome::DialFailed | Outcome::Local(LocalKind::NoChannel) => set.dial_failed,
        Outcome::NeverSent | Outcome::Unprocessed => set.never_processed,
        Outcome::ConnectionLost | Outcome::Protocol => set.connection_lost,
        Outcome::Reset(REFUSED_STREAM) => set.refused,
        Outcome::Reset(_) => set.reset,
        Outcome::GoAway(_) => set.goaway,
        Outcome::NoStatus | Outcome::CutShort => set.no_status,
        Outcome::Status(UNAVAILABLE) | Outcome::Http(429 | 502 | 503 | 504) => set.unavailable,
        Outcome::Local(LocalKind::Quarantine) => set.quarantine,
        _ => false,
    }
}
