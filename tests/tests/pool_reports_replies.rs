//! What people reported of replies that are too large, and of connections that somebody on the way has
//! forgotten, with a whole pool above.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Connection, Peer, PeerState, Request, Script, Step, Trail};
use steadfast_tests::{
    HANG, soon,
    whole::{HEALTH, UNARY, builder, quick, ready, unary, until},
};
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tonic::{Code, body::Body, codec::CompressionEncoding};
use tower::{Service, ServiceExt};

/// A connection that is lost within its first second is taken for a dial that failed.
const YOUNG: Duration = Duration::from_millis(1_100);
const MIB: usize = 1 << 20;

/// T2, P2: a message over what the caller takes, plain, or small on the wire and large unpacked: its method is
/// idempotent, and yet it is sent once, the caller is told, and no channel pays for it. With a larger limit
/// the same reply comes through, also over the limit of what is kept for repetition.
#[tokio::test]
async fn a_message_over_the_limit_is_the_callers_affair() {
    let rows = [
        (Script::big(5 * MIB), Code::OutOfRange),
        // tonic's own code, which a server would be made to pay for.
        (Script::zip_bomb(5 * MIB), Code::ResourceExhausted),
    ];
    for (script, code) in rows {
        let peer = Peer::start(script).unwrap();
        let pool = ready(builder(&[peer.uri()], quick(2)), 2).await;
        let warm = peer.requests().len();
        let client = EchoClient::new(pool.clone());
        let mut client = client.accept_compressed(CompressionEncoding::Gzip);
        let call = soon("a call", client.unary(EchoRequest::default())).await;
        assert_eq!(call.unwrap_err().code(), code);
        let opened = soon("a head", client.server_stream(EchoRequest::default())).await;
        let mut stream = opened.unwrap().into_inner();
        let message = soon("a message", stream.message()).await;
        assert_eq!(message.unwrap_err().code(), code);
        drop(stream);
        let mut client = client.max_decoding_message_size(8 * MIB);
        let reply = soon("a call", client.unary(EchoRequest::default())).await;
        assert_eq!(reply.unwrap().into_inner().payload.len(), 5 * MIB);
        assert_eq!(peer.requests().len(), warm + 3, "each once");
        assert_eq!(pool.retry().snapshot().repeated, 0);
        assert!(pool.penalty().snapshot().is_empty());
        assert_eq!(pool.snapshot().in_flight(), 0);
    }
}

/// T2: a load balancer has forgotten the connections that were idle, and answers the next packet with a reset.
/// The first call of an idempotent method is repeated, on a connection that is new, and nobody notices; a
/// write fails, once, for it may have been processed, and the next one is fine.
#[tokio::test]
async fn idle_connections_that_were_forgotten_cost_one_write() {
    for write in [false, true] {
        let idle = Duration::from_millis(300);
        let peer = Peer::start(Script::forgotten(idle)).unwrap();
        let pool = ready(builder(&[peer.uri()], quick(1)), 1).await;
        let mut client = EchoClient::new(pool.clone());
        let mut call = async || {
            if write {
                let upload = tokio_stream::once(EchoRequest::default());
                return soon("a write", client.client_stream(upload))
                    .await
                    .map(drop);
            }
            unary(&pool).await.map(drop)
        };
        call().await.unwrap();
        sleep(YOUNG).await;
        let forgotten = |seen: &PeerState| {
            let forgotten = |it: &Connection| it.forgotten;
            seen.connections.iter().all(forgotten)
        };
        peer.wait_until(HANG, forgotten).await.unwrap();
        assert_eq!(call().await.is_err(), write);
        call().await.unwrap();
        let calls = |seen: &PeerState| seen.requests.iter().filter(|it| it.path != HEALTH).count();
        // The reset takes the call with it before the peer has read it.
        assert_eq!(peer.inspect(calls), if write { 2 } else { 3 });
        assert_eq!(pool.retry().snapshot().repeated, u64::from(!write));
    }
}

