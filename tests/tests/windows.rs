//! Responses that nobody reads: what they take from the others on their connection.

use std::time::Duration;

use http_body_util::BodyExt;
use steadfast::{BalanceConfig, Config, Pool};
use steadfast_testkit::peer::{Peer, Script};
use steadfast_tests::soon;
use tonic::{body::Body, transport::Endpoint};
use tower::{Service, ServiceExt};

fn request() -> http::Request<Body> {
    let builder = http::Request::post("http://steadfast.test/steadfast.test.Echo/ServerStream");
    let builder = builder
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    builder.body(Body::empty()).unwrap()
}

/// E1: three unread responses of 3 MiB each on a pool of one channel: a 5-byte answer comes without them
/// being read.
#[tokio::test]
async fn unread_responses_block_nobody() {
    let peer = Peer::start(Script::flow()).unwrap();
    let config = Config {
        balance: BalanceConfig::fixed(1),
        ..steadfast_tests::lower_layers()
    };
    let pool = Pool::builder(peer.uri()).config(config).build().unwrap();
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(
            soon("a head", pool.clone().oneshot(request()))
                .await
                .unwrap(),
        );
    }
    let small = async {
        let response = pool.clone().oneshot(request()).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    let bound = Duration::from_secs(5);
    let answer = tokio::time::timeout(bound, small)
        .await
        .expect("within five seconds");
    assert_eq!(answer.len(), 5 + 5, "five bytes behind their prefix");
    assert_eq!(pool.snapshot().in_flight(), 3);
}

/// Control: with tonic's default windows the three fill the connection, and the small answer doesn't come.
#[tokio::test]
async fn on_tonics_default_windows_they_block_everybody() {
    let peer = Peer::start(Script::flow()).unwrap();
    let channel = Endpoint::from_shared(peer.uri())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(
            soon("a head", channel.clone().oneshot(request()))
                .await
                .unwrap(),
        );
    }
    let mut channel = channel.clone();
    let small = async move {
        channel.ready().await.unwrap();
        let response = channel.call(request()).await.unwrap();
        response.into_body().collect().await.unwrap();
    };
    let small = tokio::spawn(small);
    // The server has sent all that the connection's window allows: 5 MiB, hyper's default.
    let full = |seen: &steadfast_testkit::peer::PeerState| seen.connections[0].data_sent >= 5 << 20;
    peer.wait_until(steadfast_tests::HANG, full).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), small).await;
    assert!(ended.is_err(), "it is still pending after five seconds");
}
