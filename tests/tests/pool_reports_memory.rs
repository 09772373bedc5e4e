//! What people reported of memory that grows while a server can't be reached, with a whole pool above.

use std::time::Duration;

use steadfast::{Config, Keepalive, Pool};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::{
    alloc::{CountingAllocator, live_bytes},
    peer::{Peer, Script},
};
use steadfast_tests::whole::{builder, quarantines, quick, ready};
use tonic::Request;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const SECOND: Duration = Duration::from_secs(1);
/// What each call that is kept would keep.
const PAYLOAD: usize = 32 << 10;
const EVERY: Duration = Duration::from_millis(4);

/// What was seen in some seconds of calls at a fixed rate, whatever became of those before.
#[derive(Debug, Default)]
struct Seen {
    calls: usize,
    /// In flight or waiting for a channel, at most.
    most: u64,
    /// Bytes allocated after a third of the time, and what they had grown by at the end.
    early: u64,
    grown: u64,
}

async fn load(pool: &Pool, time: Duration, deadline: Option<Duration>) -> Seen {
    let (mut seen, began) = (Seen::default(), now());
    let mut ticks = tokio::time::interval(EVERY);
    while began.elapsed() < time {
        ticks.tick().await;
        let mut client = EchoClient::new(pool.clone());
        let mut request = Request::new(EchoRequest {
            payload: vec![7; PAYLOAD],
            ..EchoRequest::default()
        });
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        tokio::spawn(async move { client.unary(request).await.map(drop) });
        seen.calls += 1;
        let now = pool.snapshot();
        seen.most = seen.most.max(now.in_flight() + now.waiting as u64);
        if began.elapsed() * 3 >= time && seen.early == 0 {
            seen.early = live_bytes();
        }
    }
    seen.grown = live_bytes().saturating_sub(seen.early);
    seen
}

/// A pool whose connections are warmed up and then hear nothing any more: all of them, so that nothing tells
/// whose fault it is.
async fn deaf(keepalive: Option<Keepalive>) -> (Peer, Pool) {
    let peer = Peer::start(Script::deaf(1)).unwrap();
    let mut config: Config = quick(4);
    config.egress.keepalive = keepalive;
    let pool = ready(builder(&[peer.uri()], config), 4).await;
    (peer, pool)
}

/// M1, E1, S1: four connections that all went deaf, and calls at a fixed rate. With deadlines, or without them
/// and with keepalive, as many are open as fit into that time, and what has ended leaves nothing: memory stays
/// as it is. Control, with neither: they pile up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_deaf_server_do_not_pile_up() {
    let time = 3 * SECOND;
    let (peer, pool) = deaf(None).await;
    let seen = load(&pool, time, Some(SECOND / 10)).await;
    println!("{seen:?}");
    // 25 in 100 ms, and as many again and again for timers that are late.
    assert!(seen.most <= 150, "{seen:?}");
    assert!(seen.grown < 8 << 20, "{seen:?}");
    assert_eq!((quarantines(&pool), peer.connections()), (0, 4));
    drop((peer, pool));

    let keepalive = Keepalive::new(SECOND / 5, SECOND / 5);
    let (peer, pool) = deaf(Some(keepalive)).await;
    let seen = load(&pool, time, None).await;
    println!("{seen:?}");
    // 100 in 400 ms, which is when keepalive ends a connection, for each of three attempts.
    assert!(seen.most <= 300 && seen.grown < 8 << 20, "{seen:?}");
    assert!(peer.connections() > 4, "it ended them");
    drop((peer, pool));

    let (_peer, pool) = deaf(None).await;
    let seen = load(&pool, SECOND, None).await;
    println!("{seen:?}");
    assert!(
        seen.most as usize + 1 >= seen.calls,
        "all are there: {seen:?}"
    );
}
