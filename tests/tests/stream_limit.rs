//! Servers that allow few streams on a connection: the pool opens more connections, and no call waits inside
//! the transport, where its loss would look like a bug of the caller's.

use steadfast::{BalanceConfig, BalanceLayer, BoxError, ChannelId, Config, Place, Pool};
use steadfast_testkit::peer::{Peer, PeerState, Script};
use steadfast_tests::{HANG, soon};
use tokio::task::JoinSet;
use tonic::{body::Body, transport::Endpoint};
use tower::{Layer, Service, ServiceExt};

const CALLS: usize = 100;
const STREAMS: u32 = 10;

fn request() -> http::Request<Body> {
    let builder = http::Request::post("http://steadfast.test/steadfast.test.Echo/Unary");
    let builder = builder
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    builder.body(Body::empty()).unwrap()
}

/// Calls at once whose answers the server holds back.
fn hold<S>(pool: &S) -> JoinSet<Result<(), BoxError>>
where
    S: Service<http::Request<Body>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
{
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let pool = pool.clone();
        calls.spawn(async move { pool.oneshot(request()).await.map(drop) });
    }
    calls
}

/// The peer saw all calls, and never more on a connection than it allows.
async fn all_arrived(peer: &Peer) {
    let all = |seen: &PeerState| seen.requests.len() == CALLS;
    peer.wait_until(HANG, all).await.unwrap();
    let open = peer.open_streams_per_connection();
    assert!(
        open.iter().all(|streams| *streams <= STREAMS as usize),
        "{open:?}"
    );
    assert!(open.len() >= CALLS / STREAMS as usize, "{open:?}");
}

/// B8: 100 held calls on tonic channels of which nothing is known, with the assumed limit set to the
/// peer's 10: it saw HEADERS of all of them, and closing the connections loses none inside hyper, which
/// would show as a user error.
#[tokio::test]
async fn an_assumed_limit_keeps_calls_out_of_the_transport() {
    let peer = Peer::start(Script::max_streams(STREAMS)).unwrap();
    let uri = peer.uri();
    let factory = move |_: ChannelId, _: Place| {
        let endpoint = Endpoint::from_shared(uri.clone());
        async move { endpoint?.connect().await }
    };
    let config = BalanceConfig {
        assumed_streams: STREAMS,
        ..BalanceConfig::default()
    };
    let pool = BalanceLayer::new(config).unwrap().layer(factory);
    let mut calls = hold(&pool);
    all_arrived(&peer).await;
    peer.stop().await;
    while let Some(done) = soon("the calls' end", calls.join_next()).await {
        let error = done.unwrap().unwrap_err();
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
        while let Some(link) = next {
            assert!(!format!("{link:?}").contains("DispatchGone"), "{error:?}");
            next = link.source();
        }
    }
}

/// B8: the same with nothing configured: the pool knows the limit from the peer's SETTINGS.
#[tokio::test]
async fn an_announced_limit_needs_no_configuration() {
    let peer = Peer::start(Script::max_streams(STREAMS)).unwrap();
    let builder = Pool::builder(peer.uri()).config(steadfast_tests::lower_layers());
    let pool = builder.build().unwrap();
    let mut calls = hold(&pool);
    all_arrived(&peer).await;
    peer.release_all();
    while let Some(done) = soon("the calls' end", calls.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// B8: at its maximum the pool lets the calls wait for their turn, and all succeed.
#[tokio::test]
async fn at_the_maximum_all_have_their_turn() {
    let peer = Peer::start(Script::good().settings(steadfast_testkit::peer::Settings {
        max_concurrent_streams: Some(3),
        ..Default::default()
    }))
    .unwrap();
    let config = Config {
        balance: BalanceConfig::fixed(2),
        ..steadfast_tests::lower_layers()
    };
    let pool = Pool::builder(peer.uri()).config(config).build().unwrap();
    let mut calls = hold(&pool);
    while let Some(done) = soon("a call", calls.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!((peer.requests().len(), peer.connections()), (CALLS, 2));
}
