//! The body of a response that came through the layer.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use steadfast_core::BoxError;

pub(crate) type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A stream that can go on.
pub(crate) trait Streaming: Send {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled;

    fn is_end_stream(&self) -> bool;
}

pin_project! {
    /// The body of a response that came through a [`ResumableStream`](crate::ResumableStream).
    ///
    /// Where its method has a rule, it goes on over other channels in here. Dropping it gives up what is open,
    /// whatever it does.
    pub struct ResumableBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProjection]
    #[project_replace = InnerTaken]
    enum Inner<B> {
        Through { #[pin] body: B },
        Stream { stream: Box<dyn Streaming> },
        Empty,
    }
}

impl<B> ResumableBody<B> {
    pub(crate) fn through(body: B) -> Self {
        Self {
            inner: Inner::Through { body },
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            inner: Inner::Empty,
        }
    }

    pub(crate) fn stream(stream: impl Streaming + 'static) -> Self {
        let stream = Box::new(stream);
        Self {
            inner: Inner::Stream { stream },
        }
    }
}

impl<B> HttpBody for ResumableBody<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let mut inner = self.project().inner;
        let polled = match inner.as_mut().project() {
            // Pending: the inner body holds the waker.
            InnerProjection::Through { body } => body.poll_frame(cx).map_err(Into::into),
            InnerProjection::Stream { stream } => stream.poll_frame(cx),
            InnerProjection::Empty => Poll::Ready(None),
        };
        // What is over is given up, and isn't polled again.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            inner.project_replace(Inner::Empty);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Through { body } => body.is_end_stream(),
            Inner::Stream { stream } => stream.is_end_stream(),
            Inner::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Through { body } => body.size_hint(),
            // It may be another attempt's yet.
            Inner::Stream { .. } => SizeHint::new(),
            Inner::Empty => SizeHint::with_exact(0),
        }
    }
}

impl<B> fmt::Debug for ResumableBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumableBody")
            .field("resumable", &matches!(self.inner, Inner::Stream { .. }))
            .finish_non_exhaustive()
    }
}
