//! Request bodies that break.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tonic::{Status, body::Body};

/// A request's body that breaks.
pub(crate) enum Breaks {
    /// After a message.
    Begun,
    /// After that one.
    Failing,
    /// Asked for the first time.
    Panicking,
}

impl Breaks {
    pub(crate) fn after_a_message() -> Body {
        Body::new(Self::Begun)
    }

    pub(crate) fn with_a_panic() -> Body {
        Body::new(Self::Panicking)
    }
}

impl HttpBody for Breaks {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(Some(match mem::replace(&mut *self, Self::Failing) {
            Self::Begun => Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\0"))),
            Self::Failing => Err(Status::aborted("the reader of a file failed")),
            Self::Panicking => panic!("the request's body panics, as the row wants it"),
        }))
    }
}
