//! The rules on real failures: a tonic channel against a peer that is scripted frame by frame, in real
//! time. An upgrade of tonic, hyper or h2 that changes a source chain is seen here.
//!
//! The package's own tests run without tonic's `server` feature; those of the whole workspace with it.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::response::Parts;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use steadfast_classify::{Exchange, deepest_cause, enhance_your_calm};
use steadfast_core::{End, Observe, Observed, Outcome};
use steadfast_testkit::peer::{
    Answer, At, ClosedPort, Last, Peer, Ping, Script, Step, Then, Trail, Truncated, header_block,
    never,
};
use tokio::net::TcpStream;
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt};

/// Nothing here takes a tenth of it.
const HANG: Duration = Duration::from_secs(20);

/// What the classifier said of one exchange.
#[derive(Clone, Debug, Default)]
struct Verdict {
    early: Option<Outcome>,
    outcome: Option<Outcome>,
    chain: String,
    cause: String,
    calm: bool,
}

struct Watch {
    exchange: Exchange,
    verdict: Arc<Mutex<Verdict>>,
}

impl Observe for Watch {
    fn head(&mut self, head: &Parts) {
        self.verdict.lock().unwrap().early = self.exchange.head(head);
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
    }

    fn end(self, end: End<'_>) {
        let mut verdict = self.verdict.lock().unwrap();
        verdict.outcome = Some(self.exchange.end(&end));
        if let End::Failed(error) = end {
            verdict.calm = enhance_your_calm(error);
            verdict.cause = deepest_cause(error);
            let mut next: Option<&(dyn Error + 'static)> = Some(error);
            while let Some(link) = next {
                verdict.chain += &format!("{link:?} > ");
                next = link.source();
            }
        }
    }
}

/// One call, read to the end of its body; with `patience`, dropped then.
async fn call(mut channel: Channel, patience: Option<Duration>) -> Verdict {
    let verdict = Arc::default();
    let watch = Watch {
        exchange: Exchange::new(),
        verdict: Arc::clone(&verdict),
    };
    let request = http::Request::post("/test.Test/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\0"))))
        .unwrap();
    let work = async move {
        // An error of readiness is one of the call: tonic keeps the rest for `call`.
        let ready = channel
            .ready()
            .await
            .expect("tonic's lazy channels are always ready");
        if let Ok(response) = Observed::new(ready.call(request), watch).await {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    };
    let in_time = tokio::time::timeout(patience.unwrap_or(HANG), work).await;
    assert!(in_time.is_ok() || patience.is_some(), "the call hangs");
    verdict.lock().unwrap().clone()
}

fn lazy(uri: String) -> Channel {
    Endpoint::from_shared(uri).unwrap().connect_lazy()
}

async fn against(script: Script) -> Verdict {
    let peer = Peer::start(script).unwrap();
    let verdict = call(lazy(peer.uri()), None).await;
    peer.stop().await;
    verdict
}

/// Runs each script and compares; an outcome is one of those listed (races are decided by the kernel).
async fn rows(rows: Vec<(Script, &[Outcome])>) {
    for (row, (script, outcomes)) in rows.into_iter().enumerate() {
        let verdict = against(script).await;
        let outcome = verdict.outcome.unwrap();
        assert!(outcomes.contains(&outcome), "row {row}: {verdict:?}");
    }
}

/// P1: a connection that can't be made.
#[tokio::test]
async fn dials() {
    let port = ClosedPort::new().unwrap();
    let verdict = call(lazy(port.uri()), None).await;
    assert_eq!(verdict.outcome, Some(Outcome::DialFailed), "{verdict:?}");
    assert!(
        verdict.cause.starts_with("Connection refused"),
        "{verdict:?}"
    );
    let silent = Endpoint::from_static("http://unused")
        .connect_timeout(Duration::from_millis(50))
        .connect_with_connector_lazy(tower::service_fn(never::<TokioIo<TcpStream>>));
    let verdict = call(silent, None).await;
    assert_eq!(verdict.outcome, Some(Outcome::DialFailed), "{verdict:?}");
    rows(vec![
        (
            Script::fin(At::Accept),
            &[Outcome::ConnectionLost, Outcome::NeverSent],
        ),
        (
            Script::tcp_reset(At::Accept),
            &[
                Outcome::ConnectionLost,
                Outcome::NeverSent,
                Outcome::DialFailed,
            ],
        ),
        (Script::http1(), &[Outcome::Protocol, Outcome::NeverSent]),
    ])
    .await;
}

