//! The errors that a layer makes itself.

use std::sync::Arc;

use steadfast_core::{BoxError, Local, LocalKind};
use tonic::{Code, Status};

/// A `tonic::Status` with the mark [`Local`] as its source: what a caller gets for a request that a
/// layer refused or ended, and what other layers recognise.
///
/// The code is DEADLINE_EXCEEDED for [`LocalKind::Deadline`], RESOURCE_EXHAUSTED for
/// [`LocalKind::Overload`], INTERNAL for [`LocalKind::Panicked`], and UNAVAILABLE for all others. It is not
/// wrapped, because tonic drops the source of a status that is wrapped in another error.
#[must_use]
pub fn local_error(
    kind: LocalKind,
    message: impl Into<String>,
    cause: Option<BoxError>,
) -> BoxError {
    Box::new(local_status(kind, message, cause))
}

/// The same as a `Status`.
#[must_use]
pub fn local_status(
    kind: LocalKind,
    message: impl Into<String>,
    cause: Option<BoxError>,
) -> Status {
    let message = message.into();
    let code = match kind {
        LocalKind::Deadline => Code::DeadlineExceeded,
        LocalKind::Overload => Code::ResourceExhausted,
        LocalKind::Panicked => Code::Internal,
        _ => Code::Unavailable,
    };
    let mut status = Status::new(code, message.clone());
    let mark = Local::new(kind, message);
    status.set_source(Arc::new(match cause {
        Some(cause) => mark.because_of(cause),
        None => mark,
    }));
    status
}
