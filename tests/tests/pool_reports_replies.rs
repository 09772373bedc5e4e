//! What people reported of replies that are too large, and of connections that somebody on the way has
//! forgotten, with a whole pool above.

use std::time::Duration;

use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Connection, Peer, PeerState, Request, Script, Step};
use steadfast_tests::{
    HANG, soon,
    whole::{HEALTH, UPLOAD, builder, quick, ready, unary},
};
use tokio::time::sleep;
use tonic::{Code, codec::CompressionEncoding};

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

/// T2, T4: a reply that breaks off when a part of it has come: an idempotent call is repeated as often as it
/// has attempts, a write never; a server that goes on so is told from one that did it once.
#[tokio::test]
async fn replies_that_break_off_are_repeated_for_idempotent_calls_only() {
    for breaks in [1, 2, 3] {
        let answer = move |request: &Request| match &*request.path {
            HEALTH => Answer::good(),
            UPLOAD => Answer::steps([Step::AwaitRequest, Step::headers(), Step::Rst(2)]),
            // The calls before it are a warm-up for each channel.
            _ if request.order < 3 + breaks => {
                Answer::steps([Step::AwaitRequest, Step::headers(), Step::Rst(2)])
            }
            _ => Answer::good(),
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