/// P1: a connection that breaks, before and after the headers.
#[tokio::test]
async fn lost_connections() {
    let lost: &[Outcome] = &[Outcome::ConnectionLost];
    rows(vec![
        (Script::fin(At::Request), lost),
        (Script::tcp_reset(At::Request), lost),
        (Script::fin(At::MidHeaders), lost),
        (Script::fin(At::Headers), lost),
        (Script::fin(At::Messages(1)), lost),
        (Script::tcp_reset(At::Headers), lost),
        (Script::tcp_reset(At::Messages(1)), lost),
        (Script::goaway(0, Last::This, Then::Fin), lost),
        (Script::goaway(11, Last::This, Then::Fin), lost),
    ])
    .await;
}

/// P1: keepalive expires, before the headers and in the body.
#[tokio::test]
async fn keepalive() {
    for script in [Script::ping_only(), Script::head_stop(1)] {
        let peer = Peer::start(script.ping(Ping::Ignore)).unwrap();
        let channel = Endpoint::from_shared(peer.uri())
            .unwrap()
            .http2_keep_alive_interval(Duration::from_millis(100))
            .keep_alive_timeout(Duration::from_millis(100))
            .connect_lazy();
        let verdict = call(channel, None).await;
        assert_eq!(
            verdict.outcome,
            Some(Outcome::ConnectionLost),
            "{verdict:?}"
        );
    }
}

/// P1: GOAWAY below the request's stream before the headers, and after them.
#[tokio::test]
async fn goaways() {
    let unprocessed: &[Outcome] = &[Outcome::Unprocessed];
    let then = |goaway: Step, end: Option<Step>| {
        let steps = [
            Step::AwaitRequest,
            Step::headers(),
            Step::good_message(),
            goaway,
        ];
        Script::always(Answer::steps(steps.into_iter().chain(end)))
    };
    rows(vec![
        (Script::goaway(0, Last::Zero, Then::KeepOpen), unprocessed),
        (Script::goaway(0, Last::Zero, Then::Fin), unprocessed),
        (Script::goaway(2, Last::Zero, Then::Fin), unprocessed),
        (
            Script::goaway(0, Last::This, Then::Finish),
            &[Outcome::Status(0)],
        ),
        (
            then(Step::goaway(0, Last::Zero), None),
            &[Outcome::NoStatus],
        ),
        (
            then(Step::goaway(2, Last::Zero), Some(Step::Fin)),
            &[Outcome::GoAway(2)],
        ),
    ])
    .await;
}

/// ENHANCE_YOUR_CALM is seen in a GOAWAY and in a reset, and nowhere else.
#[tokio::test]
async fn calm() {
    for script in [
        Script::goaway(11, Last::Zero, Then::Fin),
        Script::rst(11),
        Script::rst_after_headers(11),
    ] {
        let verdict = against(script).await;
        assert!(verdict.calm, "{verdict:?}");
    }
    for script in [
        Script::goaway(0, Last::Zero, Then::Fin),
        Script::rst(8),
        Script::fin(At::Request),
    ] {
        let verdict = against(script).await;
        assert!(!verdict.calm, "{verdict:?}");
    }
}

/// P1: RST_STREAM with every code, before and after the headers.
#[tokio::test]
async fn resets() {
    for code in (0..=13).chain([99]) {
        let before = against(Script::rst(code)).await;
        let expected = match code {
            7 => Outcome::Unprocessed,
            code => Outcome::Reset(code),
        };
        assert_eq!(before.outcome, Some(expected), "before, {code}: {before:?}");
        let after = against(Script::rst_after_headers(code)).await;
        let expected = match code {
            0 => Outcome::NoStatus,
            code => Outcome::Reset(code),
        };
        assert_eq!(after.outcome, Some(expected), "after, {code}: {after:?}");
    }
}

/// P1: a bare HTTP status, without and with a text, is known at the head.
#[tokio::test]
async fn bare_http() {
    for code in [400, 401, 404, 429, 500, 502, 503, 504] {
        for text in [None, Some("upstream connect error")] {
            let verdict = against(Script::http(code, text)).await;
            assert_eq!(verdict.early, Some(Outcome::Http(code)), "{verdict:?}");
            assert_eq!(verdict.outcome, Some(Outcome::Http(code)), "{verdict:?}");
        }
    }
}

