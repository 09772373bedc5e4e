//! What comes of an attempt that failed.

use http::{HeaderMap, Response};
use steadfast_classify::{Tried, Unfinished, details, error_text, last_error, local_error};
use steadfast_core::{BoxError, LocalKind, Outcome};
use tonic::Status;

use crate::Reason;

/// An attempt that failed.
pub(crate) struct Failure<B> {
    pub(crate) outcome: Outcome,
    pub(crate) came: Came<B>,
}

/// What the caller gets of it, if it was the last.
pub(crate) enum Came<B> {
    Error(BoxError),
    /// A reply that tells the status in its head, or no gRPC at all.
    Head(Response<B>),
    Trailers(HeaderMap),
}

/// Why a stream doesn't go on.
#[derive(Debug)]
pub(crate) enum Why {
    Decided(Reason),
    /// The budget didn't pay.
    Denied,
    /// The deadline passed before the next attempt.
    Late,
    /// The rule has no way to.
    Rule(String),
}

impl<B> Failure<B> {
    pub(crate) fn error(outcome: Outcome, error: BoxError) -> Self {
        let came = Came::Error(error);
        Self { outcome, came }
    }

    /// A reply that ended without telling how the call went.
    pub(crate) fn unfinished(outcome: Outcome) -> Self {
        Self::error(outcome, Box::new(Unfinished(outcome)))
    }

    /// The end of a stream by trailers.
    pub(crate) fn trailers(outcome: Outcome, trailers: HeaderMap) -> Self {
        match outcome {
            Outcome::Status(_) => Self {
                outcome,
                came: Came::Trailers(trailers),
            },
            _ => Self::unfinished(outcome),
        }
    }

    /// What the server said of trying again.
    pub(crate) fn pushback(&self) -> Option<details::Pushback> {
        match &self.came {
            Came::Error(_) => None,
            Came::Head(response) => details::pushback(response.headers()),
            Came::Trailers(trailers) => details::pushback(trailers),
        }
    }

    /// Why it failed, as an error.
    pub(crate) fn into_cause(self) -> BoxError {
        let headers = match self.came {
            Came::Error(error) => return error,
            Came::Head(response) => response.into_parts().0.headers,
            Came::Trailers(trailers) => trailers,
        };
        match Status::from_header_map(&headers) {
            Some(status) => Box::new(status),
            None => Box::new(Unfinished(self.outcome)),
        }
    }

    /// What the caller gets.
    pub(crate) fn give_up(self, why: &Why, tried: &mut Tried) -> Came<B> {
        let (kind, what) = match why {
            Why::Decided(_) => match self.came {
                Came::Error(error) => return Came::Error(last_error(error, tried)),
                came => return came,
            },
            Why::Rule(reason) => return Came::Error(self.unresumable(reason, tried)),
            Why::Denied => (LocalKind::Budget, "the retry budget is spent"),
            Why::Late => (
                LocalKind::Deadline,
                "the deadline passed while it was between attempts (phase: resume)",
            ),
        };
        tried.note();
        let cause = self.into_cause();
        let text = format!("{what}: {}; {tried}", error_text(&*cause));
        Came::Error(local_error(kind, text, Some(cause)))
    }

    /// The error of a stream that its rule can't carry on: that of the attempt, and the reason.
    fn unresumable(self, reason: &str, tried: &mut Tried) -> BoxError {
        let error = last_error(self.into_cause(), tried);
        let (code, text) = match error.downcast_ref::<Status>() {
            Some(status) => (status.code(), error_text(status)),
            None => (tonic::Code::Unknown, error_text(&*error)),
        };
        let mut status = Status::new(code, format!("{text}; the stream can't go on: {reason}"));
        status.set_source(error.into());
        Box::new(status)
    }
}
