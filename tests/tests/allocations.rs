//! What a call costs on the client's thread, in allocations: exact, so it is asserted.

use http::{Request, Response};
use steadfast::{Attempt, BalanceConfig, BoxError, Config, Pool};
use steadfast::{
    Balance, BalanceLayer, Each, Egress, EgressChannel, EgressConfig, PenaltyWindow,
    PenaltyWindowLayer,
};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::alloc::{AllocationCount, CountingAllocator};
use steadfast_tests::echo::EchoThread;
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::Service;
use tower::ServiceBuilder;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// What a service must be for a generated client.
trait Transport<B>: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>
where
    B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
}

impl<S, B> Transport<B> for S
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>>,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
}

/// Allocations per unary call of a generated client over `service`, on this thread: the client, the
/// layers and the connection's task. The server runs on a thread of its own.
async fn per_call<S, B>(service: S, attempt: bool) -> f64
where
    S: Transport<B>,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    const CALLS: u32 = 2_000;
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
    spent as f64 / f64::from(CALLS)
}

/// Allocations per frame of a long stream, read at once.
async fn per_frame<S, B>(service: S) -> f64
where
    S: Transport<B>,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    const FRAMES: u32 = 20_000;
    let mut client = EchoClient::new(service);
    let request = EchoRequest {
        payload: vec![7; 100],
        count: FRAMES,
        ..EchoRequest::default()
    };
    let mut replies = client
        .server_stream(request)
        .await
        .expect("a stream")
        .into_inner();
    replies.message().await.expect("a message");
    let before = AllocationCount::current_thread();
    let mut messages = 0;
    while replies.message().await.expect("a message").is_some() {
        messages += 1;
    }
    assert_eq!(messages, FRAMES - 1);
    let spent = AllocationCount::current_thread().since(before).allocations;
    spent as f64 / f64::from(FRAMES)
}

/// Balance, Penalty and Egress.
fn lower(uri: &str) -> Balance<PenaltyWindow<EgressChannel>> {
    ServiceBuilder::new()
        .layer(BalanceLayer::new(BalanceConfig::fixed(1)).unwrap())
        .layer(Each(PenaltyWindowLayer::default()))
        .service(Egress::new(uri.to_owned(), EgressConfig::default()).unwrap())
}

/// All layers. Its retry puts an `Attempt` into every call.
fn pool(uri: &str) -> Pool {
    let config = Config {
        balance: BalanceConfig::fixed(1),
        ..Config::default()
    };
    Pool::builder(uri.to_owned())
        .config(config)
        .build()
        .unwrap()
}

async fn bare(uri: &str) -> Channel {
    Endpoint::from_shared(uri.to_owned())
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// X5 and the budget: Balance, Penalty and Egress cost at most 2 allocations per call over a bare tonic
/// channel, and 4 with an `Attempt`; so does the whole pool, whose calls all have one.
#[tokio::test]
async fn a_call_costs_two_allocations_more() {
    let server = EchoThread::start();
    let uri = server.uri();
    let bare = per_call(bare(uri).await, false).await;
    let two = per_call(lower(uri), false).await;
    let four = per_call(lower(uri), true).await;
    let pooled = per_call(pool(uri), false).await;
    let attempted = per_call(pool(uri), true).await;
    println!(
        "allocations per call: bare {bare:.2}, lower layers {two:.2}, with an attempt {four:.2}, \
         pool {pooled:.2}, with an attempt {attempted:.2}"
    );
    assert!(two <= bare + 2.05, "{two} against {bare}");
    assert!(four <= bare + 4.05, "{four} against {bare}");
    assert!(pooled <= bare + 4.05, "{pooled} against {bare}");
    assert!(attempted <= bare + 4.05, "{attempted} against {bare}");
}

/// The budget: a frame costs nothing over a bare tonic channel. Frames come in as many reads as the kernel
/// makes of them, so the two are compared as the least of three runs each.
#[tokio::test]
async fn a_frame_costs_nothing_more() {
    let server = EchoThread::start();
    let uri = server.uri();
    let (mut least, mut least_pooled) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        least = least.min(per_frame(bare(uri).await).await);
        least_pooled = least_pooled.min(per_frame(pool(uri)).await);
    }
    println!("allocations per frame: bare {least:.3}, pool {least_pooled:.3}");
    assert!(
        least_pooled < least + 0.05,
        "{least_pooled} against {least}"
    );
}
