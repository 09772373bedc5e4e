//! tonic's own body type, for layers that are written for it.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use steadfast_core::BoxError;
use tower_layer::Layer;
use tower_service::Service;

/// Gives responses tonic's own `Body`, whatever the layers below made of it.
///
/// A layer that is written for `Response<tonic::body::Body>` doesn't compile above one that changes the
/// body's type, as most of ours do. Put this one between them; it costs one allocation per response.
/// Generated clients don't need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct TonicBodyLayer;

impl<S> Layer<S> for TonicBodyLayer {
    type Service = TonicBody<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TonicBody { inner }
    }
}

/// The service of [`TonicBodyLayer`].
#[derive(Clone, Copy, Debug)]
pub struct TonicBody<S> {
    inner: S,
}

impl<S, Q, B> Service<Request<Q>> for TonicBody<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<tonic::body::Body>;
    type Error = S::Error;
    type Future = TonicBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        TonicBodyFuture {
            inner: Some(self.inner.call(request)),
        }
    }
}

pin_project! {
    /// The response future of [`TonicBody`].
    #[derive(Debug)]
    pub struct TonicBodyFuture<F> {
        // None once it resolved: a future that its caller keeps holds nothing.
        #[pin]
        inner: Option<F>,
    }
}

impl<F, B, E> Future for TonicBodyFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<tonic::body::Body>, E>;

    /// # Panics
    /// When it is polled after it resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let inner = this.inner.as_mut().as_pin_mut();
        // Pending: the inner future holds the waker.
        let answer = ready!(inner.expect("polled after it resolved").poll(cx));
        this.inner.set(None);
        Poll::Ready(answer.map(|response| response.map(tonic::body::Body::new)))
    }
}
