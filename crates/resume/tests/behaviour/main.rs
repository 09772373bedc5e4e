//! How the layer behaves, on a paused clock, above a pool in miniature.

mod conversations;
mod errors;
mod gap;
mod observe;
mod rules;
mod sends;
mod streams;
// The pool in miniature is the one of retry's tests.
#[path = "../../../retry/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use steadfast_core::BoxError;
use steadfast_resume::{
    Pass, Progress, Rest, ResumableBody, ResumableStream, ResumableStreamLayer, ResumeConfig, Rule,
};
use steadfast_testkit::body::BodyScript;
use support::{Pool, Reply, ReplyBody, STREAM};
use tokio_stream::StreamExt;
use tonic::body::Body;
use tower::{Layer, ServiceExt};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// The numbers from the request's first byte up to its second, each a message of one byte.
pub(crate) struct Numbers;

struct Left {
    from: u8,
    to: u8,
}

impl Rule for Numbers {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        let [from, to] = *request else {
            return Err("a request of two bytes".into());
        };
        Ok(Box::new(Left { from, to }))
    }
}

impl Progress for Left {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        if *message != [self.from] {
            return Err(format!("{message:?} in place of {}", self.from).into());
        }
        self.from += 1;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        if self.from == self.to {
            return Ok(Rest::Complete);
        }
        Ok(Rest::request(vec![self.from, self.to]))
    }
}

pub(crate) fn layer(change: impl FnOnce(&mut ResumeConfig)) -> ResumableStreamLayer {
    let mut config = ResumeConfig::default();
    change(&mut config);
    let layer = ResumableStreamLayer::new(config).unwrap();
    layer.rule(Numbers).unwrap()
}

pub(crate) fn over(pool: &Pool) -> ResumableStream<Pool> {
    layer(|_| {}).layer(pool.clone())
}

pub(crate) fn over_with(
    pool: &Pool,
    change: impl FnOnce(&mut ResumeConfig),
) -> ResumableStream<Pool> {
    layer(change).layer(pool.clone())
}

/// The request for the numbers from 0 up to this one.
pub(crate) fn up_to(to: u8) -> Request<Body> {
    support::request(STREAM, &[0, to])
}

/// Some of the numbers, as a body that goes on as the test says.
pub(crate) fn numbers(range: std::ops::Range<u8>) -> BodyScript {
    range.fold(BodyScript::default(), |body, number| {
        body.message(&[number])
    })
}

/// Those of a request, to the end.
pub(crate) fn asked(seen: &support::Seen) -> std::ops::Range<u8> {
    seen.body[5]..seen.body[6]
}

/// A reply of frames, each after a time.
pub(crate) fn timed(frames: Vec<(Duration, Bytes)>) -> ReplyBody {
    let data = tokio_stream::iter(frames).then(async |(after, data)| {
        tokio::time::sleep(after).await;
        Ok(Frame::data(data))
    });
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let last = tokio_stream::once(Ok(Frame::trailers(trailers)));
    StreamBody::new(data.chain(last)).boxed_unsync()
}

pub(crate) fn head(body: ReplyBody) -> Reply {
    let head = Response::builder().header("content-type", "application/grpc");
    Some(Ok(head.body(body).unwrap()))
}

/// A call to its end: what came, and the status.
pub(crate) async fn call(
    service: ResumableStream<Pool>,
    request: Request<Body>,
) -> Result<(Bytes, u32), BoxError> {
    support::whole(service, request).await
}

pub(crate) async fn open(
    service: ResumableStream<Pool>,
    request: Request<Body>,
) -> ResumableBody<ReplyBody> {
    service.oneshot(request).await.unwrap().into_body()
}

/// The next frame of data.
pub(crate) async fn data(body: &mut ResumableBody<ReplyBody>) -> Bytes {
    let frame = body.frame().await.expect("a frame").expect("no error");
    frame.into_data().expect("data")
}

/// All the numbers, with their prefixes.
pub(crate) fn all(to: u8) -> Bytes {
    (0..to)
        .flat_map(|number| support::framed(&[number]))
        .collect()
}
