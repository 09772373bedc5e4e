//! Servers with a limit of streams, windows that run dry, and members of different speed.

use std::time::Duration;

use bytes::Bytes;
use steadfast::{BalanceConfig, Config, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Peer, Script, Settings, Step};
use steadfast_tests::{HANG, soon};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::Status;

fn pool(balance: BalanceConfig, places: impl IntoIterator<Item = String>) -> Pool {
    let places: Vec<_> = places.into_iter().collect();
    let config = Config {
        balance,
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(places[0].clone()).config(config);
    let builder = builder.places(Places::list(places)).without_env();
    builder.build().unwrap()
}

fn limit(streams: u32) -> Settings {
    Settings {
        max_concurrent_streams: Some(streams),
        ..Settings::default()
    }
}

fn request(bytes: usize) -> EchoRequest {
    EchoRequest {
        payload: vec![7; bytes],
        ..EchoRequest::default()
    }
}

/// `calls` unary calls at once.
fn start(pool: &Pool, calls: usize, bytes: usize) -> JoinSet<Result<(), Status>> {
    let mut running = JoinSet::new();
    for _ in 0..calls {
        let mut client = EchoClient::new(pool.clone());
        running.spawn(async move { client.unary(request(bytes)).await.map(drop) });
    }
    running
}

async fn all_well(mut calls: JoinSet<Result<(), Status>>) {
    while let Some(done) = soon("a call", calls.join_next()).await {
        done.unwrap().unwrap();
    }
}

/// B2, E1: 400 calls at once, each with a body of 128 KiB, at a server with 100 streams a connection: all
/// finish, on one channel as on four.
#[tokio::test]
async fn four_hundred_bodies_at_a_limit_of_100_streams() {
    for channels in [1, 4] {
        let script = Script::good().settings(limit(100));
        let peer = Peer::start(script).unwrap();
        let pool = pool(BalanceConfig::fixed(channels), [peer.uri()]);
        all_well(start(&pool, 400, 128 * 1024)).await;
        assert_eq!(peer.requests().len(), 400);
        assert_eq!(pool.snapshot().in_flight(), 0);
        let received = peer.inspect(|seen| {
            let connections = seen.connections.iter();
            connections.map(|c| c.data_received).sum::<u64>()
        });
        assert!(received >= 400 * 128 * 1024);
    }
}

/// E1: 3,000 calls with bodies, 1,000 at a time on one connection with a limit of 400 streams: no window
/// goes to streams that aren't open yet, and all finish.
#[tokio::test]
async fn thousands_of_streams_over_the_limit() {
    let script = Script::good().settings(limit(400));
    let peer = Peer::start(script).unwrap();
    let pool = pool(BalanceConfig::fixed(1), [peer.uri()]);
    for _ in 0..3 {
        all_well(start(&pool, 1_000, 8 * 1024)).await;
    }
    assert_eq!(peer.requests().len(), 3_000);
    assert_eq!(peer.connections(), 1);
}

/// B8, E4: a server whose limit of five streams comes with SETTINGS 100 ms late, and 50 calls at once on a
/// cold pool: no connection is used before they came, all calls succeed, and each is sent once.
#[tokio::test]
async fn a_limit_that_comes_late() {
    let settings = Settings {
        delay: Duration::from_millis(100),
        ..limit(5)
    };
    let answer = Answer::steps([
        Step::AwaitRequest,
        Step::Wait(Duration::from_millis(10)),
        Step::headers(),
        Step::good_message(),
        Step::status(0, ""),
    ]);
    let peer = Peer::start(Script::always(answer).settings(settings)).unwrap();
    let pool = pool(BalanceConfig::fixed(4), [peer.uri()]);
    all_well(start(&pool, 50, 10)).await;
    assert_eq!(peer.requests().len(), 50);
    assert_eq!(peer.connections(), 4);
}

/// E1: a server that gives window back only when it is all used up. An upload that sits idle on the
/// connection keeps none of it: another upload of 400 KiB comes through.
#[tokio::test]
async fn an_idle_upload_keeps_no_window() {
    const WINDOW: u64 = 65_535;
    const WINDOW_UPDATE: u8 = 8;
    let settings = Settings {
        initial_window: Some(1 << 20),
        ..Settings::default()
    };
    let script = Script::good().settings(settings).window_updates(false);
    let peer = Peer::start(script).unwrap();
    let pool = pool(BalanceConfig::fixed(1), [peer.uri()]);
    let (send, idle) = tokio::sync::mpsc::channel(1);
    let idle = tokio_stream::wrappers::ReceiverStream::new(idle);
    let mut client = EchoClient::new(pool.clone());
    let idle = tokio::spawn(async move { client.client_stream(idle).await });
    let opened = peer.wait_until(HANG, |seen| seen.requests.len() == 1);
    opened.await.unwrap();
    let mut client = EchoClient::new(pool.clone());
    let upload = tokio::spawn(async move { client.unary(request(400 * 1024)).await });
    for used_up in 1..=6 {
        let whole = peer.wait_until(HANG, |seen| {
            seen.connections[0].data_received == used_up * WINDOW
        });
        whole.await.unwrap();
        let update = Step::Frame {
            kind: WINDOW_UPDATE,
            flags: 0,
            stream: Some(0),
            payload: Bytes::copy_from_slice(&(WINDOW as u32).to_be_bytes()),
        };
        assert!(peer.inject(0, [update]).await);
    }
    soon("the upload", upload).await.unwrap().unwrap();
    send.send(request(100)).await.unwrap();
    drop(send);
    soon("the idle one", idle).await.unwrap().unwrap();
}

/// B2: a fast server beside one that takes twenty times as long, and callers that call one after another:
/// each server's share follows what it can do, without anybody failing.
#[tokio::test]
async fn shares_follow_the_speed_of_the_members() {
    let server = |millis| {
        let answer = Answer::steps([
            Step::AwaitRequest,
            Step::Wait(Duration::from_millis(millis)),
            Step::headers(),
            Step::good_message(),
            Step::status(0, ""),
        ]);
        Peer::start(Script::always(answer)).unwrap()
    };
    let (fast, slow) = (server(5), server(100));
    let pool = pool(BalanceConfig::fixed(2), [fast.uri(), slow.uri()]);
    soon("warming", pool.warm(2)).await.unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let mut client = EchoClient::new(pool.clone());
        callers.spawn(async move {
            for _ in 0..50 {
                client.unary(EchoRequest::default()).await.unwrap();
            }
        });
    }
    while let Some(done) = soon("a caller", callers.join_next()).await {
        done.unwrap();
    }
    let (fast, slow) = (fast.requests().len(), slow.requests().len());
    assert_eq!(fast + slow, 400);
    assert!(fast >= 5 * slow, "{fast} and {slow}");
    assert!(slow > 0, "it is used all the same");
}