/// T2: a reply that is reset after its head, with an error, or with NO_ERROR, which looks to hyper like an end:
/// an idempotent call is repeated as often as it has attempts, a write never.
#[tokio::test]
async fn replies_that_break_off_are_repeated_for_idempotent_calls_only() {
    for (breaks, code) in [(1, 2), (2, 0), (3, 2), (3, 0)] {
        let broken = [Step::AwaitRequest, Step::headers(), Step::Rst(code)];
        let answer = move |request: &Request| match &*request.path {
            HEALTH => Answer::good(),
            // Those before it are the warm-ups of three channels.
            UNARY if request.order >= 3 + breaks => Answer::good(),
            _ => Answer::steps(broken.clone()),
        };
        let peer = Peer::start(Script::new(answer)).unwrap();
        let pool = ready(builder(&[peer.uri()], quick(3)), 3).await;
        let read = unary(&pool).await;
        assert_eq!(read.is_ok(), breaks < 3, "{breaks}: {read:?}");
        assert_eq!(pool.retry().snapshot().repeated, breaks.min(2));
        let before = peer.requests().len();
        let mut client = EchoClient::new(pool.clone());
        let upload = tokio_stream::once(EchoRequest::default());
        let write = soon("a write", client.client_stream(upload)).await;
        write.unwrap_err();
        assert_eq!(peer.requests().len(), before + 1);
    }
}

/// B1, T4: uploads that the server answers after their first message, with a RST_STREAM(NO_ERROR) behind it
/// (RFC 9113, section 8.1): each caller has its answer, no layer keeps an upload or sends one again, and
/// nothing stays in flight.
#[tokio::test]
async fn early_answers_leave_no_upload_behind() {
    let answer = |request: &Request| match &*request.path {
        HEALTH => Answer::good(),
        _ => Answer::steps([
            Step::headers(),
            Step::good_message(),
            Step::status(0, ""),
            Step::Rst(0),
        ]),
    };
    let peer = Peer::start(Script::new(answer)).unwrap();
    let pool = ready(builder(&[peer.uri()], quick(2)), 2).await;
    let alive = Arc::new(());
    for _ in 0..100 {
        let owned = Arc::clone(&alive);
        let first = tokio_stream::once(EchoRequest::default());
        // Never ends, and owns something.
        let rest = tokio_stream::pending().map(move |request: EchoRequest| {
            assert!(Arc::strong_count(&owned) > 0);
            request
        });
        let mut client = EchoClient::new(pool.clone());
        let reply = soon("a call", client.client_stream(first.chain(rest))).await;
        assert_eq!(reply.unwrap().into_inner().payload, b"abc");
    }
    until("the uploads' ends", || Arc::strong_count(&alive) == 1).await;
    assert_eq!(peer.requests().len(), 2 + 100);
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert!(pool.penalty().snapshot().is_empty());
}

/// X6, S2: a server that answers everything, warm-ups too, with details that are no base64, on which tonic
/// panics in its caller: the warm-up is answered, and callers get the status.
#[tokio::test]
async fn details_that_are_no_base64_hurt_nobody() {
    let peer = Peer::start(Script::trail(Trail::BadDetails)).unwrap();
    let pool = ready(builder(&[peer.uri()], quick(2)), 2).await;
    let call = unary(&pool).await;
    assert_eq!(call.unwrap_err().code(), Code::Internal);
    let mut client = EchoClient::new(pool);
    let opened = soon("a head", client.server_stream(EchoRequest::default())).await;
    let end = match opened {
        Ok(stream) => soon("an end", stream.into_inner().message())
            .await
            .map(drop),
        Err(status) => Err(status),
    };
    assert_eq!(end.unwrap_err().code(), Code::Internal);
    assert_eq!(peer.requests().len(), 2 + 2, "each once");
}

/// B1, X6: a future that resolved and that its caller keeps holds nothing, once the body is at its end: no
/// place in the count, no deadline, no seat with stall detection.
#[tokio::test]
async fn a_kept_future_holds_nothing() {
    let peer = Peer::start(Script::good()).unwrap();
    let deadline = Duration::from_secs(60);
    let builder = builder(&[peer.uri()], quick(1)).deadline(UNARY, deadline);
    let mut pool = ready(builder, 1).await;
    let request = http::Request::post(format!("{}{UNARY}", peer.uri()));
    let request = request.header("te", "trailers");
    let request = request.header("content-type", "application/grpc");
    let message = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
    let request = request.body(Body::new(message)).unwrap();
    let call = pool.ready().await.unwrap().call(request);
    let mut call = pin!(call);
    let response = soon("the head", call.as_mut()).await.unwrap();
    let body = soon("the body", response.into_body().collect()).await;
    assert_eq!(body.unwrap().trailers().unwrap()["grpc-status"], "0");
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert!(pool.stall().snapshot().iter().all(|it| it.waiting == 0));
    let report = soon("closing", pool.close(deadline)).await;
    assert_eq!((report.finished, report.cut), (0, 0));
    peer.wait_until(HANG, |seen| seen.open_connections() == 0)
        .await
        .unwrap();
}
