//! What a call costs in allocations: exact.

use std::{
    future::ready,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use steadfast_core::{Attempt, BoxError};
use steadfast_retry::{DeadlineConfig, DeadlineLayer, Kind, RetryConfig, RetryLayer};
use steadfast_testkit::alloc::{CountingAllocator, count};
use tonic::body::Body;
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const HELD: &str = "/a.B/Held";
const STREAM: &str = "/a.B/Stream";
const OTHER: &str = "/a.B/Other";

/// A body of a few frames and trailers, none of which is made when it is read.
struct Reply {
    frames: u32,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Reply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.frames > 0 {
            self.frames -= 1;
            // A message of nothing.
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 5])))));
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }
}

/// A request as a generated client makes it: one frame whose bytes are shared, and an extension.
fn request(path: &'static str, attempt: bool) -> Request<Body> {
    let mut bytes = bytes::BytesMut::from(&b"\0\0\0\0\x03abc----"[..]);
    let message = bytes.split_to(8).freeze();
    let body = Full::new(message).map_err(BoxError::from);
    let mut request = Request::post(Uri::from_static(path))
        .header("te", HeaderValue::from_static("trailers"))
        .header("content-type", HeaderValue::from_static("application/grpc"))
        .header("grpc-timeout", "1S")
        .body(Body::new(body))
        .unwrap();
    request.extensions_mut().insert(7_u8);
    if attempt {
        request.extensions_mut().insert(Attempt::new());
    }
    request
}

/// Allocations of one call that is answered at once, and read to its end.
fn costs<S, B>(service: &mut S, path: &'static str, attempt: bool, frames: u32) -> u64
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    B: http_body::Body<Data = Bytes, Error = BoxError>,
{
    let mut least = u64::MAX;
    // The first call may set something up.
    for _ in 0..3 {
        let mut request = Some(request(path, attempt));
        REPLY.with_borrow_mut(|reply| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = Reply {
                frames,
                trailers: Some(trailers),
            };
            let head = Response::builder().header("content-type", "application/grpc");
            *reply = Some(head.body(body).unwrap());
        });
        let made = count(|| {
            let mut cx = Context::from_waker(Waker::noop());
            let call = pin!(service.call(request.take().unwrap()));
            let Poll::Ready(Ok(response)) = call.poll(&mut cx) else {
                panic!("pending or failed")
            };
            let mut body = pin!(response.into_body());
            while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
                assert!(frame.is_ok());
            }
        });
        least = least.min(made);
    }
    least
}

thread_local! {
    static REPLY: std::cell::RefCell<Option<Response<Reply>>> = const { std::cell::RefCell::new(None) };
}

fn inner() -> impl Service<Request<Body>, Response = Response<Reply>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static {
    tower::service_fn(|request: Request<Body>| {
        drop(request);
        let reply = REPLY.with_borrow_mut(Option::take).expect("it is set");
        ready(Ok::<_, BoxError>(reply))
    })
}

fn retry() -> RetryLayer {
    let layer = RetryLayer::new(RetryConfig::default()).unwrap();
    let layer = layer.idempotent(HELD, Kind::Held).unwrap();
    layer.idempotent(STREAM, Kind::Streaming).unwrap()
}

/// The budget: a call costs the box of the request's body, and the handle that tells which channel took it,
/// two allocations, if the caller brought none. A stream that may be repeated costs one more.
#[test]
fn a_call() {
    let mut service = retry().layer(inner());
    for (path, more) in [(OTHER, 0), (HELD, 0), (STREAM, 1)] {
        assert_eq!(
            costs(&mut service, path, true, 1),
            1 + more,
            "{path}, with an attempt"
        );
        assert_eq!(costs(&mut service, path, false, 1), 3 + more, "{path}");
    }
}

/// The budget: a deadline costs the handle, if there is none, and nothing else.
#[test]
fn a_deadline() {
    let config = DeadlineConfig {
        default: Some(std::time::Duration::from_secs(30)),
    };
    let mut service = DeadlineLayer::new(config).unwrap().layer(inner());
    assert_eq!(costs(&mut service, OTHER, true, 1), 0);
    assert_eq!(costs(&mut service, OTHER, false, 1), 2);
    let mut service = DeadlineLayer::default().layer(retry().layer(inner()));
    assert_eq!(costs(&mut service, HELD, true, 1), 1);
    assert_eq!(costs(&mut service, HELD, false, 1), 3);
}

/// The budget: a frame that passes costs nothing; frames that are kept cost the growth of their list, which
/// is one allocation each time that their number doubles.
#[test]
fn a_frame() {
    let mut service = DeadlineLayer::default().layer(retry().layer(inner()));
    for path in [OTHER, STREAM] {
        let few = costs(&mut service, path, true, 1);
        assert_eq!(costs(&mut service, path, true, 10_000), few, "{path}");
    }
    assert!(costs(&mut service, HELD, true, 10_000) <= 1 + 14);
}
