//! What people reported of streams that fall silent and of those that nobody reads, with a whole pool above.

use std::{error::Error, time::Duration};

use steadfast::{Kind, Local, LocalKind, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::Action;
use steadfast_testkit::{
    peer::{Answer, Peer, Request, Script, Step},
    proxy::{FaultProxy, Which},
};
use steadfast_tests::{
    HANG,
    echo::EchoProcess,
    soon,
    whole::{
        HEALTH, STREAM, UNARY, builder, busy, channel_at, decided, is_quarantine, on, quarantines,
        quick, ready, serves, until,
    },
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, transport::Endpoint};

const SECOND: Duration = Duration::from_secs(1);

/// A server at a place of its own whose calls get these steps, and its probes an answer the first time only.
fn stops(steps: impl IntoIterator<Item = Step>) -> Peer {
    let steps: Vec<Step> = steps.into_iter().collect();
    let answer = move |request: &Request| match &*request.path {
        HEALTH if request.index == 0 => Answer::good(),
        HEALTH => Answer::silence(),
        _ => Answer::steps(steps.clone()),
    };
    Peer::start(Script::new(answer)).unwrap()
}

/// Reads a stream to its end: its messages, and the end.
async fn read(mut stream: tonic::Streaming<steadfast_proto::EchoReply>) -> (usize, Option<Status>) {
    let mut messages = 0;
    loop {
        match soon("a message", stream.message()).await {
            Ok(Some(_)) => messages += 1,
            Ok(None) => return (messages, None),
            Err(status) => return (messages, Some(status)),
        }
    }
}

/// S4, T2: a stream that is open and a unary call, neither with a deadline, on a connection that falls silent:
/// both end with one window of silence. The call is answered elsewhere; the stream, of which a message was
/// handed up, ends with the mark.
#[tokio::test]
async fn a_stream_and_a_call_without_deadlines_end_with_the_window() {
    let silent = stops([Step::AwaitRequest, Step::headers(), Step::good_message()]);
    let good = Peer::start(Script::good()).unwrap();
    let pool = ready(builder(&[silent.uri(), good.uri()], quick(2)), 2).await;
    let stuck = channel_at(&pool, &silent.uri());
    let (mut client, mut other) = (EchoClient::new(pool.clone()), EchoClient::new(pool.clone()));
    let opened = soon("its head", client.server_stream(on(stuck).0)).await;
    let stream = opened.unwrap().into_inner();
    let _busy = busy(&pool);
    let (mut request, _) = on(stuck);
    let id = "the call".parse().unwrap();
    request.metadata_mut().insert("x-id", id);
    let (stream, call) = tokio::join!(read(stream), soon("the call", other.unary(request)));
    assert_eq!(stream.0, 1);
    let mark = stream.1.expect("it ended early");
    assert!(is_quarantine(&mark), "{mark:?}");
    call.unwrap();
    let came = |peer: &Peer| peer.requests().iter().any(|it| it.id() == Some("the call"));
    assert!(came(&silent) && came(&good), "first here, then there");
    assert_eq!(quarantines(&pool), 1);
}

/// S1–S4: a subscription whose head never comes, on an endpoint with a connect time-out, which is over long
/// before: the rule about silence ends it. If its method is idempotent it is opened elsewhere. Control, with
/// stall detection off: it hangs.
#[tokio::test]
async fn a_head_that_never_comes_is_ended_by_the_window() {
    for (watched, idempotent) in [(true, false), (true, true), (false, true)] {
        let script = move |connection| match connection {
            0 => Script::new(|request: &Request| match &*request.path {
                HEALTH if request.index == 0 => Answer::good(),
                HEALTH => Answer::silence(),
                _ => Answer::steps([Step::AwaitRequest]),
            }),
            _ => Script::good(),
        };
        let peer = Peer::scripted(script).unwrap();
        let endpoint = Endpoint::from_shared(peer.uri()).unwrap();
        let endpoint = endpoint.connect_timeout(Duration::from_millis(100));
        let mut config = quick(2);
        config.stall.enabled = watched;
        let calls = [(UNARY, Kind::Held), (STREAM, Kind::Streaming)];
        let calls = calls.into_iter().take(1 + usize::from(idempotent));
        let builder = Pool::builder(endpoint).config(config).without_env();
        let pool = ready(builder.retry(calls), 2).await;
        let _busy = busy(&pool);
        let mut subscriptions = JoinSet::new();
        // One of two goes to each.
        for channel in steadfast_tests::whole::channels(&pool) {
            let mut client = EchoClient::new(pool.clone());
            let open = async move { client.server_stream(on(channel).0).await };
            subscriptions.spawn(open);
        }
        let mut ends = Vec::new();
        // Nothing tells that nothing happens: three times what stall detection takes.
        let limit = if watched { HANG } else { SECOND * 2 };
        while let Ok(Some(end)) = timeout(limit, subscriptions.join_next()).await {
            ends.push(end.unwrap());
        }
        let good = ends.iter().filter(|end| end.is_ok()).count();
        let expected = match (watched, idempotent) {
            (true, true) => (2, 2),
            (true, false) => (1, 2),
            (false, _) => (1, 1),
        };
        assert_eq!((good, ends.len()), expected, "{ends:?}");
        for status in ends.iter().filter_map(|end| end.as_ref().err()) {
            assert!(is_quarantine(status), "{status:?}");
        }
    }
}

/// S4, S5: a conversation in both directions over a connection that freezes for 3 s, as when its virtual
/// machine is moved: it is ended, goes on elsewhere, and what comes late when the connection thaws reaches
/// nobody and hurts nothing: the channel is restored and used on the same connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_over_a_frozen_connection_goes_on_elsewhere() {
    let echo = EchoProcess::start().await;
    let proxies = [(); 2].map(|()| FaultProxy::start(echo.addr()).unwrap());
    let places: Vec<_> = proxies.iter().map(FaultProxy::uri).collect();
    let pool = ready(builder(&places, quick(2)), 2).await;
    let _busy = busy(&pool);
    let frozen = channel_at(&pool, &places[0]);
    let mut client = EchoClient::new(pool.clone());
    let (say, said) = mpsc::unbounded_channel();
    let mut request = tonic::Request::new(UnboundedReceiverStream::new(said));
    *request.extensions_mut() = on(frozen).0.into_parts().1;
    let message = |n: u8| EchoRequest {
        payload: vec![n],
        ..EchoRequest::default()
    };
    say.send(message(1)).unwrap();
    let opened = soon("its head", client.bidi(request)).await;
    let mut heard = opened.unwrap().into_inner();
    let reply = soon("a reply", heard.message()).await.unwrap();
    assert_eq!(reply.unwrap().payload, [1]);
    proxies[0].freeze(Which::One(0));
    let thaw = sleep(3 * SECOND);
    // It is on its way to the server until the thaw, and its answer comes late.
    say.send(message(2)).unwrap();
    let end = soon("its end", heard.message()).await.unwrap_err();
    assert!(is_quarantine(&end), "{end:?}");
    let source = end.source().and_then(|it| it.downcast_ref::<Local>());
    assert_eq!(source.map(Local::kind), Some(LocalKind::Quarantine));

    let (say, said) = mpsc::unbounded_channel();
    say.send(message(2)).unwrap();
    let opened = client.bidi(UnboundedReceiverStream::new(said));
    let mut heard_elsewhere = soon("its head", opened).await.unwrap().into_inner();
    let mut next = async |n| {
        let reply = soon("a reply", heard_elsewhere.message()).await;
        assert_eq!(reply.unwrap().unwrap().payload, [n]);
    };
    next(2).await;
    thaw.await;
    proxies[0].thaw(Which::One(0));
    until("restoring", || {
        decided(&pool, |it| matches!(it, Action::Restore(_))) > 0
    })
    .await;
    assert!(serves(&pool, frozen).await);
    say.send(message(3)).unwrap();
    next(3).await;
    let late = heard.message().await;
    assert!(!matches!(late, Ok(Some(_))), "{late:?}");
    let open = proxies.iter().map(|proxy| proxy.connections()[0].open);
    assert!(open.into_iter().all(|open| open), "the same connections");
    assert!(pool.penalty().snapshot().is_empty());
}

