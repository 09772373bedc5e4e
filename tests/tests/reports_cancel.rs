//! Calls that their callers give up: what the server is told, and what it costs the neighbours.

use std::time::Duration;

use steadfast::{Attempt, BalanceConfig, Config, Outcome, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Last, Peer, Script, Settings, Step};
use steadfast_tests::{
    HANG,
    echo::EchoProcess,
    soon,
    tap::{Sent, tap},
};
use tokio_stream::StreamExt;
use tonic::Request;

const CANCEL: u32 = 8;
const STREAM: &str = "/steadfast.test.Echo/ServerStream";

fn pool(channels: usize, uri: String) -> Pool {
    let config = Config {
        balance: BalanceConfig::fixed(channels),
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(uri).config(config);
    builder.without_env().build().unwrap()
}

/// B1: a client-streaming call is given up half-way: the server is told by RST_STREAM(CANCEL), and never
/// by an end of the stream, which would make half an upload look whole.
#[tokio::test]
async fn half_an_upload_is_reset_and_never_ended() {
    const RST_STREAM: u8 = 3;
    const END_STREAM: u8 = 1;
    let peer = Peer::start(Script::good()).unwrap();
    let (uri, frames) = tap(peer.addr()).await;
    let pool = pool(1, uri);
    let upload = tokio_stream::iter(vec![
        EchoRequest {
            payload: vec![7; 1_000],
            ..EchoRequest::default()
        };
        3
    ]);
    let upload = upload.chain(tokio_stream::pending());
    let mut client = EchoClient::new(pool.clone());
    let call = tokio::spawn(async move { client.client_stream(upload).await });
    let came = peer.wait_until(HANG, |seen| {
        let received = seen.connections.iter().map(|c| c.data_received);
        received.sum::<u64>() > 3_000
    });
    came.await.unwrap();
    assert_eq!(pool.snapshot().in_flight(), 1);
    call.abort();
    let reset = peer.wait_until(HANG, |seen| !seen.resets.is_empty());
    reset.await.unwrap();
    assert_eq!(peer.resets()[0].code, CANCEL);
    // The connection goes on serving; its own unary call does end its stream.
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(EchoRequest::default()))
        .await
        .unwrap();
    let upload = peer.resets()[0].stream;
    let frames = frames.lock().unwrap();
    let of_upload: Vec<_> = frames
        .iter()
        .filter(|frame| frame.stream == upload)
        .collect();
    assert_eq!(of_upload.last().unwrap().kind, RST_STREAM, "{of_upload:?}");
    // HEADERS or DATA that end the stream.
    let ends = |frame: &&Sent| frame.kind <= 1 && frame.flags & END_STREAM != 0;
    assert_eq!(of_upload.iter().filter(|f| ends(f)).count(), 0);
    assert!(frames.iter().any(|frame| ends(&frame)), "the unary call");
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// B1: a call that is given up while the server's window lets no byte of its request through: the server
/// is told all the same, and nothing is left in flight.
#[tokio::test]
async fn a_cancel_without_a_window_is_sent() {
    let settings = Settings {
        initial_window: Some(0),
        ..Settings::default()
    };
    let peer = Peer::start(Script::good().settings(settings)).unwrap();
    let pool = pool(1, peer.uri());
    let request = EchoRequest {
        payload: vec![7; 1_000],
        ..EchoRequest::default()
    };
    let mut client = EchoClient::new(pool.clone());
    let call = tokio::spawn(async move { client.unary(request).await });
    let came = peer.wait_until(HANG, |seen| seen.requests.len() == 1);
    came.await.unwrap();
    call.abort();
    let reset = peer.wait_until(HANG, |seen| !seen.resets.is_empty());
    reset.await.unwrap();
    assert_eq!(peer.resets()[0].code, CANCEL);
    assert_eq!(peer.inspect(|seen| seen.connections[0].data_received), 0);
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// B2, B6, P1, P2: a server that allows 20 resets on a connection and ends it with GOAWAY
/// ENHANCE_YOUR_CALM after that. 50 calls that are given up at once on four channels are few enough on
/// each; 200 are not, and then each connection is replaced by one dial. The cancelled calls blame
/// nobody; a neighbour that was cut is told so.
#[tokio::test]
async fn a_storm_of_cancels_at_a_server_with_a_limit() {
    let answer = |request: &steadfast_testkit::peer::Request| {
        if request.path == STREAM {
            return Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()]);
        }
        if request.header("x-id") == Some("good") {
            return Answer::good();
        }
        // The stream of index 0 is the neighbour's; the resets come in any order, the last one decides.
        match request.index {
            21.. => Answer::silence().after_reset([Step::goaway(11, Last::Highest), Step::Fin]),
            _ => Answer::silence(),
        }
    };
    let peer = Peer::start(Script::new(answer)).unwrap();
    let pool = pool(4, peer.uri());
    soon("warming", pool.warm(4)).await.unwrap();
    let mut neighbours = Vec::new();
    for _ in 0..4 {
        let (mut client, attempt) = (EchoClient::new(pool.clone()), Attempt::new());
        let mut request = Request::new(EchoRequest::default());
        request.extensions_mut().insert(attempt.clone());
        let opened = client.server_stream(request).await;
        let mut stream = opened.unwrap().into_inner();
        stream.message().await.unwrap();
        neighbours.push((stream, attempt));
    }
    for (storm, replaced) in [(50, 0), (200, 4)] {
        let before = peer.requests().len();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..storm {
            let mut client = EchoClient::new(pool.clone());
            calls.spawn(async move { client.unary(EchoRequest::default()).await });
        }
        let came = peer.wait_until(HANG, |seen| seen.requests.len() == before + storm);
        came.await.unwrap();
        let open = peer.open_streams_per_connection();
        let (most, least) = (open.iter().max().unwrap(), open.iter().min().unwrap());
        assert!(most - least <= 1, "spread: {open:?}");
        calls.shutdown().await;
        let dialled = peer.wait_until(HANG, |seen| {
            seen.connections.len() >= 4 + replaced && seen.open_connections() == 4
        });
        dialled.await.unwrap();
    }
    for (mut stream, attempt) in neighbours {
        soon("its end", stream.message()).await.unwrap_err();
        let outcome = attempt.outcome().unwrap();
        let cut = [Outcome::GoAway(11), Outcome::ConnectionLost];
        assert!(cut.contains(&outcome), "{outcome}");
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
    soon("warming", pool.warm(4)).await.unwrap();
    for _ in 0..20 {
        let mut client = EchoClient::new(pool.clone());
        let mut request = Request::new(EchoRequest::default());
        request
            .metadata_mut()
            .insert("x-id", "good".parse().unwrap());
        soon("a call", client.unary(request)).await.unwrap();
    }
    assert_eq!(peer.connections(), 8, "one dial for each that went");
}

/// B1, B6: 2,000 calls that are given up while a real server answers them, in waves: whatever its limits
/// say, calls after them are served, dials stay few, and nothing is left in flight.
#[tokio::test]
async fn a_storm_of_cancels_at_a_real_server() {
    let echo = EchoProcess::start().await;
    let pool = pool(4, echo.uri());
    let slow = EchoRequest {
        delay_ms: 50,
        ..EchoRequest::default()
    };
    for _ in 0..4 {
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..500_u64 {
            let (mut client, slow) = (EchoClient::new(pool.clone()), slow.clone());
            calls.spawn(async move {
                let after = Duration::from_millis(n % 20);
                let _ = tokio::time::timeout(after, client.unary(slow)).await;
            });
        }
        while let Some(done) = soon("a cancel", calls.join_next()).await {
            done.unwrap();
        }
        assert_eq!(pool.snapshot().in_flight(), 0);
    }
    // A server may have ended young connections for it: they come back after the back-off.
    soon("all of them again", pool.warm(4)).await.unwrap();
    let mut served = 0;
    for _ in 0..50 {
        let mut client = EchoClient::new(pool.clone());
        served += usize::from(
            soon("a call", client.unary(EchoRequest::default()))
                .await
                .is_ok(),
        );
    }
    assert_eq!(served, 50);
    assert_eq!(pool.penalty().snapshot().len(), 0);
}