/// B3, B4, B8: two streams a connection, and ten long streams at once: the pool opens more channels, all
/// ten are served at the same time, and an eleventh call of another kind too.
#[tokio::test]
async fn long_streams_at_a_limit_of_two_open_more_channels() {
    let answer = Answer::steps([
        Step::AwaitRequest,
        Step::headers(),
        Step::good_message(),
        Step::Hold,
        Step::status(0, ""),
    ]);
    let peer = Peer::start(Script::always(answer).settings(limit(2))).unwrap();
    let pool = pool(BalanceConfig::default(), [peer.uri()]);
    let mut opening = JoinSet::new();
    for _ in 0..10 {
        let mut client = EchoClient::new(pool.clone());
        opening.spawn(async move {
            let mut stream = client.server_stream(request(1)).await.unwrap().into_inner();
            stream.next().await.unwrap().unwrap();
            stream
        });
    }
    let mut streams = Vec::new();
    while let Some(stream) = soon("a stream", opening.join_next()).await {
        streams.push(stream.unwrap());
    }
    assert!(
        peer.connections() >= 5,
        "{} connections",
        peer.connections()
    );
    let open = peer.open_streams_per_connection();
    assert!(open.iter().all(|streams| *streams <= 2), "{open:?}");
    peer.release_all();
    for mut stream in streams {
        assert!(soon("its end", stream.next()).await.is_none());
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
}
