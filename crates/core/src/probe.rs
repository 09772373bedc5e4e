//! A request that asks a channel whether it answers.

use std::{fmt, future::Future, pin::Pin};

use http::Request;

use crate::{BoxError, Outcome, Place};

/// The request of a probe being made.
pub type Prepared<B> = Pin<Box<dyn Future<Output = Result<Request<B>, BoxError>> + Send>>;

/// A request, given by the user, that shows whether a channel answers: a health check, BigTable's
/// PingAndWarm, any cheap call.
///
/// An answer is any status that the peer gave, PERMISSION_DENIED and UNIMPLEMENTED included: it shows
/// that requests go through. A pool uses a probe to warm a channel before it takes requests.
pub trait Probe: Send + Sync + 'static {
    /// The request's body: the type that the channel's layers take.
    type Body: Send + 'static;

    /// Makes the request for a channel of `place`: fetches credentials, encodes the message. It runs
    /// before the probe's deadline begins and may fail; then the probe is not attempted, and says
    /// nothing about the channel.
    fn prepare(&self, place: &Place) -> Prepared<Self::Body>;
}

/// What came of one probe.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The peer gave a status of any kind, or reset the stream: requests go through.
    Answered(Outcome),
    /// It reached the transport, and no status came in time, or the connection went.
    NoAnswer(Outcome),
    /// It couldn't be prepared, or didn't reach the transport. It says nothing about the channel.
    NotAttempted(BoxError),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(outcome) => write!(f, "answered: {outcome}"),
            Self::NoAnswer(outcome) => write!(f, "no answer: {outcome}"),
            Self::NotAttempted(error) => write!(f, "not attempted: {error}"),
        }
    }
}

/// A closure that makes the request at once.
impl<F, B> Probe for F
where
    F: Fn(&Place) -> Result<Request<B>, BoxError> + Send + Sync + 'static,
    B: Send + 'static,
{
    type Body = B;

    fn prepare(&self, place: &Place) -> Prepared<B> {
        let request = self(place);
        Box::pin(async move { request })
    }
}
