//! The mark of an error that was made here and not by the server.

use std::{error::Error, fmt};

use crate::BoxError;

/// How many sources are looked at.
const LONGEST_CHAIN: usize = 64;

/// Why a layer refused a request or ended it by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LocalKind {
    /// No channel of the pool could take the request.
    NoChannel,
    /// Its channel was put in quarantine.
    Quarantine,
    /// Its channel was removed and the time for open requests to end was over.
    Drained,
    /// The pool was closed.
    Closed,
    /// The caller's deadline passed before a channel could take the request.
    Deadline,
    /// A bound on waiting requests was reached.
    Overload,
    /// A retry budget was spent.
    Budget,
    /// A function that the user gave panicked over it.
    Panicked,
    /// Nothing of its stream came for the gap time-out, and it couldn't go on elsewhere.
    GapTimeout,
}

impl fmt::Display for LocalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChannel => "no channel",
            Self::Quarantine => "quarantine",
            Self::Drained => "drained",
            Self::Closed => "closed",
            Self::Deadline => "deadline",
            Self::Overload => "overload",
            Self::Budget => "retry budget",
            Self::Panicked => "panic",
            Self::GapTimeout => "gap time-out",
        })
    }
}

/// Marks an error as made locally: it is the `source()` of the `Status` that the caller gets.
///
/// It says nothing about the server, so a rate limiter, a circuit breaker or a penalty must not count
/// it. [`Local::find`] looks for it in an error and its sources.
#[derive(Debug)]
pub struct Local {
    kind: LocalKind,
    message: String,
    cause: Option<BoxError>,
}

impl Local {
    /// A mark with a message for people, and no cause.
    #[must_use]
    pub fn new(kind: LocalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
        }
    }

    /// The same with the error that led to it.
    #[must_use]
    pub fn because_of(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Why the request was refused or ended.
    #[must_use]
    pub fn kind(&self) -> LocalKind {
        self.kind
    }

    /// The mark on `error` or on one of its sources, if it was made locally.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        // No chain of a real stack is longer; an error that is its own source ends here.
        for _ in 0..LONGEST_CHAIN {
            let error = next?;
            if let Some(local) = error.downcast_ref() {
                return Some(local);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (made locally: {})", self.message, self.kind)
    }
}

impl Error for Local {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
