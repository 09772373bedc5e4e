//! Retry over real connections: replies that break off, servers that lie, and what callers of a generated
//! client get in the end.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use steadfast::{
    Balance, BalanceConfig, BalanceLayer, Egress, EgressChannel, EgressConfig, Outcome,
    classify::body_error,
};
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use steadfast_retry::{
    DeadlineBody, DeadlineLayer, Deadlined, Kind, Progress, Retry, RetryConfig, RetryLayer,
};
use steadfast_testkit::peer::{Answer, Peer, Script, Step};
use steadfast_tests::soon;
use tokio::task::JoinSet;
use tonic::{Code, Request, Response, Status, transport::Endpoint};
use tower::{Layer, ServiceBuilder};

const UNARY: &str = "/steadfast.test.Echo/Unary";
const STREAM: &str = "/steadfast.test.Echo/ServerStream";

type Pool = Deadlined<Retry<Balance<EgressChannel>>>;

fn layer(change: impl FnOnce(&mut RetryConfig)) -> RetryLayer {
    let mut config = RetryConfig::default();
    change(&mut config);
    let layer = RetryLayer::new(config).unwrap();
    let layer = layer.idempotent(UNARY, Kind::Held).unwrap();
    layer.idempotent(STREAM, Kind::Streaming).unwrap()
}

/// A whole stack: deadlines, retries, and a pool of two channels to the peer.
async fn pool(peer: &Peer, retry: RetryLayer) -> Pool {
    pool_of(2, peer, retry).await
}

async fn pool_of(channels: usize, peer: &Peer, retry: RetryLayer) -> Pool {
    let endpoint = Endpoint::from_shared(peer.uri()).unwrap();
    let balance = BalanceLayer::new(BalanceConfig::fixed(channels)).unwrap();
    let balance = balance.layer(Egress::new(endpoint, EgressConfig::default()).unwrap());
    soon("warming", balance.warm(channels)).await.unwrap();
    let layers = ServiceBuilder::new().layer(DeadlineLayer::default());
    layers.layer(retry).service(balance)
}

/// The same, old enough to lose connections: one that is lost within its first second is taken for a dial
/// that failed.
async fn old_pool(peer: &Peer, retry: RetryLayer) -> Pool {
    let pool = pool(peer, retry).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    pool
}

async fn unary(pool: &Pool) -> Result<Response<EchoReply>, Status> {
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(EchoRequest::default())).await
}

/// The messages of a stream, and how it ended.
async fn stream(pool: &Pool) -> (usize, Result<(), Status>) {
    let mut client = EchoClient::new(pool.clone());
    let mut messages = 0;
    let read = async {
        let mut stream = client
            .server_stream(EchoRequest::default())
            .await?
            .into_inner();
        while stream.message().await?.is_some() {
            messages += 1;
        }
        Ok(())
    };
    let ended = soon("a stream", read).await;
    (messages, ended)
}

/// The first `bad` requests get these steps for an answer, all others a good one.
fn at_first(bad: u64, steps: &[Step]) -> Peer {
    let steps = steps.to_vec();
    let answer = move |request: &steadfast_testkit::peer::Request| {
        if request.order >= bad {
            return Answer::good();
        }
        let steps = [Step::AwaitRequest].into_iter().chain(steps.clone());
        Answer::steps(steps)
    };
    Peer::start(Script::new(answer)).unwrap()
}

fn fields(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    fields.iter().map(owned).collect()
}

fn half_a_message(end: bool) -> Step {
    let bytes = Bytes::from_static(b"\0\0\0\0\x05\x0a");
    Step::Data { bytes, end }
}

