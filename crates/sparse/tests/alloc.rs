//! F8: a call costs at most one allocation, however many flows there are.

use std::{
    future::{Ready, ready},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use steadfast_core::BoxError;
use steadfast_sparse::{FlowId, SparseConfig, SparseFlow, SparseFlowLayer};
use steadfast_testkit::alloc::{CountingAllocator, count};
use tower::{Layer, Service, util::ServiceFn};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

type Answer = Ready<Result<Response<Empty<Bytes>>, BoxError>>;
type Tested = SparseFlow<ServiceFn<fn(Request<()>) -> Answer>>;

fn answer(_: Request<()>) -> Answer {
    ready(Ok(Response::new(Empty::new())))
}

fn service(places: u32) -> Tested {
    let layer = SparseFlowLayer::client(SparseConfig {
        places,
        ..SparseConfig::default()
    });
    layer
        .unwrap()
        .layer(tower::service_fn(answer as fn(_) -> _))
}

fn of(flow: usize) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(FlowId::of(flow));
    request
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn finish<F, B>(mut call: Pin<&mut F>)
where
    F: Future<Output = Result<Response<B>, BoxError>>,
    B: http_body::Body<Data = Bytes>,
{
    let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut cx()) else {
        panic!("pending, or refused")
    };
    let body = pin!(response.into_body());
    assert!(matches!(
        http_body::Body::poll_frame(body, &mut cx()),
        Poll::Ready(None)
    ));
}

/// F8: with 1,000 flows that each have a call open, a call that finds its place free allocates nothing.
#[test]
fn a_call_allocates_nothing() {
    let mut service = service(2_000);
    let mut open: Vec<_> = (0..1_000).map(|flow| service.call(of(flow))).collect();
    for flow in (0..1_000).chain(5_000..6_000) {
        let request = of(flow);
        let allocations = count(|| finish(pin!(service.call(request))));
        assert_eq!(allocations, 0, "flow {flow}");
    }
    open.clear();
}

/// F8: nor does one that waits, on average; with a limit on its wait it costs one, the timer.
#[test]
fn a_call_that_waits_allocates_at_most_once() {
    const CALLS: usize = 10_000;
    let mut service = service(1);
    let mut requests: Vec<_> = (0..CALLS).map(|call| Some(of(call % 1_000))).collect();
    let mut waiting = std::collections::VecDeque::with_capacity(2_000);
    let holder = service.call(of(CALLS));
    for flow in 0..1_000 {
        let mut call = Box::pin(service.call(of(flow)));
        assert!(call.as_mut().poll(&mut cx()).is_pending());
        waiting.push_back(call);
    }
    drop(holder);
    let mut spent = 0;
    for request in &mut requests {
        let request = request.take().unwrap();
        let mut call = None;
        spent += count(|| call = Some(service.call(request)));
        let mut call = Box::pin(call.unwrap());
        spent += count(|| assert!(call.as_mut().poll(&mut cx()).is_pending()));
        waiting.push_back(call);
        // The first one's turn has come, and it is over at once: its body is at its end.
        let mut next = waiting.pop_front().unwrap();
        spent += count(|| finish(next.as_mut()));
    }
    let average = spent as f64 / CALLS as f64;
    assert!(average < 0.01, "{average} allocations a call");
}

/// F8: the same with a limit on the wait.
#[tokio::test(start_paused = true)]
async fn a_limit_costs_one_allocation() {
    let layer = SparseFlowLayer::client(SparseConfig {
        places: 1,
        longest_wait: Some(std::time::Duration::from_secs(1)),
        ..SparseConfig::default()
    });
    let mut service: Tested = layer
        .unwrap()
        .layer(tower::service_fn(answer as fn(_) -> _));
    let first = service.call(of(0));
    let mut spent = Vec::new();
    let mut open = Vec::with_capacity(300);
    for flow in 0..200 {
        let request = of(flow);
        let mut call = None;
        let mut allocations = count(|| call = Some(service.call(request)));
        let mut call = Box::pin(call.unwrap());
        allocations += count(|| assert!(call.as_mut().poll(&mut cx()).is_pending()));
        open.push(call);
        spent.push(allocations);
    }
    // Three tables double now and then, to 200 entries.
    let total: u64 = spent.iter().sum();
    assert!(
        (200..=200 + 3 * 8).contains(&total),
        "{total} for 200 calls"
    );
    drop((first, open));
}
