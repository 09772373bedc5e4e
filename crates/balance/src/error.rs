//! The errors that the pool makes itself: each a `tonic::Status` whose source is the local mark.

use std::{error::Error, fmt, sync::Arc};

pub(crate) use steadfast_classify::local_error as local;
use steadfast_core::{BoxError, ChannelId, LocalKind, Place};

/// A dial that failed or a channel that was lost: where, and why.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    what: &'static str,
    place: Place,
    cause: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(what: &'static str, place: Place, cause: BoxError) -> Self {
        Self {
            what,
            place,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, place, cause } = self;
        let deepest = steadfast_classify::deepest_cause(&**cause);
        if cause.to_string().contains(&deepest) {
            write!(f, "{what} {place}: {cause}")
        } else {
            write!(f, "{what} {place}: {cause}: {deepest}")
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// A dial whose budget ran out.
#[derive(Debug)]
pub(crate) struct DialTimeout(pub(crate) std::time::Duration);

impl fmt::Display for DialTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no channel within the connect budget of {:?}", self.0)
    }
}

impl Error for DialTimeout {}

pub(crate) fn closed(pool: &str) -> BoxError {
    let message = format!("pool {pool:?} was closed");
    local(LocalKind::Closed, message, None)
}

pub(crate) fn cut_by_close(id: ChannelId) -> BoxError {
    let message = format!(
        "the pool was closed, and the response on channel {id} was still open after the grace period"
    );
    local(LocalKind::Closed, message, None)
}

pub(crate) fn drained(id: ChannelId, limit: std::time::Duration) -> BoxError {
    let message = format!(
        "channel {id} was removed, and its response was still open after the drain limit of {limit:?}"
    );
    local(LocalKind::Drained, message, None)
}
