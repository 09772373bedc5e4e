//! Servers that aren't there, or are something else: each call ends within the connect budget with an
//! error that names what was tried and the deepest cause, dials are bounded, and the pool recovers when
//! the server does.

use std::time::Duration;

use steadfast::{BalanceConfig, Config, Connectivity, Local, LocalKind, Place, Places, Pool};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Accept, At, ClosedPort, Peer, Script};
use steadfast_tests::{HANG, soon};
use tonic::{Code, Status};

/// Short, so that the tests are; the rules don't depend on it.
const BUDGET: Duration = Duration::from_millis(500);

fn config() -> Config {
    let balance = BalanceConfig {
        connect_budget: BUDGET,
        ..BalanceConfig::fixed(2)
    };
    Config {
        balance,
        ..steadfast_tests::lower_layers()
    }
}

fn pool(uri: &str) -> Pool {
    Pool::builder(uri.to_owned())
        .config(config())
        .build()
        .unwrap()
}

/// The error of a call on a pool that can't connect. It must come within the budget (and a machine's
/// hiccup), be marked as local, and say all of `texts`.
async fn fails(pool: &Pool, texts: &[&str]) -> Status {
    let began = now();
    let call = EchoClient::new(pool.clone())
        .unary(EchoRequest::default())
        .await;
    let took = now() - began;
    let status = call.expect_err("there is no server");
    assert!(
        took < BUDGET + Duration::from_millis(400),
        "{took:?}: {status}"
    );
    assert_eq!(status.code(), Code::Unavailable);
    let local = Local::find(&status).expect("marked as local");
    assert_eq!(local.kind(), LocalKind::NoChannel);
    for text in texts {
        assert!(
            status.message().contains(text),
            "{text:?} isn't in: {}",
            status.message()
        );
    }
    status
}

/// B6, B7, T5: a port that refuses.
#[tokio::test]
async fn a_refused_port() {
    let closed = ClosedPort::new().unwrap();
    let pool = pool(&closed.uri());
    fails(&pool, &[&closed.uri(), "Connection refused"]).await;
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Failing);
}

/// B6, T5: a name that doesn't resolve.
#[tokio::test]
async fn a_name_that_does_not_resolve() {
    let pool = pool("http://no-such-host.invalid:50051");
    fails(&pool, &["no-such-host.invalid", "lookup"]).await;
}

/// E4: https while TLS isn't built in is refused when the pool is built; tonic would dial in clear text.
#[test]
fn https_without_tls() {
    let error = Pool::new("https://127.0.0.1:1").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("https://127.0.0.1:1") && text.contains("tls"),
        "{text}"
    );
}

/// B6, T5: a peer that speaks HTTP/1.1.
#[tokio::test]
async fn a_peer_that_speaks_http_1() {
    let peer = Peer::start(Script::http1()).unwrap();
    fails(&pool(&peer.uri()), &[&peer.uri(), "HTTP/1.1 400"]).await;
}

/// B6, T5: a peer that accepts and says nothing.
#[tokio::test]
async fn a_peer_that_says_nothing() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    fails(&pool(&peer.uri()), &[&peer.uri(), "SETTINGS", "500ms"]).await;
}

/// B6, T5: peers that close or reset at once.
#[tokio::test]
async fn a_peer_that_closes_at_once() {
    for script in [Script::fin(At::Accept), Script::tcp_reset(At::Accept)] {
        let peer = Peer::start(script).unwrap();
        fails(&pool(&peer.uri()), &[&peer.uri()]).await;
    }
}

/// B6: dials to a server that refuses are at most ten a minute per channel, and the pool recovers by
/// itself when the server comes.
#[tokio::test]
async fn recovers_when_the_server_comes() {
    let closed = ClosedPort::new().unwrap();
    let addr = closed.addr();
    let pool = pool(&closed.uri());
    fails(&pool, &["Connection refused"]).await;
    drop(closed);
    let peer = Peer::bind(addr, |_| Script::good()).unwrap();
    let mut connectivity = pool.connectivity();
    let recovered = connectivity.wait_for(|now| *now == Connectivity::Ready);
    soon("the pool's recovery", recovered).await.unwrap();
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(EchoRequest::default()))
        .await
        .unwrap();
    assert!(peer.connections() <= 2);
}

/// B6: a server that closes each connection at once isn't dialled at full pace.
#[tokio::test]
async fn a_closing_server_is_not_dialled_at_full_pace() {
    let peer = Peer::start(Script::fin(At::Accept)).unwrap();
    let pool = pool(&peer.uri());
    let began = now();
    while now() - began < Duration::from_secs(3) {
        let _ = EchoClient::new(pool.clone())
            .unary(EchoRequest::default())
            .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Each of the two channels: at once, after 0.8 to 1.2 s, and 1.28 to 1.92 s after that.
    assert!(
        (4..=6).contains(&peer.connections()),
        "{} dials",
        peer.connections()
    );
}

/// B7: a call meets a server that accepts and says nothing, and another that is good: the good one serves
/// at once, and once the mute one's dials have failed nothing waits for it.
#[tokio::test]
async fn a_mute_server_beside_a_good_one() {
    let mute = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let places = Places::list([mute.uri(), good.uri()]);
    let pool = Pool::builder(good.uri())
        .config(config())
        .places(places)
        .build()
        .unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut client = EchoClient::new(pool.clone());
        calls.spawn(async move { client.unary(EchoRequest::default()).await });
    }
    while let Some(done) = soon("a call", calls.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(good.requests().len(), 100);
}

/// B12: a place that is removed while it is dialled is dialled no more.
#[tokio::test]
async fn a_removed_place_is_dialled_no_more() {
    let (sender, places) = tokio::sync::watch::channel(Vec::new());
    let bad = Peer::start(Script::fin(At::Accept)).unwrap();
    let good = Peer::start(Script::good()).unwrap();
    sender.send_replace(vec![Place::new(bad.uri()), Place::new(good.uri())]);
    let places = Places::watch(places);
    let pool = Pool::builder(good.uri())
        .config(config())
        .places(places)
        .build()
        .unwrap();
    soon("the good one", pool.warm(1)).await.unwrap();
    bad.wait_until(HANG, |seen| seen.connections.len() >= 2)
        .await
        .unwrap();
    sender.send_replace(vec![Place::new(good.uri())]);
    soon("both at the good one", pool.warm(2)).await.unwrap();
    let before = bad.connections();
    // Its next dial would be due in less than 3.1 s.
    tokio::time::sleep(Duration::from_millis(3_200)).await;
    assert_eq!(bad.connections(), before);
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(EchoRequest::default()))
        .await
        .unwrap();
}
