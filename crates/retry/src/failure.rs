//! What comes of an attempt, and of a call.

use std::{future::Future, pin::Pin};

use http::{HeaderMap, Response};
use steadfast_classify::{
    Exchange, Unfinished,
    details::{self, Pushback},
};
use steadfast_core::{BoxError, Outcome};

use crate::{Reason, RetryBody, frames::Frames, reply::Reading};

/// What a call comes to in the end.
pub(crate) type Answer<B> = Result<Response<RetryBody<B>>, BoxError>;

/// Attempts after the first one, on their way.
pub(crate) type Again<B> = Pin<Box<dyn Future<Output = Answer<B>> + Send>>;

/// What comes after a failure.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would cost every failure an allocation"
)]
pub(crate) enum Next<B> {
    Again(Again<B>),
    Up(Answer<B>),
}

/// An attempt that failed, and what the caller gets if it was the last.
pub(crate) struct Failure<B> {
    pub(crate) outcome: Outcome,
    pub(crate) pushback: Option<Pushback>,
    pub(crate) up: Answer<B>,
}

impl<B> Failure<B> {
    pub(crate) fn error(outcome: Outcome, error: BoxError) -> Self {
        Self {
            outcome,
            pushback: None,
            up: Err(error),
        }
    }

    /// A reply that ended without telling how the call went.
    pub(crate) fn unfinished(outcome: Outcome) -> Self {
        Self::error(outcome, Box::new(Unfinished(outcome)))
    }

    /// A status that the server gave.
    pub(crate) fn status(
        outcome: Outcome,
        pushback: Option<Pushback>,
        reply: Response<RetryBody<B>>,
    ) -> Self {
        Self {
            outcome,
            pushback,
            up: Ok(reply),
        }
    }

    /// The end of a stream whose head the caller has already.
    pub(crate) fn trailers(outcome: Outcome, trailers: HeaderMap) -> Self {
        if !matches!(outcome, Outcome::Status(_)) {
            return Self::unfinished(outcome);
        }
        let pushback = details::pushback(&trailers);
        let body = RetryBody::kept(Frames::default(), Some(trailers), None);
        Self::status(outcome, pushback, Response::new(body))
    }

    /// Why it failed, for the text of another error. The reply is given up.
    pub(crate) fn into_cause(self) -> BoxError {
        let outcome = self.outcome;
        self.up.err().unwrap_or_else(|| outcome.to_string().into())
    }
}

/// What came of an attempt so far.
pub(crate) enum Came<B> {
    /// A reply for the caller.
    Up(Response<RetryBody<B>>),
    /// A reply to be read to its end first.
    Read(Reading<B>),
    /// A stream to be watched until its first message.
    Stream(Response<B>, Exchange),
    Failed(Failure<B>),
}

/// Why a failure goes up.
#[derive(Debug)]
pub(crate) enum Why {
    Decided(Reason),
    /// The budget didn't pay.
    Denied,
}
