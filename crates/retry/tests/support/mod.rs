//! A pool in miniature for the tests of this package: each call is given to a channel of its own, and is
//! answered as the test says.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use steadfast_core::{Attempt, BoxError, ChannelId, Place, at_bottom, now};
use steadfast_testkit::body::{BodyError, BodyScript};
use tokio::time::Instant;
use tonic::{Status, body::Body};
use tower::Service;

pub(crate) const HELD: &str = "/steadfast.test.Echo/Unary";
pub(crate) const STREAM: &str = "/steadfast.test.Echo/ServerStream";
pub(crate) const OTHER: &str = "/steadfast.test.Echo/ClientStream";

/// What comes back for a call. Pending for ever if it is None.
pub(crate) type Reply = Option<Result<Response<ReplyBody>, BoxError>>;

/// A scripted body whose errors are the transport's.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, Status>;

/// A body that ends with an error as tonic reports a lost connection, if the script has an error.
pub(crate) fn body(script: BodyScript) -> ReplyBody {
    let lost = |error: BodyError| {
        let io = io::Error::new(io::ErrorKind::ConnectionReset, error);
        let mut status = Status::unknown("error reading a body from connection");
        status.set_source(Arc::new(io));
        status
    };
    script.start().0.map_err(lost).boxed_unsync()
}

/// Polls once.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// One attempt, as the pool saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// From 0.
    pub(crate) number: usize,
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    pub(crate) channel: ChannelId,
    /// The request's body, once it was read.
    pub(crate) body: Bytes,
}

type Replies = dyn Fn(&Seen) -> Reply + Send + Sync;

/// The pool. It reads a request's whole body before it answers.
#[derive(Clone)]
pub(crate) struct Pool {
    replies: Arc<Replies>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Whether it answers without reading the request.
    pub(crate) hasty: bool,
    /// Whether the first call stays in its queue.
    pub(crate) queues: bool,
}

impl Pool {
    pub(crate) fn new(replies: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            replies: Arc::new(replies),
            seen: Arc::default(),
            hasty: false,
            queues: false,
        }
    }

    /// The n-th attempt gets the n-th of these; those after the last get the last.
    pub(crate) fn scripted<const N: usize>(replies: [fn() -> Reply; N]) -> Self {
        Self::new(move |seen| replies[seen.number.min(N - 1)]())
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl Service<Request<Body>> for Pool {
    type Response = Response<ReplyBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let extensions = parts.extensions.clone();
            let channel = ChannelId::next();
            if let Some(attempt) = extensions.get::<Attempt>() {
                attempt.picked(channel, Place::default());
            }
            let number = pool.calls();
            if number > 0 || !pool.queues {
                at_bottom(&mut parts.extensions);
            }
            let mut seen = Seen {
                number,
                at: now(),
                path: parts.uri.path().to_owned(),
                headers: parts.headers,
                extensions,
                channel,
                body: Bytes::new(),
            };
            pool.seen.lock().unwrap().push(seen.clone());
            if number == 0 && pool.queues {
                return std::future::pending().await;
            }
            if !pool.hasty {
                seen.body = body.collect().await?.to_bytes();
                pool.seen.lock().unwrap()[number] = seen.clone();
            }
            match (pool.replies)(&seen) {
                Some(reply) => reply,
                None => std::future::pending().await,
            }
        })
    }
}

/// A unary request of gRPC.
pub(crate) fn request(path: &str, message: &[u8]) -> Request<Body> {
    let body = BodyScript::default().message(message).start().0;
    Request::post(path)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(Body::new(body))
        .unwrap()
}

/// A gRPC reply with this body.
pub(crate) fn grpc(body: BodyScript) -> Reply {
    let head = Response::builder().header("content-type", "application/grpc");
    Some(Ok(head.body(self::body(body)).unwrap()))
}

/// A good reply with one message.
pub(crate) fn good() -> Reply {
    grpc(BodyScript::default().message(b"good").status(0))
}

/// A status without a reply, in the headers.
pub(crate) fn status(code: u32) -> Reply {
    let head = Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", code);
    Some(Ok(head.body(body(BodyScript::default())).unwrap()))
}

/// A bare HTTP status.
pub(crate) fn http(code: u16) -> Reply {
    let head = Response::builder().status(code);
    Some(Ok(head
        .body(body(BodyScript::default().data("<html>")))
        .unwrap()))
}

/// A connection that was lost.
pub(crate) fn lost() -> Reply {
    Some(Err(io::Error::from(io::ErrorKind::ConnectionReset).into()))
}

/// A request that never left.
pub(crate) fn never_sent() -> Reply {
    Some(Err(steadfast_classify::ChannelClosed::new("a test").into()))
}

/// What a caller got: the reply's data and its status, or the error.
pub(crate) async fn whole<S, B>(
    service: S,
    request: Request<Body>,
) -> Result<(Bytes, u32), BoxError>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    B: http_body::Body<Data = Bytes, Error = BoxError>,
{
    use tower::ServiceExt;
    let response = service.oneshot(request).await?;
    read(response).await
}

/// The rest of a reply.
pub(crate) async fn read<B>(response: Response<B>) -> Result<(Bytes, u32), BoxError>
where
    B: http_body::Body<Data = Bytes, Error = BoxError>,
{
    let code = |map: &HeaderMap| {
        let code = map.get("grpc-status")?;
        code.to_str().ok()?.parse().ok()
    };
    let in_head = code(response.headers());
    let body = response.into_body().collect().await?;
    let in_trailers = body.trailers().and_then(code);
    Ok((body.to_bytes(), in_trailers.or(in_head).unwrap_or(99)))
}

/// A message as it is on the wire.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}
