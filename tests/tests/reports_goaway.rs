//! Servers that say GOAWAY: what is open goes on, what comes after it goes elsewhere, and dials are few.

use std::{slice, time::Duration};

use steadfast::{Attempt, BalanceConfig, Config, Outcome, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Last, Peer, Step};
use steadfast_tests::{HANG, scripts::held_streams, soon};

fn pool(channels: usize, places: impl IntoIterator<Item = String>) -> Pool {
    let places: Vec<_> = places.into_iter().collect();
    let config = Config {
        balance: BalanceConfig::fixed(channels),
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(places[0].clone()).config(config);
    let builder = builder.places(Places::list(places)).without_env();
    builder.build().unwrap()
}

/// Says GOAWAY(NO_ERROR) on a connection, for all streams after those it has.
async fn goaway(peer: &Peer, connection: u64) {
    let step = Step::goaway(0, Last::Highest);
    assert!(peer.inject(connection, [step]).await, "it is open");
}

/// `calls` calls at once: how each of them ended.
async fn burst(pool: &Pool, calls: usize) -> Vec<Outcome> {
    let mut burst = tokio::task::JoinSet::new();
    for _ in 0..calls {
        let (mut client, attempt) = (EchoClient::new(pool.clone()), Attempt::new());
        let mut request = tonic::Request::new(EchoRequest::default());
        request.extensions_mut().insert(attempt.clone());
        burst.spawn(async move {
            let answer = client.unary(request).await;
            let outcome = attempt.outcome().expect("it ended");
            assert_eq!(answer.is_ok(), outcome.is_ok(), "{answer:?}");
            outcome
        });
    }
    let mut outcomes = Vec::new();
    while let Some(outcome) = soon("a call", burst.join_next()).await {
        outcomes.push(outcome.unwrap());
    }
    outcomes
}

/// Waits until each server has seen this many connections and the pool has all its channels again. A
/// server sees the new one only after the pool has given up the old one.
async fn replaced(pool: &Pool, channels: usize, peers: &[Peer], connections: usize) {
    for peer in peers {
        let dialled = peer.wait_until(HANG, |seen| seen.connections.len() >= connections);
        dialled.await.unwrap();
    }
    soon("the replacements", pool.warm(channels)).await.unwrap();
}

/// E4, B5, B6: a graceful GOAWAY while a stream is open, and nobody calls: the pool sees it by itself and
/// has a new connection. The next twenty calls are all served there, and the open stream ends in order on
/// the old one, which is closed then.
#[tokio::test]
async fn an_open_stream_goes_on_and_later_calls_go_elsewhere() {
    let peer = held_streams();
    let pool = pool(1, [peer.uri()]);
    let mut client = EchoClient::new(pool.clone());
    let opened = client.server_stream(EchoRequest::default()).await;
    let mut stream = opened.unwrap().into_inner();
    assert!(soon("a message", stream.message()).await.unwrap().is_some());
    goaway(&peer, 0).await;
    replaced(&pool, 1, slice::from_ref(&peer), 2).await;
    let outcomes = burst(&pool, 20).await;
    assert!(outcomes.iter().all(|end| end.is_ok()), "{outcomes:?}");
    assert_eq!(pool.snapshot().draining.len(), 1, "the stream holds it");
    peer.release_all();
    assert!(soon("the rest", stream.message()).await.unwrap().is_some());
    assert!(soon("the end", stream.message()).await.unwrap().is_none());
    drop(stream);
    let closed = peer.wait_until(HANG, |seen| !seen.connections[0].open);
    closed.await.unwrap();
    let served = peer.inspect(|seen| seen.connections[1].requests);
    assert_eq!((served, peer.connections()), (20, 2));
    assert_eq!(pool.penalty().snapshot().len(), 0, "nobody is blamed");
}

/// B7, P1: a burst in the very moment of the GOAWAY, before anybody can know of it. What it loses (sending
/// again is a later layer's) is known to be lost before the server dealt with it: never an outcome that
/// leaves it open whether the call was served. The connection is replaced once, and the next burst is whole.
#[tokio::test]
async fn what_a_burst_loses_to_a_goaway_was_never_processed() {
    let mut lost = 0;
    for _ in 0..10 {
        let peer = held_streams();
        let pool = pool(1, [peer.uri()]);
        let mut client = EchoClient::new(pool.clone());
        let opened = client.server_stream(EchoRequest::default()).await;
        let _stream = opened.unwrap().into_inner();
        goaway(&peer, 0).await;
        let outcomes = burst(&pool, 20).await;
        let served = outcomes.iter().filter(|end| end.is_ok()).count();
        let unserved = [Outcome::NeverSent, Outcome::Unprocessed];
        let known = outcomes.iter().filter(|end| unserved.contains(end)).count();
        assert_eq!(served + known, 20, "{outcomes:?}");
        lost += known;
        // The server's own count: it answered those that succeeded, and no other one.
        let answered = |connection: &steadfast_testkit::peer::Connection| connection.answers;
        let answers: u64 = peer.inspect(|seen| seen.connections.iter().map(answered).sum());
        assert_eq!(answers, served as u64);
        replaced(&pool, 1, slice::from_ref(&peer), 2).await;
        let outcomes = burst(&pool, 20).await;
        assert!(outcomes.iter().all(|end| end.is_ok()), "{outcomes:?}");
        assert_eq!(peer.connections(), 2);
    }
    println!("{lost} of 200 calls were lost in the moment of a GOAWAY");
}

/// B6: every connection of a pool over four servers gets a GOAWAY within a second while calls go on: each
/// is replaced by exactly one dial at its own server, calls fail only as ones that were not processed,
/// and afterwards none does.
#[tokio::test]
async fn goaways_on_all_members_make_one_dial_each() {
    let peers = [(); 4].map(|()| held_streams());
    let pool = pool(8, peers.iter().map(Peer::uri));
    soon("warming", pool.warm(8)).await.unwrap();
    // A connection that is lost within its first second counts as a failed dial.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let calls = tokio::spawn({
        let pool = pool.clone();
        async move {
            let mut outcomes = Vec::new();
            for _ in 0..100 {
                outcomes.extend(burst(&pool, 4).await);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcomes
        }
    });
    for connection in 0..2 {
        for peer in &peers {
            goaway(peer, connection).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let outcomes = soon("the calls", calls).await.unwrap();
    let lost: Vec<_> = outcomes.iter().filter(|end| !end.is_ok()).collect();
    let unserved = [Outcome::NeverSent, Outcome::Unprocessed];
    assert!(lost.iter().all(|end| unserved.contains(end)), "{lost:?}");
    // Two connections at each server, and a call is on its way on a few of them at once.
    assert!(lost.len() <= 16, "{} of 400 lost", lost.len());
    println!("{} of 400 calls were lost to 8 GOAWAYs", lost.len());
    replaced(&pool, 8, &peers, 4).await;
    let outcomes = burst(&pool, 200).await;
    assert!(outcomes.iter().all(|end| end.is_ok()));
    let dials = peers.each_ref().map(Peer::connections);
    assert_eq!(dials, [4; 4], "one dial for each that went");
    assert_eq!(pool.snapshot().size(), 8);
}