/// S1: a response that nobody reads fills its window and stands still on a channel, while others go on on
/// another one: its reader is slow, and the channel is no suspect. When it is read, all of it is there.
#[tokio::test]
async fn a_response_that_nobody_reads_makes_no_suspect() {
    let peer = Peer::start(Script::big(3 << 20)).unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let pool = ready(builder(&[peer.uri(), good.uri()], quick(2)), 2).await;
    let slow = channel_at(&pool, &peer.uri());
    let mut client = EchoClient::new(pool.clone());
    let opened = soon("its head", client.server_stream(on(slow).0)).await;
    let mut stream = opened.unwrap().into_inner();
    let _others = tokio::spawn({
        let pool = pool.clone();
        async move {
            let good = channel_at(&pool, &good.uri());
            while serves(&pool, good).await {}
        }
    });
    let sent = |seen: &steadfast_testkit::peer::PeerState| seen.connections[0].data_sent;
    let full = peer.wait_until(HANG, |seen| sent(seen) >= 256 << 10);
    full.await.unwrap();
    // Five times the silence that makes a suspect of a channel on which somebody waits.
    sleep(SECOND * 3 / 2).await;
    let about = decided(&pool, |action| action.channel() == Some(slow));
    assert_eq!(about, 0, "{}", pool.stall().ring());
    let message = soon("the message", stream.message()).await.unwrap();
    assert_eq!(message.unwrap().payload.len(), 3 << 20);
}