/// T2: whatever a connection does to a call of an idempotent method, twice, before its reply is whole: the
/// caller gets the reply. A stream too, as long as no message of it came. A method that isn't named fails.
#[tokio::test]
async fn broken_replies_are_fetched_anew() {
    let end = Step::Data {
        bytes: Bytes::new(),
        end: true,
    };
    let message = || vec![Step::headers(), Step::good_message()];
    let before: [(&str, Vec<Step>); 6] = [
        ("FIN", vec![Step::Fin]),
        ("TCP reset", vec![Step::TcpReset]),
        ("RST 2", vec![Step::Rst(2)]),
        ("RST 8", vec![Step::Rst(8)]),
        ("FIN after the head", vec![Step::headers(), Step::Fin]),
        ("RST after the head", vec![Step::headers(), Step::Rst(2)]),
    ];
    let after: [(&str, Vec<Step>); 6] = [
        ("FIN after a message", [message(), vec![Step::Fin]].concat()),
        (
            "RST after a message",
            [message(), vec![Step::Rst(2)]].concat(),
        ),
        ("no trailers", [message(), vec![end]].concat()),
        (
            "trailers without a status",
            [message(), vec![Step::Trailers(fields(&[("x-end", "1")]))]].concat(),
        ),
        (
            "half a message",
            vec![Step::headers(), half_a_message(true)],
        ),
        (
            "half a message and OK",
            vec![Step::headers(), half_a_message(false), Step::status(0, "")],
        ),
    ];
    let mut rows = JoinSet::new();
    let before = before.map(|(what, steps)| (what, steps, true));
    for (what, steps, streams) in before.into_iter().chain(after.map(|(w, s)| (w, s, false))) {
        rows.spawn(async move {
            let peer = at_first(2, &steps);
            let reply = unary(&old_pool(&peer, layer(|_| {})).await).await;
            assert!(reply.is_ok(), "{what}: {reply:?}");
            assert_eq!(peer.requests().len(), 3, "{what}");
            if streams {
                let peer = at_first(2, &steps);
                let (messages, ended) = stream(&old_pool(&peer, layer(|_| {})).await).await;
                assert!(
                    ended.is_ok() && messages == 1,
                    "{what}: {messages}, {ended:?}"
                );
            }
            let peer = at_first(1, &steps);
            let reply = unary(&old_pool(&peer, RetryLayer::default()).await).await;
            assert!(reply.is_err(), "{what}");
            assert_eq!(peer.requests().len(), 1, "{what}");
        });
    }
    rows.join_all().await;
}

/// T3: a server that sends 60 % and resets, three times, with 4 attempts: the bytes are exact, what was
/// delivered counts once, what was received 2.8 times.
#[tokio::test]
async fn what_a_failed_attempt_delivered_is_taken_back() {
    let payload: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let message = prost::Message::encode_to_vec(&EchoReply {
        payload: payload.clone(),
        index: 0,
    });
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let framed = Bytes::from([&[0], &length[..], &message].concat());
    let part = framed.len() * 6 / 10;
    let answer = {
        let framed = framed.clone();
        move |request: &steadfast_testkit::peer::Request| {
            let (bytes, last) = if request.order < 3 {
                (framed.slice(..part), Step::Rst(2))
            } else {
                (framed.clone(), Step::status(0, ""))
            };
            let data = Step::Data { bytes, end: false };
            // A reset overtakes data that the client hasn't read: it waits a little.
            let wait = Step::Wait(Duration::from_millis(200));
            Answer::steps([Step::AwaitRequest, Step::headers(), data, wait, last])
        }
    };
    let peer = Peer::start(Script::new(answer)).unwrap();
    let pool = pool(&peer, layer(|config| config.attempts = 4)).await;
    let progress = Progress::new();
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(progress.clone());
    let mut client = EchoClient::new(pool);
    let reply = soon("the call", client.unary(request)).await.unwrap();
    assert!(reply.into_inner().payload == payload, "the bytes are exact");
    assert_eq!(progress.delivered(), framed.len() as u64);
    assert_eq!(progress.received(), (framed.len() + 3 * part) as u64);
    assert_eq!(peer.requests().len(), 4);
}

/// X6: details that are no base64 make tonic panic in its caller. Through the stack they don't, in headers and
/// in trailers, of every kind of method; without it they do.
#[tokio::test]
async fn details_that_are_no_base64() {
    let bad = fields(&[("grpc-status", "13"), ("grpc-status-details-bin", "%%%")]);
    let in_headers = Step::Headers {
        status: 200,
        fields: bad.clone(),
        end: true,
    };
    let answers = [
        vec![in_headers],
        vec![Step::headers(), Step::Trailers(bad.clone())],
        vec![Step::headers(), Step::good_message(), Step::Trailers(bad)],
    ];
    for steps in answers {
        for retry in [
            layer(|_| {}),
            RetryLayer::default(),
            layer(|c| c.enabled = false),
        ] {
            let peer = at_first(u64::MAX, &steps);
            let pool = pool(&peer, retry).await;
            let status = unary(&pool).await.unwrap_err();
            assert_eq!(
                (status.code(), status.details()),
                (Code::Internal, &b""[..])
            );
            let (_, ended) = stream(&pool).await;
            assert_eq!(ended.unwrap_err().code(), Code::Internal);
        }
        let peer = at_first(u64::MAX, &steps);
        let channel = Endpoint::from_shared(peer.uri())
            .unwrap()
            .connect()
            .await
            .unwrap();
        let call = async move {
            let mut client = EchoClient::new(channel);
            client.unary(EchoRequest::default()).await
        };
        let ended = soon("the call", tokio::spawn(call)).await;
        assert!(ended.unwrap_err().is_panic(), "tonic panics no longer");
    }
}

