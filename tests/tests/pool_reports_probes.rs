//! What people reported of closures of theirs that panic, and of servers that punish too many PINGs, with a
//! whole pool between the two.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use steadfast::{BoxError, Condition, Place};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::Action;
use steadfast_testkit::{
    peer::{Peer, Script},
    proxy::{FaultProxy, Which},
};
use steadfast_tests::{
    HANG, soon,
    whole::{
        HEALTH, builder, busy, channel_at, decided, quarantines, quick, ready, serves, unary, until,
    },
};
use tokio::task::JoinSet;
use tonic::{body::Body, transport::Endpoint};

/// Panics in the calls from one number on, up to another.
#[derive(Clone, Default)]
struct Panics {
    calls: Arc<AtomicUsize>,
    from: Arc<AtomicUsize>,
    to: Arc<AtomicUsize>,
}

impl Panics {
    /// From now on, so many times.
    fn next(&self, calls: usize) {
        let now = self.calls.load(Ordering::SeqCst);
        self.from.store(now, Ordering::SeqCst);
        self.to.store(now + calls, Ordering::SeqCst);
    }

    fn call(&self) {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let range = self.from.load(Ordering::SeqCst)..self.to.load(Ordering::SeqCst);
        assert!(!range.contains(&number), "a panic of the user's");
    }

    /// Whether all that were asked for have happened.
    fn are_over(&self) -> bool {
        self.calls.load(Ordering::SeqCst) >= self.to.load(Ordering::SeqCst)
    }
}

/// X6, B6: the factory of endpoints panics at the first dial of one of two channels, and again when a lost
/// one is replaced: that dial has failed and is tried again, calls are served meanwhile, and at the end the
/// pool is whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_factory_fails_that_dial_only() {
    let peer = Peer::start(Script::good()).unwrap();
    let panics = Panics::default();
    panics.next(1);
    let (factory, uri) = (panics.clone(), peer.uri());
    let endpoint = move |_: &Place| {
        factory.call();
        Ok::<_, BoxError>(Endpoint::from_shared(uri.clone())?)
    };
    let builder = builder(&[peer.uri()], quick(2)).endpoint_for(endpoint);
    let pool = builder.build().unwrap();
    // The other one serves, at once.
    for _ in 0..20 {
        unary(&pool).await.unwrap();
    }
    soon("the other dial", pool.warm(2)).await.unwrap();
    assert!(panics.are_over());
    panics.next(1);
    let goaway = steadfast_testkit::peer::Step::goaway(0, steadfast_testkit::peer::Last::Highest);
    assert!(peer.inject(0, [goaway]).await, "it is open");
    let dialled = peer.wait_until(HANG, |seen| seen.connections.len() == 3);
    let calls = async {
        loop {
            unary(&pool).await.unwrap();
        }
    };
    tokio::select! {
        dialled = dialled => dialled.unwrap(),
        () = calls => unreachable!("they go on"),
    }
    soon("both again", pool.warm(2)).await.unwrap();
    assert!(panics.are_over());
    unary(&pool).await.unwrap();
}

/// X6, S3: the user's probe panics while it is made, when a channel is warmed and when a silent one is asked:
/// that probe says nothing about its channel. The warm-up is tried again; the suspect stays in service, and
/// the next probe quarantines it, and the one after the thaw restores it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_probe_says_nothing() {
    let peer = Peer::start(Script::good()).unwrap();
    let proxies = [(); 2].map(|()| FaultProxy::start(peer.addr()).unwrap());
    let places: Vec<_> = proxies.iter().map(FaultProxy::uri).collect();
    let panics = Panics::default();
    panics.next(1);
    let user = panics.clone();
    let probe = move |_: &Place| {
        user.call();
        let message = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
        let request = http::Request::post(HEALTH).version(http::Version::HTTP_2);
        let request = request.header("te", "trailers");
        let request = request.header("content-type", "application/grpc");
        Ok::<_, BoxError>(request.body(Body::new(message))?)
    };
    let pool = ready(builder(&places, quick(2)).probe(probe), 2).await;
    assert!(panics.are_over(), "a warm-up panicked, and both are ready");
    let silent = channel_at(&pool, &places[0]);
    // A dial that panicked has left a connection behind, which is closed.
    let connections = proxies[0].connections();
    let live = connections.iter().rposition(|it| it.open).unwrap();
    let live = Which::One(live as u64);
    panics.next(2);
    let _busy = busy(&pool);
    proxies[0].freeze(live);
    until("the panics", || panics.are_over()).await;
    assert_eq!(quarantines(&pool), 0, "{}", pool.stall().ring());
    until("the quarantine", || quarantines(&pool) > 0).await;
    panics.next(1);
    proxies[0].thaw(live);
    until("restoring", || {
        let states = pool.stall().snapshot();
        states.iter().all(|it| it.condition == Condition::Serving)
    })
    .await;
    assert!(serves(&pool, silent).await);
}

/// S12, E1: a server that ends a connection with `too_many_pings` at the first PING that comes within a minute
/// or without a stream. A channel falls silent and is asked again and again, and warmed channels are idle:
/// probes are requests, no PING is sent, and all connections live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_no_pings_to_a_strict_server() {
    let peer = Peer::start(Script::strict_ping(Duration::from_secs(60), false)).unwrap();
    let proxies = [(); 3].map(|()| FaultProxy::start(peer.addr()).unwrap());
    let places: Vec<_> = proxies.iter().map(FaultProxy::uri).collect();
    let mut config = quick(3);
    config.stall.reprobe = Duration::from_millis(100);
    config.stall.reprobe_most = Duration::from_millis(100);
    let pool = ready(builder(&places, config), 3).await;
    let silent = channel_at(&pool, &places[0]);
    let busy = busy(&pool);
    proxies[0].freeze(Which::One(0));
    let probed = |action: &Action| matches!(action, Action::Probe(_));
    until("five probes", || decided(&pool, probed) >= 5).await;
    proxies[0].thaw(Which::One(0));
    let restored = |action: &Action| matches!(action, Action::Restore(_));
    until("restoring", || decided(&pool, restored) == 1).await;
    drop(busy);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let mut client = EchoClient::new(pool.clone());
        calls.spawn(async move { client.unary(EchoRequest::default()).await });
    }
    for call in calls.join_all().await {
        call.unwrap();
    }
    assert!(serves(&pool, silent).await);
    assert_eq!((peer.pings(), peer.connections()), (0, 3));
    assert_eq!(peer.open_connections(), 3);
}
