//! A call costs no allocation: neither the layer's future nor its body nor its observer is boxed.

use std::{
    future::ready,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::Empty;
use steadfast_core::{Attempt, BoxError};
use steadfast_penalty::PenaltyWindowLayer;
use steadfast_testkit::alloc::{CountingAllocator, count};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

#[test]
fn a_call_allocates_nothing() {
    let layer = PenaltyWindowLayer::default();
    let mut service = layer.layer(tower::service_fn(|_: Request<()>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        response.extensions_mut().clear();
        ready(Ok::<_, BoxError>(response))
    }));
    // Without a status, and outside a runtime: judged, and not counted.
    let mut plain = Some(Request::new(()));
    let mut with_attempt = Request::new(());
    with_attempt.extensions_mut().insert(Attempt::new());
    let mut with_attempt = Some(with_attempt);
    for request in [&mut plain, &mut with_attempt] {
        let request = request.take().unwrap();
        let allocations = count(|| {
            let mut cx = Context::from_waker(Waker::noop());
            let call = pin!(service.call(request));
            let Poll::Ready(Ok(response)) = call.poll(&mut cx) else {
                panic!("pending")
            };
            let body = pin!(response.into_body());
            assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
        });
        assert_eq!(allocations, 0);
    }
}