/// T5: the error of a generated client has the deepest source, how often the call was sent and on which
/// channels in its text; its sources still tell what happened; and it isn't a status of the server's.
#[tokio::test]
async fn the_error_of_a_generated_client() {
    let peer = at_first(u64::MAX, &[Step::TcpReset]);
    let pool = old_pool(&peer, layer(|_| {})).await;
    let status = unary(&pool).await.unwrap_err();
    let text = status.message();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(text.contains("after 3 attempts on channel #"), "{text}");
    assert!(
        text.contains("os error") || text.contains("reset") || text.contains("pipe"),
        "{text}"
    );
    assert_eq!(body_error(&status), Outcome::ConnectionLost);
    assert!(status.source().is_some());
    let peer = at_first(u64::MAX, &[Step::trailers_only(14, "gone")]);
    let status = unary(&self::pool(&peer, layer(|_| {})).await)
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "gone")
    );
    assert!(status.source().is_none(), "the server said it");
    assert_eq!(peer.requests().len(), 1);
}

/// M1: a deadline that tonic's transport knows as well ends as DEADLINE_EXCEEDED, whoever is first; tonic
/// alone says that it was cancelled.
#[tokio::test]
async fn a_deadline_is_no_cancel() {
    let peer = Peer::start(Script::ping_only()).unwrap();
    let pool = pool(&peer, layer(|_| {})).await;
    for _ in 0..20 {
        let mut request = Request::new(EchoRequest::default());
        request.set_timeout(Duration::from_millis(20));
        let mut client = EchoClient::new(pool.clone());
        let status = soon("a call", client.unary(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(status.message().contains("phase: headers"), "{status}");
    }
}

/// T2: a message over the caller's limit is the caller's to know: it isn't sent again, and a reply over the
/// limit of what is kept goes through.
#[tokio::test]
async fn large_messages() {
    let peer = Peer::start(Script::big(5 << 20)).unwrap();
    let pool = pool(&peer, layer(|_| {})).await;
    let status = unary(&pool).await.unwrap_err();
    assert_eq!(
        (status.code(), peer.requests().len()),
        (Code::OutOfRange, 1)
    );
    let mut client = EchoClient::new(pool).max_decoding_message_size(8 << 20);
    let reply = soon("a call", client.unary(EchoRequest::default()))
        .await
        .unwrap();
    assert_eq!(reply.into_inner().payload.len(), 5 << 20);
    assert_eq!(peer.requests().len(), 2);
}

/// T1, T2: a load balancer that forgot an idle connection resets the next call on it. It may have been
/// processed, so only an idempotent one is repeated.
#[tokio::test]
async fn a_load_balancer_forgets_an_idle_connection() {
    for idempotent in [false, true] {
        let idle = Duration::from_millis(300);
        let peer = Peer::start(Script::forgotten(idle)).unwrap();
        let retry = if idempotent {
            layer(|_| {})
        } else {
            RetryLayer::default()
        };
        let pool = pool_of(1, &peer, retry).await;
        // A connection that is lost within its first second is taken for a dial that failed.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        unary(&pool).await.unwrap();
        let forgotten = |seen: &steadfast_testkit::peer::PeerState| {
            let forgotten = |one: &steadfast_testkit::peer::Connection| one.forgotten;
            seen.connections.iter().take(1).all(forgotten)
        };
        peer.wait_until(steadfast_tests::HANG, forgotten)
            .await
            .unwrap();
        let reply = unary(&pool).await;
        assert_eq!(reply.is_ok(), idempotent, "{reply:?}");
    }
}

/// X1: what a generated client needs of the stack's types: they can be named, sent and spawned.
#[test]
fn types_can_be_named() {
    fn is_send<T: Send>() {}
    is_send::<Pool>();
    is_send::<<Pool as tower::Service<http::Request<tonic::body::Body>>>::Future>();
    is_send::<DeadlineBody<tonic::body::Body>>();
}
