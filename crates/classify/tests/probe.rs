//! A probe's verdict: what is an answer (S2), and when its time begins (S3).

use std::{
    convert::Infallible,
    future::{Ready, pending, ready},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use steadfast_classify::{ProbeLimits, ask, local_error, local_status};
use steadfast_core::{
    BottomLayer, BoxError, Local, LocalKind, Outcome, Place, Probing, Verdict, now,
};
use steadfast_testkit::peer::{At, Last, Peer, Script, Then};
use tower::{Layer, Service, service_fn};

const LIMITS: ProbeLimits = ProbeLimits {
    prepare: Duration::from_secs(10),
    answer: Duration::from_secs(1),
};

type Answer = Result<Response<BoxBody<Bytes, BoxError>>, BoxError>;

fn probe(_: &Place) -> Result<Request<()>, BoxError> {
    Ok(Request::new(()))
}

fn grpc(body: BoxBody<Bytes, BoxError>) -> Answer {
    Ok(Response::builder()
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap())
}

fn empty() -> BoxBody<Bytes, BoxError> {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed()
}

/// Data without an end.
fn endless() -> BoxBody<Bytes, BoxError> {
    let frames = tokio_stream::iter(std::iter::repeat_with(|| {
        Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(&[0; 1024])))
    }));
    let slowly = tokio_stream::StreamExt::throttle(frames, Duration::from_millis(10));
    BodyExt::boxed(StreamBody::new(slowly))
}

async fn asked(answer: fn() -> Answer) -> (Verdict, Duration) {
    let began = now();
    let service = BottomLayer.layer(service_fn(move |_: Request<()>| ready(answer())));
    let verdict = ask(service, &probe, &Place::default(), LIMITS).await;
    (verdict, began.elapsed())
}

/// S2: a status of any code is an answer, in headers or trailers; so is a bare HTTP status.
#[tokio::test(start_paused = true)]
async fn any_status_is_an_answer() {
    let (verdict, _) = asked(|| {
        let mut response = grpc(endless())?;
        response.headers_mut().insert("grpc-status", 7.into());
        Ok(response)
    })
    .await;
    assert!(matches!(verdict, Verdict::Answered(Outcome::Status(7))));
    let (verdict, _) = asked(|| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", 12.into());
        grpc(
            Full::new(Bytes::from_static(b"\0\0\0\0\0"))
                .map_err(|never: Infallible| match never {})
                .with_trailers(ready(Some(Ok(trailers))))
                .boxed(),
        )
    })
    .await;
    assert!(matches!(verdict, Verdict::Answered(Outcome::Status(12))));
    let (verdict, _) = asked(|| Ok(Response::builder().status(404).body(empty()).unwrap())).await;
    assert!(matches!(verdict, Verdict::Answered(Outcome::Http(404))));
}

/// S2: the head alone is no answer, nor is an end without a status; an answer that goes on for ever ends
/// with its time.
#[tokio::test(start_paused = true)]
async fn a_head_is_no_answer() {
    let (verdict, took) = asked(|| grpc(endless())).await;
    assert!(matches!(verdict, Verdict::NoAnswer(Outcome::Timeout)));
    assert_eq!(took.as_millis(), 1_000);
    let (verdict, _) = asked(|| grpc(empty())).await;
    assert!(matches!(verdict, Verdict::NoAnswer(Outcome::NoStatus)));
}

/// S3: a probe that can't be prepared, or hangs in preparing, wasn't attempted; its own limit ends it.
#[tokio::test(start_paused = true)]
async fn unprepared_is_unattempted() {
    let fails = |_: &Place| Err::<Request<()>, BoxError>("no token".into());
    let deaf = || BottomLayer.layer(service_fn(|_: Request<()>| pending::<Answer>()));
    let verdict = ask(deaf(), &fails, &Place::default(), LIMITS).await;
    let Verdict::NotAttempted(error) = verdict else {
        panic!("{verdict}");
    };
    assert_eq!(error.to_string(), "no token");
    struct Hangs;
    impl steadfast_core::Probe for Hangs {
        type Body = ();
        fn prepare(&self, _: &Place) -> steadfast_core::Prepared<()> {
            Box::pin(pending())
        }
    }
    let began = now();
    let verdict = ask(deaf(), &Hangs, &Place::default(), LIMITS).await;
    assert!(matches!(verdict, Verdict::NotAttempted(_)));
    assert_eq!(began.elapsed().as_secs(), 10);
}

/// A layer between that fetches a token for `0` first, and fails if it is told to.
#[derive(Clone)]
struct Auth<S>(S, Duration, bool);

