//! What people reported of calls that their callers give up, with a whole pool above: none is sent again, and
//! the neighbours live.

use std::time::Duration;

use steadfast::Pool;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{
    Answer, Last, Peer, PeerState, Request, Script, Settings, Step, header_block,
};
use steadfast_tests::{
    HANG, soon,
    tap::{Sent, tap},
    whole::{STREAM, builder, channels, quick, ready, unary},
};
use tokio::{task::JoinSet, time::sleep};
use tokio_stream::StreamExt;
use tonic::{Code, Status, transport::Endpoint};

const SECOND: Duration = Duration::from_secs(1);
const CANCEL: u32 = 8;
/// Calls of a fan-out that are given up: more than stock h2 puts up with (1,024).
const FAN_OUT: usize = 1_300;

fn tagged(id: &str) -> tonic::Request<EchoRequest> {
    let mut request = tonic::Request::new(EchoRequest::default());
    request.metadata_mut().insert("x-id", id.parse().unwrap());
    request
}

/// How many requests with this tag came.
fn came(peer: &Peer, id: &str) -> usize {
    peer.inspect(|seen| {
        seen.requests
            .iter()
            .filter(|it| it.id() == Some(id))
            .count()
    })
}

/// Nothing of the calls was sent again, is in flight or is blamed on anybody.
fn left_nothing(pool: &Pool) {
    let retry = pool.retry().snapshot();
    assert_eq!((retry.resent, retry.repeated, retry.denied), (0, 0, 0));
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert!(pool.penalty().snapshot().is_empty());
}

/// T1, T2, P2: who cancels is told by the source, not by the code. A call that its caller gives up, and one
/// that the server answers with CANCELLED, is sent once; one whose stream the server resets with CANCEL is
/// sent again, though tonic calls that Cancelled, too.
#[tokio::test]
async fn a_cancel_is_told_by_who_made_it() {
    let answer = |request: &Request| match request.id() {
        Some("given up") => Answer::silence(),
        Some("cancelled") => Answer::status(1, "by the server"),
        // Again on the other connection.
        Some("reset") if request.connection == 0 => Answer::steps([Step::Rst(CANCEL)]),
        _ => Answer::good(),
    };
    let peer = Peer::start(Script::new(answer)).unwrap();
    let pool = ready(builder(&[peer.uri()], quick(2)), 2).await;
    let mut client = EchoClient::new(pool.clone());
    let call = tokio::spawn(async move { client.unary(tagged("given up")).await });
    let there = peer.wait_until(HANG, |seen| {
        seen.requests.iter().any(|it| it.id() == Some("given up"))
    });
    there.await.unwrap();
    call.abort();
    let told = peer.wait_until(HANG, |seen| !seen.resets.is_empty());
    told.await.unwrap();
    assert_eq!(peer.resets()[0].code, CANCEL);
    let mut client = EchoClient::new(pool.clone());
    let status = soon("a call", client.unary(tagged("cancelled"))).await;
    assert_eq!(status.unwrap_err().code(), Code::Cancelled);
    // A call after them: had one been sent again, it would have come before.
    unary(&pool).await.unwrap();
    assert_eq!((came(&peer, "given up"), came(&peer, "cancelled")), (1, 1));
    left_nothing(&pool);
    for channel in channels(&pool) {
        let mut request = tagged("reset");
        request.extensions_mut().insert(steadfast::Prefer(channel));
        soon("a call", client.unary(request)).await.unwrap();
    }
    assert_eq!(came(&peer, "reset"), 3);
    assert_eq!(pool.retry().snapshot().repeated, 1);
}

/// B1, T4: an upload through a whole pool is given up half-way: the server is told by RST_STREAM(CANCEL), and
/// never by an end of the stream, which would make half an upload look whole. Nothing of it is kept or sent
/// again.
#[tokio::test]
async fn half_an_upload_is_never_ended() {
    const RST_STREAM: u8 = 3;
    let peer = Peer::start(Script::good()).unwrap();
    let (uri, frames) = tap(peer.addr()).await;
    let pool = ready(builder(&[uri], quick(1)), 1).await;
    let message = EchoRequest {
        payload: vec![7; 1_000],
        ..EchoRequest::default()
    };
    let upload = tokio_stream::iter(vec![message; 3]).chain(tokio_stream::pending());
    let mut client = EchoClient::new(pool.clone());
    let call = tokio::spawn(async move { client.client_stream(upload).await });
    let half = peer.wait_until(HANG, |seen| seen.connections[0].data_received > 3_000);
    half.await.unwrap();
    call.abort();
    let told = peer.wait_until(HANG, |seen| !seen.resets.is_empty());
    told.await.unwrap();
    unary(&pool).await.unwrap();
    let reset = peer.resets()[0];
    assert_eq!(reset.code, CANCEL);
    let frames = frames.lock().unwrap();
    let ends = |frame: &&Sent| frame.kind <= 1 && frame.flags & 1 != 0;
    let of_upload: Vec<_> = frames
        .iter()
        .filter(|it| it.stream == reset.stream)
        .collect();
    assert_eq!(of_upload.last().unwrap().kind, RST_STREAM);
    assert!(!of_upload.into_iter().any(|frame| ends(&frame)));
    assert!(frames.iter().any(|frame| ends(&frame)), "the unary call's");
    left_nothing(&pool);
}

