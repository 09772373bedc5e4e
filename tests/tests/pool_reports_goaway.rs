//! What people reported of servers that say GOAWAY, with a whole pool above: no call fails.

use std::time::Duration;

use steadfast::Pool;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Last, Peer, PeerState, Request, Script, Step};
use steadfast_tests::{
    HANG,
    scripts::held_streams,
    soon,
    whole::{UPLOAD, builder, quick, ready, unary},
};
use tokio::{task::JoinSet, time::sleep};
use tonic::{Status, Streaming};

/// A connection that is lost within its first second is taken for a dial that failed.
const YOUNG: Duration = Duration::from_millis(1_100);

async fn open_stream(pool: &Pool) -> Streaming<steadfast_proto::EchoReply> {
    let mut client = EchoClient::new(pool.clone());
    let opened = soon("its head", client.server_stream(EchoRequest::default())).await;
    let mut stream = opened.unwrap().into_inner();
    soon("a message", stream.message()).await.unwrap().unwrap();
    stream
}

/// A call that isn't idempotent.
async fn write(pool: &Pool) -> Result<(), Status> {
    let mut client = EchoClient::new(pool.clone());
    let upload = tokio_stream::once(EchoRequest::default());
    soon("a call", client.client_stream(upload)).await.map(drop)
}

/// Calls at once, every other one a write: those that failed.
async fn burst(pool: &Pool, calls: usize) -> Vec<Status> {
    let mut burst = JoinSet::new();
    for number in 0..calls {
        let pool = pool.clone();
        burst.spawn(async move {
            match number % 2 {
                0 => unary(&pool).await.map(drop).err(),
                _ => write(&pool).await.err(),
            }
        });
    }
    burst.join_all().await.into_iter().flatten().collect()
}

/// One burst in the moment of a graceful GOAWAY, with a stream open: those that failed, and how many were
/// sent again.
async fn round(retries: bool) -> (Vec<Status>, u64) {
    let peer = held_streams();
    let mut config = quick(1);
    config.retry.enabled = retries;
    let pool = ready(builder(&[peer.uri()], config), 1).await;
    let mut stream = open_stream(&pool).await;
    sleep(YOUNG).await;
    let goaway = [Step::goaway(0, Last::Highest)];
    assert!(peer.inject(0, goaway).await, "it is open");
    let failed = burst(&pool, 20).await;
    // The stream goes on to its end.
    peer.release_all();
    soon("the rest", stream.message()).await.unwrap().unwrap();
    assert!(soon("the end", stream.message()).await.unwrap().is_none());
    let answers = |seen: &PeerState| seen.connections.iter().map(|it| it.answers).sum::<u64>();
    // A warm-up for each connection, the stream, and each call once.
    let expected = peer.connections() + 1 + 20 - failed.len();
    peer.wait_until(HANG, |seen| answers(seen) == expected as u64)
        .await
        .unwrap();
    (failed, pool.retry().snapshot().resent)
}

/// T1: a burst of twenty in the moment of a graceful GOAWAY with a stream open, a hundred times: no call is
/// lost, reads and writes alike, the server answers each once, and the stream ends in order. Control, with
/// retries off: some are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_in_the_moment_of_a_goaway_is_whole() {
    let (mut rounds, mut controls) = (JoinSet::new(), JoinSet::new());
    for number in 0..120 {
        let rounds = if number < 100 {
            &mut rounds
        } else {
            &mut controls
        };
        rounds.spawn(round(number < 100));
    }
    let mut resent = 0;
    while let Some(round) = soon("a round", rounds.join_next()).await {
        let (failed, again) = round.unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        resent += again;
    }
    println!("of 2,000 calls {resent} were sent again");
    assert!(resent > 0, "none was lost: this shows nothing");
    let controls = soon("the controls", controls.join_all()).await;
    let lost: usize = controls.iter().map(|(failed, _)| failed.len()).sum();
    assert!(lost > 0, "without retries none is lost either");
}

/// T1, B6: every connection of a pool over four servers gets a GOAWAY within a second, as when servers end
/// connections by age, while calls go on: no call fails, and each connection is replaced by one dial at its
/// own server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaways_on_all_members_within_a_second_fail_no_call() {
    let peers = [(); 4].map(|()| held_streams());
    let places: Vec<_> = peers.iter().map(Peer::uri).collect();
    let pool = ready(builder(&places, quick(8)), 8).await;
    sleep(YOUNG).await;
    let calls = tokio::spawn({
        let pool = pool.clone();
        async move {
            let mut failed = Vec::new();
            for _ in 0..100 {
                failed.extend(burst(&pool, 8).await);
                sleep(Duration::from_millis(10)).await;
            }
            failed
        }
    });
    for connection in 0..2 {
        for peer in &peers {
            let goaway = [Step::goaway(0, Last::Highest)];
            assert!(peer.inject(connection, goaway).await, "it is open");
            sleep(Duration::from_millis(100)).await;
        }
    }
    let failed = soon("the calls", calls).await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    for peer in &peers {
        let dialled = peer.wait_until(HANG, |seen| seen.connections.len() == 4);
        dialled.await.unwrap();
    }
    soon("all of them again", pool.warm(8)).await.unwrap();
    assert!(burst(&pool, 100).await.is_empty());
    let dials = peers.each_ref().map(Peer::connections);
    assert_eq!(dials, [4; 4], "one dial for each that went");
}

/// T2: a GOAWAY that takes back a call whose reply had begun, which looks to tonic like an end without a
/// status: the idempotent call is repeated on the next connection, and the stream whose first message was
/// handed up fails, as does the write, which is sent once; their texts say what was missing.
#[tokio::test]
async fn a_goaway_after_the_head_is_no_end() {
    let peer = Peer::scripted(|connection| match connection {
        0 => Script::new(|request: &Request| match request.index {
            // Its warm-up.
            0 => Answer::good(),
            _ => Answer::steps([
                Step::AwaitRequest,
                Step::headers(),
                Step::good_message(),
                Step::Hold,
            ]),
        }),
        _ => Script::good(),
    })
    .unwrap();
    let pool = ready(builder(&[peer.uri()], quick(1)), 1).await;
    let mut stream = open_stream(&pool).await;
    let calls = tokio::spawn({
        let pool = pool.clone();
        async move { tokio::join!(unary(&pool), write(&pool)) }
    });
    sleep(YOUNG).await;
    let all = peer.wait_until(HANG, |seen| seen.held == 3);
    all.await.unwrap();
    assert!(peer.inject(0, [Step::goaway(0, Last::Zero)]).await);
    let (read, write) = soon("the calls", calls).await.unwrap();
    read.unwrap();
    let end = soon("its end", stream.message()).await;
    for status in [write.unwrap_err(), end.unwrap_err()] {
        assert!(status.message().contains("missing grpc-status"), "{status}");
    }
    let uploads = |seen: &PeerState| seen.requests.iter().filter(|it| it.path == UPLOAD).count();
    assert_eq!(peer.inspect(uploads), 1);
    assert_eq!(pool.retry().snapshot().repeated, 1);
}
