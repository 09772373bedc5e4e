//! A stream that can be repeated until its first message was handed up.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use steadfast_classify::{Exchange, Tried};
use steadfast_core::BoxError;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::body::Body;
use tower_service::Service;

use crate::{
    RetryBody,
    again::timed_out,
    body::encoding,
    call::Call,
    failure::{Failure, Next},
};

/// What a stream keeps until its first message was handed up.
pub(crate) trait Guard<B>: Send {
    fn exchange(&mut self) -> &mut Exchange;

    /// The compression that the caller was told of.
    fn encoding(&mut self) -> &mut Option<HeaderValue>;

    /// Ready when the attempt has taken too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Failure<B>>;

    fn failed(self: Box<Self>, failure: Failure<B>) -> Next<B>;

    fn into_tried(self: Box<Self>) -> Tried;
}

/// A stream that can be repeated until its first message comes. `late` is when the attempt has taken too
/// long.
pub(crate) fn guard<S, B>(
    mut call: Call<S>,
    response: Response<B>,
    exchange: Exchange,
    late: Option<Instant>,
) -> Response<RetryBody<B>>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let progress = call.progress.clone();
    call.tried.note();
    let guard = Guarding {
        exchange,
        encoding: encoding(response.headers()),
        late: late.map(|late| Box::pin(sleep_until(late))),
        call,
    };
    response.map(|body| RetryBody::through(body).guarded(Box::new(guard), progress))
}

struct Guarding<S> {
    exchange: Exchange,
    encoding: Option<HeaderValue>,
    late: Option<Pin<Box<Sleep>>>,
    call: Call<S>,
}

impl<S, B> Guard<B> for Guarding<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    fn encoding(&mut self) -> &mut Option<HeaderValue> {
        &mut self.encoding
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Failure<B>> {
        match &mut self.late {
            // Pending: the timer holds the waker.
            Some(late) => late.as_mut().poll(cx).map(|()| timed_out()),
            // Pending: there is nothing here to be waited for.
            None => Poll::Pending,
        }
    }

    fn failed(self: Box<Self>, failure: Failure<B>) -> Next<B> {
        self.call.next(failure)
    }

    fn into_tried(self: Box<Self>) -> Tried {
        self.call.show(None);
        self.call.tried
    }
}
