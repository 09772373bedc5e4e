//! Whether a call that failed is sent again.
//!
//! It decides when an attempt failed, from what is known of it, and does nothing itself: it has no clock, no
//! random source, no lock and no budget. It is told the time that is left.

use std::time::Duration;

use steadfast_classify::details::Pushback;
use steadfast_core::{LocalKind, Outcome};

use crate::{Kind, RetryConfig, RetryOn};

/// What time is too short to try again in: the resolution of tokio's timers.
const INSTANT: Duration = Duration::from_millis(1);

const UNAVAILABLE: u16 = 14;

/// For a call that was certainly not processed.
const AT_ONCE: Decision = Decision::Resend(Resend {
    after: Duration::ZERO,
    paid: false,
    unprocessed: true,
});

/// What is known when an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// What became of it.
    pub outcome: Outcome,
    /// How its method was named idempotent, if it was.
    pub kind: Option<Kind>,
    /// Whether the request is there to be sent again.
    pub kept: bool,
    /// Whether anything of its reply was handed up to the caller.
    pub handed_up: bool,
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
    /// Send it again.
    Resend(Resend),
    /// Report the failure.
    GiveUp(Reason),
}

/// How to send a call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resend {
    /// After this time; zero is at once.
    pub after: Duration,
    /// Whether the retry budget must pay for it.
    pub paid: bool,
    /// Whether the peer certainly never processed the call, so that this is no repetition.
    pub unprocessed: bool,
}

/// Why a failure is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its request wasn't kept: it was too large, or is an upload that was begun.
    NotKept,
    /// Its reply was on the way up to the caller already.
    HandedUp,
    /// There is no time left.
    Deadline,
    /// It has been sent as often as it may be.
    Attempts,
    /// The method isn't named idempotent.
    NotIdempotent,
    /// This failure isn't one that is repeated.
    NotRepeated,
    /// The server asked not to.
    Pushback,
}

/// One call's attempts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Times sent again because it never left.
    resends: u32,
    /// Whether it was sent again because the peer refused it.
    refused: bool,
    /// Times repeated.
    repeats: u32,
}

impl RetryPolicy {
    /// A call that wasn't sent yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An attempt failed: what to do.
    pub fn failed(&mut self, config: &RetryConfig, facts: &Facts) -> Decision {
        if facts.handed_up {
            return Decision::GiveUp(Reason::HandedUp);
        }
        if !facts.kept {
            return Decision::GiveUp(Reason::NotKept);
        }
        if facts.left.is_some_and(|left| left < INSTANT) {
            return Decision::GiveUp(Reason::Deadline);
        }
        match facts.outcome {
            Outcome::NeverSent if self.resends < config.resends => {
                self.resends += 1;
                AT_ONCE
            }
            Outcome::NeverSent => Decision::GiveUp(Reason::Attempts),
            Outcome::Unprocessed if !self.refused => {
                self.refused = true;
                AT_ONCE
            }
            _ => self.repeat(config, facts),
        }
    }

    fn repeat(&mut self, config: &RetryConfig, facts: &Facts) -> Decision {
        if !is_in(&config.retry_on, facts.outcome) {
            return Decision::GiveUp(Reason::NotRepeated);
        }
        if facts.kind.is_none() {
            return Decision::GiveUp(Reason::NotIdempotent);
        }
        if self.repeats + 1 >= config.attempts {
            return Decision::GiveUp(Reason::Attempts);
        }
        let after = match facts.pushback {
            Some(Pushback::Never) => return Decision::GiveUp(Reason::Pushback),
            Some(Pushback::After(time)) => time,
            None => backoff(config, self.repeats).mul_f64(facts.random.clamp(0.0, 1.0)),
        };
        self.repeats += 1;
        Decision::Resend(Resend {
            after,
            paid: facts.outcome != Outcome::Local(LocalKind::Quarantine),
            unprocessed: false,
        })
    }
}

/// The longest wait before a repetition, after so many before it.
fn backoff(config: &RetryConfig, repeats: u32) -> Duration {
    let factor = 1_u32.checked_shl(repeats).unwrap_or(u32::MAX);
    config
        .backoff
        .saturating_mul(factor)
        .min(config.backoff_max)
}

/// The column "T2" of the table of failures.
fn is_in(set: &RetryOn, outcome: Outcome) -> bool {
    match outcome {
        // A pool without a channel is one whose dials failed.
        Outcome::DialFailed | Outcome::Local(LocalKind::NoChannel) => set.dial_failed,
        Outcome::Unprocessed => set.unprocessed,
        Outcome::ConnectionLost | Outcome::Protocol => set.connection_lost,
        Outcome::Reset(_) => set.reset,
        Outcome::NoStatus | Outcome::CutShort | Outcome::GoAway(_) => set.no_status,
        Outcome::Status(UNAVAILABLE) | Outcome::Http(429 | 502 | 503 | 504) => set.unavailable,
        Outcome::Local(LocalKind::Quarantine) => set.quarantine,
        Outcome::Timeout => set.timeout,
        _ => false,
    }
}
