//! What retries and deadlines add to a call over a real connection, on the client's thread, in allocations.

use std::time::Duration;

use http::{Request, Response};
use steadfast::{Attempt, BalanceConfig, BalanceLayer, BoxError, Egress, EgressConfig};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_retry::{DeadlineConfig, DeadlineLayer, Kind, RetryLayer};
use steadfast_testkit::alloc::{AllocationCount, CountingAllocator};
use steadfast_tests::echo::EchoThread;
use tonic::{body::Body, transport::Endpoint};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Allocations per unary call, and per frame of a long stream.
async fn costs<S, B>(service: S, attempt: bool) -> [f64; 2]
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    const CALLS: u32 = 2_000;
    const FRAMES: u32 = 20_000;
    let mut client = EchoClient::new(service);
    let mut begin = AllocationCount::current_thread();
    for number in 0..CALLS + 200 {
        if number == 200 {
            begin = AllocationCount::current_thread();
        }
        let mut request = tonic::Request::new(EchoRequest::default());
        if attempt {
            request.extensions_mut().insert(Attempt::new());
        }
        client.unary(request).await.expect("an answer");
    }
    let calls = AllocationCount::current_thread().since(begin).allocations;
    let mut per_frame = f64::MAX;
    for _ in 0..3 {
        let request = EchoRequest {
            payload: vec![7; 100],
            count: FRAMES,
            ..EchoRequest::default()
        };
        let replies = client.server_stream(request).await;
        let mut replies = replies.expect("a stream").into_inner();
        replies.message().await.expect("a message");
        let begin = AllocationCount::current_thread();
        while replies.message().await.expect("a message").is_some() {}
        let frames = AllocationCount::current_thread().since(begin).allocations;
        // Frames come in as many reads as the kernel makes of them: the least of three.
        per_frame = per_frame.min(frames as f64 / f64::from(FRAMES));
    }
    [calls as f64 / f64::from(CALLS), per_frame]
}

/// The budget: the box of the request's body, and the handle and its place in the request's extensions, if the
/// caller brought none; nothing for a reply that is kept, nothing per frame, and nothing for a deadline.
#[tokio::test]
async fn retries_and_deadlines_cost_three_allocations() {
    let server = EchoThread::start();
    let uri = server.uri().to_owned();
    let pool = || {
        let endpoint = Endpoint::from_shared(uri.clone()).unwrap();
        let balance = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
        balance.layer(Egress::new(endpoint, EgressConfig::default()).unwrap())
    };
    let default = Some(Duration::from_secs(30));
    let deadline = DeadlineLayer::new(DeadlineConfig { default }).unwrap();
    let held = RetryLayer::default();
    let held = held
        .idempotent("/steadfast.test.Echo/Unary", Kind::Held)
        .unwrap();
    let bare = Endpoint::from_shared(uri.clone())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let [bare, bare_frame] = costs(bare, false).await;
    let [plain, plain_frame] = costs(pool(), false).await;
    println!(
        "bare {bare:.2}, the pool alone {plain:.2}; a frame {bare_frame:.3}, {plain_frame:.3}"
    );
    for retry in [RetryLayer::default(), held] {
        for attempt in [true, false] {
            let service = retry.layer(pool());
            let [retried, frame] = costs(service, attempt).await;
            let service = deadline.layer(retry.layer(pool()));
            let [both, both_frame] = costs(service, attempt).await;
            println!(
                "with an attempt {attempt}: retries {retried:.2}, and deadlines {both:.2}; a frame {frame:.3}, \
                 {both_frame:.3}"
            );
            assert!(retried <= plain + 3.05, "{retried} against {plain}");
            assert!(both <= plain + 5.05, "{both} against {plain}");
            assert!(frame < plain_frame + 0.05 && both_frame < plain_frame + 0.05);
        }
    }
}
