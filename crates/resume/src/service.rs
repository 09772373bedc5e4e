//! The service, and the future of one call.

use std::{
    error::Error,
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE, request::Parts};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use steadfast_core::BoxError;
use tonic::{Status, body::Body};
use tower_service::Service;

use crate::{
    ResumableBody,
    attempt::{Begin, Opened, open},
    call::Call,
    failure::Came,
    layer::{Kind, Ruled, Shared},
    observe::Counts,
    request::{Taken, take},
    stream::{Stream, ok},
    talk::{Talk, guarded},
    upload::Upload,
};

/// Carries streams on where they broke. Made by [`ResumableStreamLayer`](crate::ResumableStreamLayer).
///
/// Its readiness is the inner service's own; an attempt after the first one waits for it in the call's future
/// or body. Requests go down with tonic's `Body`.
pub struct ResumableStream<S> {
    pub(crate) inner: S,
    pub(crate) shared: Arc<Shared>,
}

impl<S: Clone> Clone for ResumableStream<S> {
    // The inner service's clone starts un-ready by itself.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for ResumableStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumableStream")
            .field("inner", &self.inner)
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<S, Q, B> Service<Request<Q>> for ResumableStream<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    Q: HttpBody<Data = Bytes> + Send + 'static,
    Q::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResumableBody<B>>;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Pending: the inner service holds the waker.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let request = request.map(Body::new);
        let Some(ruled) = self.shared.rule(request.uri().path()).cloned() else {
            let call = self.inner.call(request);
            return ResponseFuture {
                step: Step::Through { call },
            };
        };
        // The instance that is ready goes with the call; its clone stays.
        let clone = self.inner.clone();
        let service = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let call = Box::pin(call(service, shared, ruled, request));
        ResponseFuture {
            step: Step::Resumable { call },
        }
    }
}

/// A call of a method that has a rule, to its head.
async fn call<S, B>(
    mut service: S,
    shared: Arc<Shared>,
    ruled: Ruled,
    request: Request<Body>,
) -> Result<Response<ResumableBody<B>>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let Ruled { kind, counts } = ruled;
    counts.called();
    let (parts, body) = request.into_parts();
    let limit = shared.config.request_limit;
    let (talk, body) = match kind {
        Kind::Bidi(rule) => {
            let conversation =
                guarded(|| rule.begin()).map_err(|error| refused(&counts, &parts, &*error))?;
            let limit = shared.config.message_limit;
            let upload = Upload::new(&parts.headers, body, limit, Arc::clone(&conversation));
            let body = upload.body(Vec::new().into());
            (Talk::Conversation(conversation, upload), body)
        }
        Kind::Server(rule) => match take(&parts.headers, body, limit).await? {
            Taken::Message(message, body) => match guarded(|| rule.begin(&message)) {
                Ok(Ok(progress)) => (Talk::Stream(progress), body),
                Ok(Err(error)) | Err(error) => {
                    return Err(refused(&counts, &parts, &*error));
                }
            },
            Taken::Other(body) => {
                counts.passed();
                let response = service.call(Request::from_parts(parts, body)).await;
                return response
                    .map(|response| response.map(ResumableBody::through))
                    .map_err(Into::into);
            }
        },
    };
    if let Some(budget) = &shared.budget {
        budget.deposit();
    }
    let mut call = Box::new(Call::new(service, shared, counts, parts, talk));
    let request = call.first(body);
    match open(call, Begin::Send(request)).await {
        Opened::Stream(call, parts, incoming) => {
            let body = ResumableBody::stream(Stream::new(call, incoming));
            Ok(Response::from_parts(parts, body))
        }
        Opened::Up(Came::Head(response)) => Ok(response.map(ResumableBody::through)),
        Opened::Up(Came::Error(error)) => Err(error),
        Opened::Up(Came::Trailers(trailers)) => Ok(ended(trailers)),
        Opened::Complete => Ok(ended(ok())),
    }
}

/// A reply that is over with its head: trailers alone, as gRPC has them.
fn ended<B>(trailers: HeaderMap) -> Response<ResumableBody<B>> {
    let mut response = Response::new(ResumableBody::empty());
    *response.headers_mut() = trailers;
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

/// The error of a call that its rule can't begin.
fn refused(counts: &Counts, parts: &Parts, error: &(dyn Error + 'static)) -> BoxError {
    counts.refused();
    let method = parts.uri.path();
    Box::new(Status::internal(format!(
        "{method}: its resume rule can't begin: {error}; nothing was sent"
    )))
}

pin_project! {
    /// The future of one call through a [`ResumableStream`]. Dropping it gives up the attempt that is on its
    /// way.
    pub struct ResponseFuture<F, B> {
        #[pin]
        step: Step<F, B>,
    }
}

type Resumable<B> =
    Pin<Box<dyn Future<Output = Result<Response<ResumableBody<B>>, BoxError>> + Send>>;

pin_project! {
    #[project = StepProjection]
    #[project_replace = StepTaken]
    enum Step<F, B> {
        Through { #[pin] call: F },
        Resumable { call: Resumable<B> },
        Done,
    }
}

impl<F, B, E> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<ResumableBody<B>>, BoxError>;

    /// # Panics
    /// When it is polled after it resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        let polled = match step.as_mut().project() {
            // Pending: the inner future holds the waker.
            StepProjection::Through { call } => call.poll(cx).map(|result| match result {
                Ok(response) => Ok(response.map(ResumableBody::through)),
                Err(error) => Err(error.into()),
            }),
            StepProjection::Resumable { call } => call.as_mut().poll(cx),
            StepProjection::Done => panic!("polled after it resolved"),
        };
        if polled.is_ready() {
            step.project_replace(Step::Done);
        }
        polled
    }
}

impl<F, B> fmt::Debug for ResponseFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("resumable", &matches!(self.step, Step::Resumable { .. }))
            .finish_non_exhaustive()
    }
}
