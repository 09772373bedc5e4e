//! What the layer costs a call, over a service that does nothing, on one thread.

use std::{
    collections::VecDeque,
    future::{Ready, ready},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use comfy_table::Table;
use http::{Request, Response};
use http_body_util::Empty;
use serde::Serialize;
use steadfast_core::BoxError;
use steadfast_sparse::{FlowId, SparseConfig, SparseFlow, SparseFlowLayer};
use steadfast_testkit::alloc::{self, AllocationCount};
use tower::{Layer, Service, util::ServiceFn};

use super::super::{median, table_of};
use crate::clock::thread_cpu;

/// Calls of a round.
const CALLS: usize = 20_000;
/// Calls over which allocations are counted.
const COUNTED: usize = 5_000;

type Answer = Ready<Result<Response<Empty<Bytes>>, BoxError>>;
type Bare = ServiceFn<fn(Request<()>) -> Answer>;
type Layered = SparseFlow<Bare>;
type Call = Pin<Box<<Layered as Service<Request<()>>>::Future>>;

/// One kind of call; also the shape of a row in the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// `free` found its place free, `waits` waited for it, `bare` went to the service without the layer.
    call: &'static str,
    /// Flows that have a call open.
    flows: usize,
    /// Nanoseconds of the thread's CPU time; for the layer's calls that of the bare service is taken off.
    ns: f64,
    allocs: f64,
}

pub(super) fn run(rounds: usize) -> Vec<Row> {
    let kinds: [(&str, usize, Run); 5] = [
        ("bare", 0, bare),
        ("free", 1, free),
        ("free", 1_000, free),
        ("waits", 1, waits),
        ("waits", 1_000, waits),
    ];
    let mut ns = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for ((_, flows, run), ns) in kinds.iter().zip(&mut ns) {
            ns.push(run(*flows, CALLS).0);
        }
    }
    let ns: Vec<f64> = ns.into_iter().map(median).collect();
    let rows = kinds.iter().zip(&ns).map(|((call, flows, run), own)| {
        alloc::count_on_demand(true);
        let allocs = run(*flows, COUNTED).1;
        alloc::count_on_demand(false);
        Row {
            call,
            flows: *flows,
            ns: if *call == "bare" { *own } else { own - ns[0] },
            allocs,
        }
    });
    rows.collect()
}

/// So many calls beside so many flows: nanoseconds and allocations of one.
type Run = fn(usize, usize) -> (f64, f64);

fn bare(_: usize, calls: usize) -> (f64, f64) {
    let mut service: Bare = tower::service_fn(answer as fn(_) -> _);
    measure(calls, requests(calls, 1), |request| {
        let call = pin!(service.call(request));
        finish(call);
    })
}

fn free(flows: usize, calls: usize) -> (f64, f64) {
    let mut service = layered(2_000);
    let open: Vec<_> = requests(flows, flows)
        .into_iter()
        .map(|of| service.call(of))
        .collect();
    let spent = measure(calls, requests(calls, flows), |request| {
        let call = pin!(service.call(request));
        finish(call);
    });
    drop(open);
    spent
}

fn waits(flows: usize, calls: usize) -> (f64, f64) {
    let mut service = layered(1);
    let holder = service.call(request(flows));
    let mut waiting: VecDeque<Call> = VecDeque::with_capacity(flows + 2);
    for of in requests(flows, flows) {
        let mut call = Box::pin(service.call(of));
        assert!(
            call.as_mut().poll(&mut cx()).is_pending(),
            "the place is taken"
        );
        waiting.push_back(call);
    }
    drop(holder);
    // The box is the bench's own.
    let mut boxes = 0;
    let (ns, allocs) = measure(calls, requests(calls, flows), |request| {
        let mut call = Box::pin(service.call(request));
        boxes += 1;
        assert!(
            call.as_mut().poll(&mut cx()).is_pending(),
            "others came before"
        );
        waiting.push_back(call);
        if let Some(mut next) = waiting.pop_front() {
            finish(next.as_mut());
        }
    });
    (ns, allocs - f64::from(boxes) / calls as f64)
}

fn measure(
    calls: usize,
    requests: Vec<Request<()>>,
    mut call: impl FnMut(Request<()>),
) -> (f64, f64) {
    let (before, began) = (AllocationCount::current_thread(), thread_cpu());
    for request in requests {
        call(request);
    }
    let took = thread_cpu() - began;
    let spent = AllocationCount::current_thread().since(before).allocations;
    (
        took.as_nanos() as f64 / calls as f64,
        spent as f64 / calls as f64,
    )
}

fn finish<F, B>(call: Pin<&mut F>)
where
    F: Future<Output = Result<Response<B>, BoxError>>,
    B: http_body::Body<Data = Bytes>,
{
    let Poll::Ready(Ok(response)) = call.poll(&mut cx()) else {
        panic!("the place is free, and the service answers at once");
    };
    let body = pin!(response.into_body());
    let end = http_body::Body::poll_frame(body, &mut cx());
    assert!(matches!(end, Poll::Ready(None)), "its body is empty");
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn answer(_: Request<()>) -> Answer {
    ready(Ok(Response::new(Empty::new())))
}

fn layered(places: u32) -> Layered {
    let config = SparseConfig {
        places,
        ..SparseConfig::default()
    };
    let layer = SparseFlowLayer::client(config).expect("it is in range");
    layer.layer(tower::service_fn(answer as fn(_) -> _))
}

fn request(flow: usize) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(FlowId::of(flow));
    request
}

fn requests(calls: usize, flows: usize) -> Vec<Request<()>> {
    (0..calls)
        .map(|call| request(call % flows.max(1)))
        .collect()
}

/// The rows for people.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = table_of(["a call that", "flows", "ns", "allocations"]);
    for row in rows {
        let what = match row.call {
            "bare" => "goes to the bare service",
            "free" => "finds its place free",
            _ => "waits for its place",
        };
        table.add_row([
            what.to_owned(),
            row.flows.to_string(),
            format!("{:.0}", row.ns),
            format!("{:.2}", row.allocs),
        ]);
    }
    table
}