impl<S> Service<Request<()>> for Auth<S>
where
    S: Service<Request<()>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let Self(mut inner, time, fails) = self.clone();
        Box::pin(async move {
            tokio::time::sleep(time).await;
            if fails {
                // As a token endpoint's own connection failure looks.
                return Err(tonic::ConnectError("the token server is down".into()).into());
            }
            inner.call(request).await
        })
    }
}

/// S3: the deadline begins at the bottom of the channel's stack: a layer that fetches a token first
/// doesn't use it up, and one that fails, or hangs, leaves the probe unattempted.
#[tokio::test(start_paused = true)]
async fn the_deadline_begins_at_the_bottom() {
    let deaf = BottomLayer.layer(service_fn(|_: Request<()>| pending::<Answer>()));
    for (time, fails, attempted, ends) in [
        (Duration::from_secs(3), false, true, 4_000),
        (Duration::from_secs(3), true, false, 3_000),
        (Duration::from_secs(60), false, false, 10_000),
    ] {
        let began = now();
        let service = Auth(deaf.clone(), time, fails);
        let verdict = ask(service, &probe, &Place::default(), LIMITS).await;
        assert_eq!(began.elapsed().as_millis(), ends);
        match verdict {
            Verdict::NoAnswer(Outcome::Timeout) => assert!(attempted),
            Verdict::NotAttempted(_) => assert!(!attempted),
            other => panic!("{other}"),
        }
    }
}

/// S3: a channel that says "discard me" gives no answer.
#[tokio::test(start_paused = true)]
async fn a_lost_channel_gives_no_answer() {
    #[derive(Clone)]
    struct Lost;
    impl Service<Request<()>> for Lost {
        type Response = Response<BoxBody<Bytes, BoxError>>;
        type Error = BoxError;
        type Future = Ready<Answer>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("the channel is gone".into()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("it isn't ready")
        }
    }
    let verdict = ask(Lost, &probe, &Place::default(), LIMITS).await;
    assert!(matches!(verdict, Verdict::NoAnswer(_)), "{verdict}");
}

async fn on_the_wire(script: Script) -> Verdict {
    let peer = Peer::start(script).unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(peer.uri()).unwrap();
    let channel = BottomLayer.layer(endpoint.connect().await.unwrap());
    let probe = |_: &Place| {
        Ok(Request::builder()
            .method("POST")
            .uri("/grpc.health.v1.Health/Check")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty())
            .unwrap())
    };
    let verdict = ask(channel, &probe, &Place::default(), LIMITS).await;
    peer.stop().await;
    verdict
}

/// S2, on the wire: a RST_STREAM of the peer is an answer, REFUSED_STREAM too; a connection that closes,
/// a GOAWAY that leaves the probe out, and silence are none.
#[tokio::test]
async fn resets_answer_and_closings_do_not() {
    for code in [2, 7, 8] {
        let verdict = on_the_wire(Script::rst(code)).await;
        assert!(matches!(verdict, Verdict::Answered(_)), "{code}: {verdict}");
    }
    for script in [
        Script::fin(At::Request),
        Script::tcp_reset(At::Request),
        Script::goaway(0, Last::Zero, Then::Fin),
        Script::ping_only(),
    ] {
        let verdict = on_the_wire(script).await;
        assert!(matches!(verdict, Verdict::NoAnswer(_)), "{verdict}");
    }
    let verdict = on_the_wire(Script::good()).await;
    assert!(matches!(verdict, Verdict::Answered(Outcome::Status(0))));
}

/// S4: what a layer makes is a status itself, with the mark as its source.
#[test]
fn a_local_error_is_a_marked_status() {
    use tonic::Code;
    for (kind, code) in [
        (LocalKind::Quarantine, Code::Unavailable),
        (LocalKind::NoChannel, Code::Unavailable),
        (LocalKind::Budget, Code::Unavailable),
        (LocalKind::Deadline, Code::DeadlineExceeded),
        (LocalKind::Overload, Code::ResourceExhausted),
        (LocalKind::Panicked, Code::Internal),
    ] {
        let status = local_status(kind, "said here", Some("the cause".into()));
        assert_eq!((status.code(), status.message()), (code, "said here"));
        let error = local_error(kind, "said here", None);
        assert_eq!(error.downcast_ref::<tonic::Status>().unwrap().code(), code);
        assert_eq!(Local::find(&*error).unwrap().kind(), kind);
        assert!(!Probing::is_on(&http::Extensions::new()));
    }
}