/// P1: a status in the headers or the trailers, none at all, and OK inside a message.
#[tokio::test]
async fn statuses() {
    rows(vec![
        (Script::good(), &[Outcome::Status(0)]),
        (Script::trail(Trail::Only(14)), &[Outcome::Status(14)]),
        (Script::trail(Trail::Only(0)), &[Outcome::Status(0)]),
        (Script::trail(Trail::Status(14)), &[Outcome::Status(14)]),
        (Script::trail(Trail::Status(99)), &[Outcome::Status(2)]),
        (Script::trail(Trail::BadDetails), &[Outcome::Status(13)]),
        (Script::trail(Trail::None), &[Outcome::NoStatus]),
        (Script::trail(Trail::NoStatus), &[Outcome::NoStatus]),
        (
            Script::truncated(Truncated::EndStream),
            &[Outcome::NoStatus],
        ),
        (
            Script::truncated(Truncated::StatusZero),
            &[Outcome::CutShort],
        ),
    ])
    .await;
}

/// P1: a status in headers that leave the stream open counts at once.
#[tokio::test]
async fn a_status_on_an_open_stream() {
    let peer = Peer::start(Script::trail(Trail::OpenHeaders(14))).unwrap();
    let verdict = call(lazy(peer.uri()), Some(Duration::from_millis(300))).await;
    assert_eq!(verdict.early, Some(Outcome::Status(14)), "{verdict:?}");
    assert_eq!(
        verdict.outcome,
        Some(Outcome::Status(14)),
        "and it stays: {verdict:?}"
    );
}

/// P1: the peer breaks HTTP/2; our side ends it.
#[tokio::test]
async fn protocol_errors() {
    let frame = |kind, stream, payload| Step::Frame {
        kind,
        flags: 4,
        stream,
        payload,
    };
    let no_status = frame(
        1,
        None,
        header_block(&[("content-type", "application/grpc")]),
    );
    let idle = frame(0, Some(99), Bytes::from_static(b"x"));
    rows(vec![
        (
            Script::always(Answer::steps([Step::AwaitRequest, no_status])),
            &[Outcome::Protocol],
        ),
        (
            Script::always(Answer::steps([
                Step::AwaitRequest,
                Step::headers(),
                Step::good_message(),
                idle,
            ])),
            &[Outcome::Protocol],
        ),
    ])
    .await;
}

/// P2: tonic's own time-out is no failure of the transport, and neither is a caller that goes.
#[tokio::test]
async fn ended_by_this_side() {
    let peer = Peer::start(Script::ping_only()).unwrap();
    let channel = Endpoint::from_shared(peer.uri())
        .unwrap()
        .timeout(Duration::from_millis(50))
        .connect_lazy();
    let verdict = call(channel, None).await;
    assert_eq!(verdict.outcome, Some(Outcome::Timeout), "{verdict:?}");
    let verdict = call(lazy(peer.uri()), Some(Duration::from_millis(50))).await;
    assert_eq!(verdict.outcome, Some(Outcome::Dropped), "{verdict:?}");
}

/// Requests that wait for a free stream when the connection goes were never sent.
#[tokio::test]
async fn queued_in_the_transport() {
    let peer = Peer::start(Script::max_streams(1)).unwrap();
    let channel = lazy(peer.uri());
    let first = tokio::spawn(call(channel.clone(), None));
    peer.wait_until(HANG, |state| !state.requests.is_empty())
        .await
        .unwrap();
    let rest: Vec<_> = (0..5)
        .map(|_| tokio::spawn(call(channel.clone(), None)))
        .collect();
    // The five are on their way into hyper; one more round trip and they are there.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(peer.inject(0, [Step::Fin]).await);
    let first = first.await.unwrap();
    assert_eq!(first.outcome, Some(Outcome::ConnectionLost), "{first:?}");
    let mut gone = 0;
    for call in rest {
        let verdict = call.await.unwrap();
        let entered_h2 = verdict.chain.contains("DispatchGone");
        gone += usize::from(entered_h2);
        let expected = if entered_h2 {
            Outcome::ConnectionLost
        } else {
            Outcome::NeverSent
        };
        assert_eq!(verdict.outcome, Some(expected), "{verdict:?}");
    }
    assert_eq!(gone, 1, "the one that had entered h2");
    assert_eq!(peer.requests().len(), 1);
}
