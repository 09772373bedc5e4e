//! What a stream costs in allocations: exact.

use std::{
    future::{Future, ready},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use steadfast_core::{Attempt, BoxError};
use steadfast_resume::{Pass, Progress, Rest, ResumableStreamLayer, Rule};
use steadfast_testkit::alloc::{CountingAllocator, count};
use tonic::body::Body;
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const STREAM: &str = "/a.B/Stream";
const OTHER: &str = "/a.B/Other";

/// Counts messages.
struct Counts(u64);

impl Rule for Counts {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(Self(0)))
    }
}

impl Progress for Counts {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        self.0 += 1;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::Complete)
    }
}

/// So many frames, then trailers, none of which is made when it is read.
struct Reply {
    frames: u32,
    /// What comes over and over.
    data: &'static [&'static [u8]],
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.frames > 0 {
            self.frames -= 1;
            let data = self.data[self.frames as usize % self.data.len()];
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(data)))));
        }
        let trailers = self.trailers.take();
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

fn request(path: &'static str) -> Request<Body> {
    let message = Bytes::from_static(b"\0\0\0\0\x03abc");
    let mut request = Request::post(Uri::from_static(path))
        .header("te", HeaderValue::from_static("trailers"))
        .body(Body::new(Full::new(message).map_err(BoxError::from)))
        .unwrap();
    request.extensions_mut().insert(Attempt::new());
    request
}

/// Allocations of one call of so many frames that is read to its end.
fn costs(path: &'static str, frames: u32, data: &'static [&'static [u8]]) -> u64 {
    let layer = ResumableStreamLayer::default().rule(Counts(0)).unwrap();
    let reply = std::sync::Mutex::new(None);
    let reply = std::sync::Arc::new(reply);
    let given = std::sync::Arc::clone(&reply);
    let mut service = layer.layer(tower::service_fn(move |request: Request<Body>| {
        drop(request);
        let reply = given.lock().unwrap().take().expect("it is set");
        ready(Ok::<Response<Reply>, BoxError>(reply))
    }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut least = u64::MAX;
    // The first call may set something up.
    for _ in 0..3 {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let trailers = Some(trailers);
        let head = Response::builder().header("content-type", "application/grpc");
        let body = Reply {
            frames,
            data,
            trailers,
        };
        *reply.lock().unwrap() = Some(head.body(body).unwrap());
        let mut request = Some(request(path));
        least = least.min(count(|| {
            let mut cx = Context::from_waker(Waker::noop());
            let call = pin!(service.call(request.take().unwrap()));
            let Poll::Ready(Ok(response)) = call.poll(&mut cx) else {
                panic!("pending or failed")
            };
            let mut body = pin!(response.into_body());
            let mut came = 0;
            while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
                came += u32::from(frame.expect("no error").is_data());
            }
            assert_eq!(came, frames);
        }));
    }
    least
}

const WHOLE: &[&[u8]] = &[&[0, 0, 0, 0, 0]];
const MANY: &[&[u8]] = &[&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9]];
// The last comes first.
const PARTS: &[&[u8]] = &[&[8, 9], &[0, 3, 7], &[0, 0, 0]];

/// The budget: a frame costs nothing, be there one message in it, many or a part of one. A message over several frames
/// costs the growth of two buffers, once.
#[test]
fn a_frame_costs_nothing() {
    for (data, once) in [(WHOLE, 0), (MANY, 0), (PARTS, 0)] {
        let few = costs(STREAM, 3, data);
        assert_eq!(costs(STREAM, 9_999, data), few + once, "{data:?}");
    }
}

/// What a stream costs when it begins; a call without a rule costs the box of its request's body.
#[test]
fn a_stream_costs_a_few() {
    let (other, stream) = (costs(OTHER, 1, WHOLE), costs(STREAM, 1, WHOLE));
    assert_eq!(other, 0);
    assert!(stream <= 14, "{stream}");
    println!("{other} without a rule, {stream} with one");
}
