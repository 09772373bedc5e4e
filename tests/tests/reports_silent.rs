//! Connections that fall silent: what today's layers do about them. Keepalive ends a connection whose peer
//! answers nothing at all; the pool replaces it.

use std::time::Duration;

use steadfast::{
    Attempt, BalanceConfig, Config, Connectivity, EgressConfig, Keepalive, Outcome, Pool,
};
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Peer, Script, Step};
use steadfast_tests::{HANG, soon};
use tonic::{Request, Response, Status};

/// The first connection answers once and then falls silent for good, also to PINGs; later ones are good.
/// A request on `ServerStream` gets headers and a message before that.
fn deaf_then_good() -> Peer {
    let answer = |request: &steadfast_testkit::peer::Request| match request.path.as_str() {
        "/steadfast.test.Echo/ServerStream" => {
            Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()])
        }
        _ if request.index < 2 => Answer::good(),
        _ => Answer::silence(),
    };
    Peer::scripted(move |connection| match connection {
        0 => Script::new(answer).deaf_after(1),
        _ => Script::good(),
    })
    .unwrap()
}

/// One channel, with a keepalive that is short so that the test is.
fn pool(peer: &Peer) -> Pool {
    let keepalive = Keepalive::new(Duration::from_millis(150), Duration::from_millis(250));
    let config = Config {
        balance: BalanceConfig::fixed(1),
        egress: EgressConfig::default().with_keepalive(keepalive),
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(peer.uri()).config(config);
    builder.without_env().build().unwrap()
}

async fn unary(pool: &Pool, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(request)).await
}

fn request(attempt: &Attempt) -> Request<EchoRequest> {
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    request
}

async fn ready_again(pool: &Pool, peer: &Peer) {
    let dialled = peer.wait_until(HANG, |seen| seen.connections.len() >= 2);
    dialled.await.unwrap();
    let mut connectivity = pool.connectivity();
    let ready = connectivity.wait_for(|now| *now == Connectivity::Ready);
    soon("the replacement", ready).await.unwrap();
}

/// E1, E4, B6: a long stream and a unary call, neither with a deadline, on a connection whose peer falls
/// silent: keepalive ends both, as a lost connection, and the pool dials one replacement, which serves.
#[tokio::test]
async fn keepalive_ends_a_stream_and_a_call_without_deadlines() {
    let peer = deaf_then_good();
    let pool = pool(&peer);
    let (stream, call) = (Attempt::new(), Attempt::new());
    let opened = EchoClient::new(pool.clone())
        .server_stream(request(&stream))
        .await;
    let mut messages = opened.unwrap().into_inner();
    soon("its message", messages.message()).await.unwrap();
    unary(&pool, request(&Attempt::new())).await.unwrap();
    let (unary_end, stream_end) = tokio::join!(
        unary(&pool, request(&call)),
        soon("the stream's end", messages.message()),
    );
    unary_end.unwrap_err();
    stream_end.unwrap_err();
    assert_eq!(call.outcome(), Some(Outcome::ConnectionLost));
    assert_eq!(stream.outcome(), Some(Outcome::ConnectionLost));
    ready_again(&pool, &peer).await;
    unary(&pool, request(&Attempt::new())).await.unwrap();
    assert_eq!(peer.connections(), 2, "one replacement");
    assert_eq!(pool.snapshot().size(), 1);
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// P2, B6: 200 callers whose own deadlines pass on a silent connection make no dial, for it is not known
/// to be dead. When keepalive tells that it is, exactly one replacement is dialled.
#[tokio::test]
async fn two_hundred_timeouts_dial_one_replacement() {
    let peer = deaf_then_good();
    let pool = pool(&peer);
    // On the first connection index 0 and 1 are good, and then nothing is.
    unary(&pool, request(&Attempt::new())).await.unwrap();
    // One that has all the time in the world keeps a stream open, which keepalive needs to see anything.
    let patient = tokio::spawn({
        let pool = pool.clone();
        async move { unary(&pool, request(&Attempt::new())).await }
    });
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (pool, attempt) = (pool.clone(), Attempt::new());
        let mut call = request(&attempt);
        call.set_timeout(Duration::from_millis(50));
        calls.spawn(async move {
            unary(&pool, call).await.unwrap_err();
            attempt.outcome()
        });
    }
    while let Some(outcome) = soon("a time-out", calls.join_next()).await {
        // The layer of deadlines ends the call, or tonic does in the same millisecond.
        assert!(matches!(
            outcome.unwrap(),
            Some(Outcome::Timeout | Outcome::Dropped)
        ));
    }
    assert_eq!(pool.penalty().snapshot().len(), 0, "nobody is blamed");
    patient.await.unwrap().unwrap_err();
    ready_again(&pool, &peer).await;
    for _ in 0..20 {
        unary(&pool, request(&Attempt::new())).await.unwrap();
    }
    assert_eq!(peer.connections(), 2, "one replacement");
}

/// E1: the same peer without keepalive: nothing ends the call, and only its own deadline does. This is why
/// keepalive is on by default.
#[tokio::test]
async fn without_keepalive_nothing_ends_them() {
    let peer = deaf_then_good();
    let config = Config {
        balance: BalanceConfig::fixed(1),
        egress: EgressConfig::default().with_keepalive(None),
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(peer.uri()).config(config);
    let pool = builder.without_env().build().unwrap();
    unary(&pool, request(&Attempt::new())).await.unwrap();
    let mut client = EchoClient::new(pool.clone());
    let call = client.unary(EchoRequest::default());
    // Nothing tells that nothing happens: five times what keepalive took above.
    let ended = tokio::time::timeout(Duration::from_secs(2), call).await;
    assert!(ended.is_err(), "it is still pending");
    assert_eq!(peer.connections(), 1);
    assert_eq!(pool.snapshot().in_flight(), 0, "the caller went away");
}
