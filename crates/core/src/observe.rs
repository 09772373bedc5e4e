//! One exchange, watched from its call to the end of its response body.
//!
//! Every layer that has to know when a request is over uses the future and the body of this file, so
//! that the ways in which an exchange can end are told apart in one place.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, Response, response::Parts};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::BoxError;

/// How an exchange ended.
#[derive(Debug)]
pub enum End<'a> {
    /// The body ended without trailers, or was at its end when it came.
    Eos,
    /// The body ended with these trailers.
    Trailers(&'a HeaderMap),
    /// The call or the body failed with this error.
    Failed(&'a (dyn std::error::Error + Send + Sync + 'static)),
    /// The caller dropped the future or the body before it ended. What the server did is unknown.
    Dropped,
}

/// Watches one exchange. `head` comes at most once, `end` exactly once, whichever way it ends; nothing
/// comes after it.
///
/// The calls are made while the exchange is polled or dropped: an observer takes no lock for long,
/// never blocks and never panics.
pub trait Observe {
    /// The response's head came.
    fn head(&mut self, _head: &Parts) {}

    /// Asked before each poll: an error ends the exchange at once, as made locally, whatever the transport
    /// has ready.
    fn cut(&mut self) -> Option<BoxError> {
        None
    }

    /// The caller polled and got nothing. An error here ends the exchange at once, as made locally:
    /// the transport's half is dropped. An observer that may end it later keeps the waker.
    fn waiting(&mut self, _cx: &mut Context<'_>) -> Poll<BoxError> {
        Poll::Pending
    }

    /// A frame of data goes up to the caller.
    fn data(&mut self, _data: &Bytes) {}

    /// The exchange is over.
    fn end(self, end: End<'_>);
}

/// Calls an observer's `end` exactly once, on drop at the latest.
#[derive(Debug)]
struct Watch<O: Observe>(Option<O>);

impl<O: Observe> Watch<O> {
    fn end(&mut self, end: End<'_>) {
        if let Some(observer) = self.0.take() {
            observer.end(end);
        }
    }

    fn cut(&mut self) -> Option<BoxError> {
        self.0.as_mut()?.cut()
    }

    fn waiting(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        self.0
            .as_mut()
            .map_or(Poll::Pending, |observer| observer.waiting(cx))
    }
}

impl<O: Observe> Drop for Watch<O> {
    fn drop(&mut self) {
        self.end(End::Dropped);
    }
}

pin_project! {
    /// A response future with an observer: the first half of an exchange.
    #[derive(Debug)]
    pub struct Observed<F, O: Observe> {
        // None once it resolved: a future that its caller keeps holds neither stream nor permit.
        #[pin]
        inner: Option<F>,
        watch: Watch<O>,
    }
}

impl<F, O: Observe> Observed<F, O> {
    /// Watches `inner`, the future that a service's `call` returned, and its body after it.
    pub fn new(inner: F, observer: O) -> Self {
        Self {
            inner: Some(inner),
            watch: Watch(Some(observer)),
        }
    }

    /// A call that was refused: `observer`, whose [`cut`](Observe::cut) says why, ends it at the first
    /// poll.
    pub fn refused(observer: O) -> Self {
        Self {
            inner: None,
            watch: Watch(Some(observer)),
        }
    }
}

impl<F, B, E, O> Future for Observed<F, O>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
    E: Into<BoxError>,
    O: Observe,
{
    type Output = Result<Response<ObservedBody<B, O>>, BoxError>;

    /// # Panics
    /// When it is polled after it resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = if let Some(error) = this.watch.cut() {
            Err(error)
        } else {
            let inner = this.inner.as_mut().as_pin_mut();
            match inner.expect("polled after it resolved").poll(cx) {
                Poll::Ready(result) => result.map_err(Into::into),
                // Pending: the inner future holds the waker, and the observer, if it wants to end this.
                Poll::Pending => Err(ready!(this.watch.waiting(cx))),
            }
        };
        this.inner.set(None);
        match result {
            Ok(response) => {
                let watch = Watch(this.watch.0.take());
                Poll::Ready(Ok(ObservedBody::start(response, watch)))
            }
            Err(error) => {
                this.watch.end(End::Failed(&*error));
                Poll::Ready(Err(error))
            }
        }
    }
}

pin_project! {
    /// A response body with an observer: the second half of an exchange.
    #[derive(Debug)]
    pub struct ObservedBody<B, O: Observe> {
        // None once it failed or was ended locally: the stream below is given up at once.
        #[pin]
        inner: Option<B>,
        watch: Watch<O>,
    }
}

impl<B, O> ObservedBody<B, O>
where
    B: Body<Data = Bytes>,
    O: Observe,
{
    fn start(response: Response<B>, mut watch: Watch<O>) -> Response<Self> {
        let (head, body) = response.into_parts();
        if let Some(observer) = &mut watch.0 {
            observer.head(&head);
        }
        if body.is_end_stream() {
            watch.end(End::Eos);
        }
        let inner = Some(body);
        Response::from_parts(head, Self { inner, watch })
    }
}

impl<B, O> Body for ObservedBody<B, O>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
    O: Observe,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let result = if let Some(error) = this.watch.cut() {
            Err(error)
        } else {
            match inner.as_mut().poll_frame(cx) {
                Poll::Ready(Some(result)) => result.map_err(Into::into),
                Poll::Ready(None) => {
                    this.watch.end(End::Eos);
                    return Poll::Ready(None);
                }
                // Pending: the inner body holds the waker, and the observer, if it wants to end this.
                Poll::Pending => Err(ready!(this.watch.waiting(cx))),
            }
        };
        match &result {
            Ok(frame) => {
                let at_end = inner.is_end_stream();
                this.watch.frame(frame, at_end);
            }
            Err(error) => {
                this.inner.set(None);
                this.watch.end(End::Failed(&**error));
            }
        }
        Poll::Ready(Some(result))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<O: Observe> Watch<O> {
    fn frame(&mut self, frame: &Frame<Bytes>, at_end: bool) {
        if let Some(trailers) = frame.trailers_ref() {
            self.end(End::Trailers(trailers));
        } else if let Some(data) = frame.data_ref() {
            if let Some(observer) = &mut self.0 {
                observer.data(data);
            }
            // A reader may trust `is_end_stream` and never ask again.
            if at_end {
                self.end(End::Eos);
            }
        }
    }
}
