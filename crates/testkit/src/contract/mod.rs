//! Checks of the contracts of tower's `Service` and http-body's `Body`.
//!
//! [`check_service`] puts a layer between a double that counts every breach of the contract ([`StrictService`], below the
//! layer) and a caller that polls by hand ([`Probe`], above it); [`check_body`] does the same for a body that wraps another one.
//! Both are told how to make what they check, and make it anew for each scenario.
//!
//! ```
//! use steadfast_testkit::contract::check_service;
//! use tower::util::MapRequest;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let layer = |inner| MapRequest::new(inner, |request: http::Request<()>| request);
//! check_service(layer, || http::Request::new(())).await.unwrap();
//! # }
//! ```
//!
//! Run them on a current-thread runtime with a paused clock: they let other tasks run by yielding, and on a paused clock that
//! takes the same course each time.

mod body;
mod case;
mod probe;
mod scenarios;
mod service;
mod strict;
mod watch;

pub use body::{BodyCheck, check_body};
pub use probe::Probe;
pub use service::{ServiceCheck, check_service};
pub use strict::{StrictBody, StrictError, StrictFuture, StrictService};
pub use watch::StrictWatch;

use std::{error, fmt};

/// One breach of a contract.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A service was called that had not said Ready to this instance.
    CalledUnready,
    /// A clone of a ready service was called as if it were ready.
    CloneCarriedReadiness,
    /// A service was called or polled after an error of `poll_ready`, which means "discard me".
    UsedAfterError,
    /// A future was polled after it resolved.
    PolledAfterReady,
    /// Ready was taken more often than it was used, in an exchange that went well.
    ReadyNotUsed {
        /// How often Ready was said.
        readies: u64,
        /// How often the service was called.
        calls: u64,
    },
    /// Pending, again and again, with the task woken by the poll itself or by nothing that happened.
    Spins,
    /// What was waited for came, and nobody woke the task.
    WakerLost,
    /// What was waited for came, and a waker of an earlier poll was woken instead of the last one's.
    WakerStale,
    /// Dropping the outer half did not drop these of the inner ones.
    NotReleased {
        /// What is left.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// A future that has resolved, and that its caller keeps, holds these of the inner halves.
    KeptFutureHolds {
        /// What is left.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// The inner error is neither the outer one nor among its sources.
    SourceLost,
    /// The inner half failed, and the outer one did not.
    ErrorSwallowed,
    /// A frame did not come, or came changed or out of order.
    FrameWrong {
        /// What was expected.
        expected: String,
        /// What came.
        came: String,
    },
    /// A frame came after the end.
    FrameAfterEnd,
    /// `is_end_stream` said that nothing more comes, and something was left.
    EndStreamWrong,
    /// `is_end_stream` did not say what the inner body's did: that nothing more comes.
    EndStreamLost,
    /// `size_hint` excluded what was left.
    SizeHintWrong,
    /// `size_hint` was not the inner body's.
    SizeHintLost,
    /// Something else that must not happen.
    Unexpected(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CalledUnready => f.write_str("called without Ready on the same instance"),
            Self::CloneCarriedReadiness => {
                f.write_str("a clone of a ready service was called without Ready of its own")
            }
            Self::UsedAfterError => f.write_str("used after poll_ready failed"),
            Self::PolledAfterReady => f.write_str("a future was polled after it resolved"),
            Self::ReadyNotUsed { readies, calls } => {
                write!(f, "{readies} times Ready for {calls} calls")
            }
            Self::Spins => f.write_str("woken without news while Pending: a busy loop"),
            Self::WakerLost => f.write_str("nobody woke the task: no waker was kept"),
            Self::WakerStale => f.write_str("an old waker was woken, not the last one"),
            Self::NotReleased { what, count } => write!(f, "{count} {what} left after the drop"),
            Self::KeptFutureHolds { what, count } => {
                write!(f, "a resolved future that is kept holds {count} {what}")
            }
            Self::SourceLost => f.write_str("the inner error is not among the sources"),
            Self::ErrorSwallowed => f.write_str("the inner error did not come out"),
            Self::FrameWrong { expected, came } => write!(f, "expected {expected}, got {came}"),
            Self::FrameAfterEnd => f.write_str("a frame came after the end"),
            Self::EndStreamWrong => f.write_str("is_end_stream was true, and more was to come"),
            Self::EndStreamLost => f.write_str("is_end_stream was not passed on"),
            Self::SizeHintWrong => f.write_str("size_hint excluded what came"),
            Self::SizeHintLost => f.write_str("size_hint was not passed on"),
            Self::Unexpected(what) => f.write_str(what),
        }
    }
}

impl error::Error for Violation {}

/// Everything that a check found, with the scenario in which it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<(&'static str, Violation)>);

impl Violations {
    /// Each scenario and what was found in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Violation)> {
        self.0.iter().map(|(scenario, found)| (*scenario, found))
    }

    /// Whether such a breach was found, in any scenario.
    pub fn contains(&self, is_it: impl Fn(&Violation) -> bool) -> bool {
        self.0.iter().any(|(_, found)| is_it(found))
    }

    fn add(&mut self, scenario: &'static str, found: impl IntoIterator<Item = Violation>) {
        for violation in found {
            if !self.0.contains(&(scenario, violation.clone())) {
                self.0.push((scenario, violation));
            }
        }
    }

    fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} breaches of the contract:", self.0.len())?;
        self.0
            .iter()
            .try_for_each(|(scenario, found)| write!(f, "\n  {scenario}: {found}"))
    }
}

impl error::Error for Violations {}
