//! What a call costs on the client's thread, in allocations: exact, so it is asserted.

use std::time::Duration;

use http::{Request, Response};
use steadfast_balance::{BalanceConfig, BalanceLayer};
use steadfast_core::{Attempt, BoxError};
use steadfast_egress::{Egress, EgressConfig};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::alloc::{AllocationCount, CountingAllocator};
use steadfast_tests::echo::EchoProcess;
use tonic::{body::Body, transport::Endpoint};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const CALLS: u64 = 2_000;

/// Allocations per unary call of a generated client over `service`, on this thread: the client, the
/// layers and the connection's task. The server runs on a thread of its own.
async fn per_call<S, B>(service: S, attempt: bool) -> f64
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let mut client = EchoClient::new(service);
    let mut call = async || {
        let mut request = tonic::Request::new(EchoRequest::default());
        if attempt {
            request.extensions_mut().insert(Attempt::new());
        }
        client.unary(request).await.expect("an answer");
    };
    for _ in 0..200 {
        call().await;
    }
    let before = AllocationCount::current_thread();
    for _ in 0..CALLS {
        call().await;
    }
    let spent = AllocationCount::current_thread().since(before).allocations;
    spent as f64 / CALLS as f64
}

/// An echo server on a thread of its own, so that its allocations aren't counted.
fn server() -> String {
    let (sender, uri) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let echo = EchoProcess::start().await;
            sender.send(echo.uri()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    uri.recv_timeout(Duration::from_secs(10)).unwrap()
}

/// Design budget: Balance + Egress cost at most 2 allocations per call over a bare tonic channel, and 4
/// with an `Attempt`.
#[tokio::test]
async fn a_call_costs_two_allocations_more() {
    let uri = server();
    let bare = Endpoint::from_shared(uri.clone())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let bare = per_call(bare, false).await;
    let config = BalanceConfig::fixed(1);
    let stack = || {
        let egress = Egress::new(uri.clone(), EgressConfig::default()).unwrap();
        BalanceLayer::new(config.clone()).unwrap().layer(egress)
    };
    let pooled = per_call(stack(), false).await;
    let attempted = per_call(stack(), true).await;
    println!(
        "allocations per call: bare {bare:.2}, pool {pooled:.2}, with an attempt {attempted:.2}"
    );
    assert!(pooled <= bare + 2.05, "{pooled} against {bare}");
    assert!(attempted <= bare + 4.05, "{attempted} against {bare}");
}
