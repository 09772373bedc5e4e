//! The service, and the future of one call: the fast path, on which nothing fails.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use steadfast_core::BoxError;
use tonic::body::Body;
use tower_service::Service;

use crate::{
    RetryBody,
    again::{Begin, run},
    call::Call,
    failure::{Again, Answer, Came, Next},
    guard::guard,
    layer::Shared,
    reply::Reading,
};

/// Sends a call again when that is safe. Made by [`RetryLayer`](crate::RetryLayer).
///
/// Its readiness is the inner service's own; an attempt after the first one waits for it in the call's
/// future. Requests go down with tonic's `Body`.
pub struct Retry<S> {
    pub(crate) inner: S,
    pub(crate) shared: Arc<Shared>,
}

impl<S: Clone> Clone for Retry<S> {
    // The inner service's clone starts un-ready by itself.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Retry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<S, Q, B> Service<Request<Q>> for Retry<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    Q: HttpBody<Data = Bytes> + Send + 'static,
    Q::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<RetryBody<B>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Pending: the inner service holds the waker.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The instance that is ready goes with the call; its clone stays.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let kind = shared.methods.get(request.uri().path()).copied();
        ResponseFuture {
            call: Some(Call::new(service, shared, kind)),
            step: Step::New {
                request: Some(request.map(Body::new)),
            },
        }
    }
}

pin_project! {
    /// The future of one call through a [`Retry`]. Dropping it gives up the attempt that is on its way.
    pub struct ResponseFuture<S, F, B> {
        // None once the call resolved or went on elsewhere: a future that its caller keeps holds nothing.
        call: Option<Call<S>>,
        #[pin]
        step: Step<F, B>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<F, B> {
        New { request: Option<Request<Body>> },
        Sent { #[pin] call: F },
        // None once it was read.
        Reading { reading: Option<Reading<B>> },
        Again { again: Again<B> },
        Done,
    }
}

impl<S, F, B> Future for ResponseFuture<S, F, B>
where
    S: Service<Request<Body>, Response = Response<B>, Future = F> + Send + 'static,
    S::Error: Into<BoxError>,
    F: Future<Output = Result<Response<B>, S::Error>> + Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Answer<B>;

    /// # Panics
    /// When it is polled after it resolved.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            let came = match (this.step.as_mut().project(), &mut *this.call) {
                (StepProjection::New { request }, Some(call)) => {
                    let request = request.take().expect("it is new");
                    match call.first(request, cx) {
                        Ok(request) => {
                            self.as_mut().send(request);
                            continue;
                        }
                        Err(error) => {
                            self.finish();
                            return Poll::Ready(Err(Box::new(error)));
                        }
                    }
                }
                // Pending: the inner future holds the waker.
                (StepProjection::Sent { call: sent }, Some(call)) => {
                    let result = ready!(call.span.in_scope(|| sent.poll(cx)));
                    call.headed(result.map_err(Into::into))
                }
                (StepProjection::Reading { reading }, Some(call)) => {
                    let limit = call.shared.config.reply_limit;
                    let body = reading.as_mut().expect("it isn't read yet");
                    // Pending: the reply's body holds the waker.
                    let read = ready!(body.poll(limit, call.progress.as_ref(), cx));
                    let reading = reading.take().expect("it was there just now");
                    call.read(reading, read)
                }
                (StepProjection::Again { again }, _) => {
                    // Pending: the attempt, or the wait before it, holds the waker.
                    let answer = ready!(again.as_mut().poll(cx));
                    self.finish();
                    return Poll::Ready(answer);
                }
                _ => panic!("polled after it resolved"),
            };
            if let Some(answer) = self.as_mut().go_on(came) {
                return Poll::Ready(answer);
            }
        }
    }
}

impl<S, F, B> ResponseFuture<S, F, B>
where
    S: Service<Request<Body>, Response = Response<B>, Future = F> + Send + 'static,
    S::Error: Into<BoxError>,
    F: Future<Output = Result<Response<B>, S::Error>> + Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// The first attempt. Where attempts have a time-out, all of it goes on on the slow path.
    fn send(self: Pin<&mut Self>, request: Request<Body>) {
        let mut this = self.project();
        if let Some(call) = this.call.take_if(|call| call.late().is_some()) {
            let again = Box::pin(run(call, Begin::Send(request)));
            this.step.set(Step::Again { again });
        } else if let Some(call) = this.call {
            let service = &mut call.service;
            let sent = call.span.in_scope(|| service.call(request));
            this.step.set(Step::Sent { call: sent });
        }
    }

    /// What is done with what came of the first attempt. Some is for the caller.
    fn go_on(self: Pin<&mut Self>, came: Came<B>) -> Option<Answer<B>> {
        let mut this = self.project();
        let (step, answer) = match came {
            Came::Read(reading) => {
                let reading = Some(reading);
                this.step.set(Step::Reading { reading });
                return None;
            }
            Came::Up(response) => (Step::Done, Some(Ok(response))),
            Came::Stream(response, exchange) => {
                let call = this.call.take().expect("it is on its way");
                let response = guard(call, response, exchange, None);
                (Step::Done, Some(Ok(response)))
            }
            Came::Failed(failure) => {
                let call = this.call.take().expect("it is on its way");
                match call.next(failure) {
                    Next::Again(again) => (Step::Again { again }, None),
                    Next::Up(answer) => (Step::Done, Some(answer)),
                }
            }
        };
        *this.call = None;
        this.step.set(step);
        answer
    }

    fn finish(self: Pin<&mut Self>) {
        let mut this = self.project();
        *this.call = None;
        this.step.set(Step::Done);
    }
}

impl<S, F, B> fmt::Debug for ResponseFuture<S, F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("resolved", &self.call.is_none())
            .finish_non_exhaustive()
    }
}
