//! Servers that can't be connected to beside servers that can: the calls never notice, and the dials are
//! few.

use std::time::Duration;

use steadfast::{Attempt, BalanceConfig, Config, LocalKind, Outcome, Places, Pool};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{ClosedPort, Peer, Script, SynDrop};
use steadfast_tests::soon;
use tokio::runtime::Handle;
use tonic::{Code, Request};

const BUDGET: Duration = Duration::from_millis(700);

fn pool(channels: usize, places: impl IntoIterator<Item = String>) -> Pool {
    let places: Vec<_> = places.into_iter().collect();
    let balance = BalanceConfig {
        connect_budget: BUDGET,
        ..BalanceConfig::fixed(channels)
    };
    let config = Config {
        balance,
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(places[0].clone()).config(config);
    let builder = builder.places(Places::list(places)).without_env();
    builder.build().unwrap()
}

/// The slowest of this many calls, `at_once` of them at a time. All of them must be answered.
async fn slowest(pool: &Pool, calls: usize, at_once: usize) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..calls / at_once {
        let mut round = tokio::task::JoinSet::new();
        for _ in 0..at_once {
            let mut client = EchoClient::new(pool.clone());
            round.spawn(async move {
                let began = now();
                client.unary(EchoRequest::default()).await.unwrap();
                now() - began
            });
        }
        while let Some(took) = soon("a call", round.join_next()).await {
            slowest = slowest.max(took.unwrap());
        }
    }
    slowest
}

/// B2, B6, B7: a port that refuses beside a good one: 200 calls, and not one fails, since a channel is only
/// picked once it is connected. The port is dialled with growing pauses and not once a call.
#[tokio::test]
async fn a_refused_port_fails_none_of_200_calls() {
    let refused = ClosedPort::new().unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let pool = pool(2, [refused.uri(), good.uri()]);
    slowest(&pool, 200, 10).await;
    slowest(&pool, 200, 1).await;
    assert_eq!(good.requests().len(), 400);
    assert_eq!(pool.penalty().snapshot().len(), 0);
}

/// B6, B7: a server behind a firewall that drops SYNs beside a good one: 100 calls at once, all served by
/// the good one, none of them waiting for the dial that hangs.
#[tokio::test]
async fn a_dropped_syn_delays_none_of_100_calls() {
    let dead = SynDrop::new().unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let pool = pool(2, [dead.uri(), good.uri()]);
    let took = slowest(&pool, 100, 100).await;
    assert!(took < BUDGET, "{took:?}");
    assert_eq!(good.requests().len(), 100);
}

/// B2, B6: the same as one of four: 400 calls while its dials hang and fail, and none is delayed.
#[tokio::test]
async fn one_of_four_that_never_connects_delays_none_of_400_calls() {
    let dead = SynDrop::new().unwrap();
    let good = [(); 3].map(|()| Peer::start(Script::good()).unwrap());
    let places = good.iter().map(Peer::uri).chain([dead.uri()]);
    let pool = pool(4, places);
    soon("the good ones", pool.warm(3)).await.unwrap();
    let began = now();
    let mut took = Duration::ZERO;
    let mut calls = 0;
    // For as long as the first dial hangs and the second one too.
    while now() - began < 4 * BUDGET || calls < 400 {
        took = took.max(slowest(&pool, 8, 8).await);
        calls += 8;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(took < BUDGET, "{took:?}");
    let served = good.each_ref().map(|peer| peer.requests().len());
    assert_eq!(served.iter().sum::<usize>(), calls);
    assert!(served.iter().all(|n| *n >= calls / 4), "{served:?}");
    assert_eq!(pool.snapshot().connecting.len(), 1);
}

/// B6, B7, P2: SYNs are dropped and there is no other server: the call ends within the one budget, marked
/// as local, with the place and the cause.
#[tokio::test]
async fn a_dropped_syn_is_bounded_by_the_budget() {
    let dead = SynDrop::new().unwrap();
    let pool = pool(1, [dead.uri()]);
    let attempt = Attempt::new();
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    let began = now();
    let mut client = EchoClient::new(pool.clone());
    let status = soon("a call", client.unary(request)).await.unwrap_err();
    assert!(now() - began < BUDGET + Duration::from_millis(500));
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        attempt.outcome(),
        Some(Outcome::Local(LocalKind::NoChannel))
    );
    for text in [dead.uri().as_str(), "700ms"] {
        assert!(status.message().contains(text), "{}", status.message());
    }
    assert_eq!(pool.penalty().snapshot().len(), 0);
}

/// X6, B6: a pool whose one server can't be connected to, and that nobody calls, sleeps between its dials:
/// its runtime is busy for a small part of the time.
#[tokio::test]
async fn a_failing_dial_does_not_spin() {
    let refused = ClosedPort::new().unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let pool = pool(2, [refused.uri(), good.uri()]);
    slowest(&pool, 10, 10).await;
    let metrics = Handle::current().metrics();
    let before = (
        metrics.worker_total_busy_duration(0),
        metrics.worker_park_count(0),
    );
    // Nothing tells that nothing happens. A dial or two are due in it.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let busy = metrics.worker_total_busy_duration(0) - before.0;
    let parks = metrics.worker_park_count(0) - before.1;
    assert!(busy < Duration::from_millis(500), "busy for {busy:?}");
    assert!(parks < 100, "{parks} wake-ups");
    slowest(&pool, 10, 10).await;
}

/// B6, B7: a server that isn't there yet, then is, on the same port, and then goes and comes again: every
/// time it is there all calls are served.
#[tokio::test]
async fn a_server_that_comes_and_goes_on_one_port() {
    let port = ClosedPort::new().unwrap();
    let addr = port.addr();
    let pool = pool(1, [port.uri()]);
    let mut client = EchoClient::new(pool.clone());
    soon("a refusal", client.unary(EchoRequest::default()))
        .await
        .unwrap_err();
    drop(port);
    for _ in 0..2 {
        let peer = Peer::bind(addr, |_| Script::good()).unwrap();
        let mut connectivity = pool.connectivity();
        let ready = connectivity.wait_for(|now| *now == steadfast::Connectivity::Ready);
        soon("its return", ready).await.unwrap();
        slowest(&pool, 50, 10).await;
        assert_eq!(peer.connections(), 1);
        peer.stop().await;
        let mut connectivity = pool.connectivity();
        let lost = connectivity.wait_for(|now| *now == steadfast::Connectivity::Failing);
        soon("its loss", lost).await.unwrap();
        let mut client = EchoClient::new(pool.clone());
        let status = soon("a refusal", client.unary(EchoRequest::default()))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
}