/// T1, T2, B6: a storm of 200 cancelled calls at a server that allows 20 resets on a connection, and then ends
/// it with GOAWAY ENHANCE_YOUR_CALM. No cancelled call is sent again; an idempotent call that was cut with its
/// connection is, at most twice; and each connection is replaced by one dial.
#[tokio::test]
async fn a_storm_of_cancels_is_not_repeated() {
    let answer = |request: &Request| match (request.id(), request.connection) {
        (Some("neighbour"), 0..4) => Answer::silence(),
        (Some("storm"), 0..4) if request.index < 21 => Answer::silence(),
        (Some("storm"), 0..4) => {
            Answer::silence().after_reset([Step::goaway(11, Last::Highest), Step::Fin])
        }
        _ => Answer::good(),
    };
    let peer = Peer::start(Script::new(answer)).unwrap();
    let mut config = quick(4);
    // It isn't the silence that ends them here.
    config.stall.silence = HANG;
    let pool = ready(builder(&[peer.uri()], config), 4).await;
    // A connection that is lost within its first second is taken for a dial that failed.
    sleep(SECOND * 11 / 10).await;
    let start = |calls: usize, id: &'static str| {
        let mut started = JoinSet::new();
        for channel in channels(&pool).into_iter().cycle().take(calls) {
            let (mut client, mut request) = (EchoClient::new(pool.clone()), tagged(id));
            request.extensions_mut().insert(steadfast::Prefer(channel));
            started.spawn(async move { client.unary(request).await });
        }
        started
    };
    let mut neighbours = start(8, "neighbour");
    let mut storm = start(200, "storm");
    let all = |seen: &PeerState| seen.open_streams() == 208;
    peer.wait_until(HANG, all).await.unwrap();
    storm.shutdown().await;
    while let Some(neighbour) = soon("a neighbour", neighbours.join_next()).await {
        neighbour.unwrap().unwrap();
    }
    soon("all of them again", pool.warm(4)).await.unwrap();
    assert_eq!(came(&peer, "storm"), 200, "none of them again");
    let neighbours = came(&peer, "neighbour");
    assert!((16..=24).contains(&neighbours), "{neighbours} for 8 calls");
    assert_eq!(peer.connections(), 8, "one dial for each that went");
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// A fan-out of calls that are all given up at once, at a server that answers them all the same, when they are
/// long gone. Says how a stream beside them on the same connection ends, and how many calls after them fail.
async fn fan_out<S, B>(peer: &Peer, service: S) -> (Result<(), Status>, usize)
where
    S: tower::Service<http::Request<tonic::body::Body>, Response = http::Response<B>>
        + Clone
        + Send
        + 'static,
    S::Error: Into<steadfast::BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes, Error: Into<steadfast::BoxError> + Send>
        + Send
        + 'static,
{
    let mut client = EchoClient::new(service.clone());
    let opened = client.server_stream(EchoRequest::default());
    let mut neighbour = soon("its head", opened).await.unwrap().into_inner();
    soon("a message", neighbour.message()).await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..FAN_OUT {
        let mut client = EchoClient::new(service.clone());
        calls.spawn(async move { client.unary(tagged("fan-out")).await });
    }
    let all = |seen: &PeerState| seen.open_streams() > FAN_OUT;
    peer.wait_until(HANG, all).await.unwrap();
    calls.shutdown().await;
    let told = |seen: &PeerState| seen.held == FAN_OUT as u64;
    peer.wait_until(HANG, told).await.unwrap();
    // Longer than stock h2 remembers a stream that was reset.
    sleep(SECOND * 3 / 2).await;
    peer.release_all();
    let answered = |seen: &PeerState| seen.held == 0;
    peer.wait_until(HANG, answered).await.unwrap();
    // Behind the late answers on the connection.
    let mut failed = 0;
    for _ in 0..20 {
        let call = soon("a call", client.unary(EchoRequest::default())).await;
        failed += usize::from(call.is_err());
    }
    let stream = peer.inspect(|seen| {
        let streams = seen.requests.iter().filter(|it| it.path == STREAM);
        streams.map(|it| it.stream).next()
    });
    let end = Step::Frame {
        kind: 1,
        // END_STREAM and END_HEADERS.
        flags: 5,
        stream,
        payload: header_block(&[("grpc-status", "0")]),
    };
    // A connection that is gone needs no end.
    peer.inject(0, [end]).await;
    let end = soon("its end", neighbour.message()).await;
    (end.map(|message| assert!(message.is_none())), failed)
}

/// S7, E1, T1: 1,300 calls of a fan-out are given up at once on one connection, and answered all the same a
/// while later: a stream beside them goes on to its end, nothing is sent again, and calls after them are
/// served by the same connection. Control: on a plain tonic channel the stream breaks with the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fan_out_that_is_given_up_leaves_its_neighbours_alone() {
    let server = || {
        let late = [Step::Hold, Step::headers(), Step::status(0, "")];
        let answer = move |request: &Request| match (&*request.path, request.id()) {
            (STREAM, _) => {
                Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()])
            }
            (_, Some("fan-out")) => Answer::silence().after_reset(late.clone()),
            _ => Answer::good(),
        };
        let settings = Settings {
            max_concurrent_streams: Some(2_000),
            ..Settings::default()
        };
        Peer::start(Script::new(answer).settings(settings)).unwrap()
    };
    let (peer, plain) = (server(), server());
    let pool = ready(builder(&[peer.uri()], quick(1)), 1).await;
    let channel = Endpoint::from_shared(plain.uri()).unwrap();
    let channel = channel.connect().await.unwrap();
    let (ours, plains) = tokio::join!(fan_out(&peer, pool.clone()), fan_out(&plain, channel));
    assert!(ours.0.is_ok() && ours.1 == 0, "{ours:?}");
    assert!(plains.0.is_err(), "plain tonic's connection lives, too");
    assert!(peer.goaways().is_empty() && !plain.goaways().is_empty());
    assert_eq!(peer.connections(), 1);
    left_nothing(&pool);
}
