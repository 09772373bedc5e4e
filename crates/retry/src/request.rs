//! The body of a request: read before it is sent, so that it can be sent again.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use crate::frames::Frames;

/// What reading a request's body at once came to.
pub(crate) enum Taken {
    /// All of it.
    Whole(Frames),
    /// It isn't ready: an upload, or a caller who writes as it reads.
    Upload(Sending),
    /// It is too large, or has trailers: it can't be kept.
    TooLarge(Sending),
}

/// Reads what is there, up to `limit` bytes. It never waits: headers that wait for a message would keep a
/// caller waiting who waits for the reply first.
///
/// # Errors
/// The body's own.
pub(crate) fn take(mut body: Body, limit: usize, cx: &mut Context<'_>) -> Result<Taken, Status> {
    let mut frames = Frames::default();
    loop {
        if body.is_end_stream() {
            return Ok(Taken::Whole(frames));
        }
        match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(None) => return Ok(Taken::Whole(frames)),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => frames.push(data),
                Err(odd) => return Ok(Taken::TooLarge(Sending::new(frames, Some(odd), body))),
            },
            // Nobody waits here: the transport polls the body next, with its own waker.
            Poll::Pending => return Ok(Taken::Upload(Sending::new(frames, None, body))),
        }
        if frames.bytes() > limit {
            return Ok(Taken::TooLarge(Sending::new(frames, None, body)));
        }
    }
}

/// A request body on its way down: what was read of it, then the rest.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    frames: Frames,
    odd: Option<Frame<Bytes>>,
    rest: Option<Body>,
}

impl Sending {
    /// A body that was read whole.
    pub(crate) fn whole(frames: Frames) -> Self {
        Self {
            frames,
            ..Self::default()
        }
    }

    fn new(frames: Frames, odd: Option<Frame<Bytes>>, rest: Body) -> Self {
        Self {
            frames,
            odd,
            rest: Some(rest),
        }
    }

    /// The caller's own body, if nothing was read of it.
    pub(crate) fn into_body(mut self) -> Body {
        match self.rest.take() {
            Some(rest) if self.frames.is_empty() && self.odd.is_none() => rest,
            rest => Body::new(Self { rest, ..self }),
        }
    }
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.frames.pop() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(odd) = self.odd.take() {
            return Poll::Ready(Some(Ok(odd)));
        }
        match &mut self.rest {
            // Pending: the caller's body holds the waker.
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let read = self.frames.is_empty() && self.odd.is_none();
        read && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    /// Never exact: from an exact one hyper makes a content-length, which gRPC doesn't send.
    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        let rest = self
            .rest
            .as_ref()
            .map_or(0, |rest| rest.size_hint().lower());
        hint.set_lower(rest.saturating_add(self.frames.bytes() as u64));
        hint
    }
}

/// Where an upload comes back to that was dropped before anything of it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returned(Arc<Mutex<Option<Sending>>>);

impl Returned {
    /// The upload, if it came back.
    pub(crate) fn take(&self) -> Option<Sending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_there(&self) -> bool {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.is_some()
    }
}

/// An upload that comes back if it is dropped unread: the one case in which a call whose messages aren't
/// kept can be sent again.
#[derive(Debug)]
pub(crate) struct Upload {
    unread: bool,
    sending: Sending,
    returned: Returned,
}

impl Upload {
    pub(crate) fn new(sending: Sending, returned: Returned) -> Self {
        Self {
            unread: true,
            sending,
            returned,
        }
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // Pending: the caller's body holds the waker.
        let polled = Pin::new(&mut self.sending).poll_frame(cx);
        self.unread &= polled.is_pending();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.sending.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.sending.size_hint()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.unread {
            let sending = std::mem::take(&mut self.sending);
            let mut slot = self
                .returned
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *slot = Some(sending);
        }
    }
}
