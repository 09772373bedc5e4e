//! Which ends of an exchange are held against its channel, and when.

mod support;

use std::{
    future::{pending, ready},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use http::{Request, Response};
use http_body_util::BodyExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use steadfast_core::{Abandoned, Attempt, BoxError, Local, LocalKind, Outcome, Probing};
use steadfast_penalty::{PenaltyConfig, PenaltyWindowLayer, is_failure};
use steadfast_testkit::body::{BodyScript, ScriptBody};
use support::{Reply, flat, grpc, head, scripted, trailers_only, whole};
use tonic::{ConnectError, Status, TimeoutExpired};
use tower::{Layer, Service};

/// Whether an answer, read to its end, costs the channel its 25.
async fn costs(reply: impl Fn() -> Reply + Send + Sync + 'static) -> bool {
    costs_in(&flat(), reply).await
}

async fn costs_in(
    layer: &PenaltyWindowLayer,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> bool {
    let mut service = layer.layer(scripted(reply));
    whole(&mut service).await;
    match service.meter().read().charge() {
        0 => false,
        25 => {
            let snapshot = layer.snapshot();
            assert_eq!(snapshot.len(), 1);
            assert_eq!(snapshot[0].1.failures, 1, "an exchange counts once");
            true
        }
        other => panic!("a charge of {other}"),
    }
}

fn io_error() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// P1: Unavailable, ResourceExhausted and Internal, in the headers and in the trailers, and no others.
#[tokio::test(start_paused = true)]
async fn grpc_statuses() {
    for code in 0..=17 {
        let counts = matches!(code, 8 | 13 | 14);
        assert_eq!(
            costs(move || trailers_only(code)).await,
            counts,
            "headers, {code}"
        );
        let trailers = move || grpc(BodyScript::default().message(b"abc").status(code));
        assert_eq!(costs(trailers).await, counts, "trailers, {code}");
    }
}

/// P1: the bare HTTP statuses, with and without a text; others and those with a grpc-status don't.
#[tokio::test(start_paused = true)]
async fn http_statuses() {
    for code in [
        204, 301, 400, 401, 403, 404, 408, 413, 429, 431, 500, 502, 503, 504, 505,
    ] {
        let counts = matches!(code, 400 | 429 | 502 | 503 | 504);
        for text in [BodyScript::default, || BodyScript::default().data("<html>")] {
            let bare = move || {
                Ok(Response::builder()
                    .status(code)
                    .body(text().start().0)
                    .unwrap())
            };
            assert_eq!(costs(bare).await, counts, "{code}");
        }
        let with_status = move || {
            let head = Response::builder().status(code).header("grpc-status", 5);
            Ok(head.body(BodyScript::default().start().0).unwrap())
        };
        assert!(!costs(with_status).await, "{code} with grpc-status 5");
    }
}

/// P1: an answer that ends without a status, in every way that a body can end, or with OK too soon.
#[tokio::test(start_paused = true)]
async fn ends_without_a_status() {
    let body = BodyScript::default;
    assert!(costs(move || grpc(body())).await, "at its end when it came");
    assert!(costs(move || grpc(body().message(b"abc"))).await);
    let hidden = move || grpc(body().message(b"abc").claim_end_stream(false));
    assert!(costs(hidden).await, "its end known only by asking");
    let trailers = move || grpc(body().message(b"abc").trailers(http::HeaderMap::new()));
    assert!(costs(trailers).await, "trailers without one");
    let cut = move || grpc(body().data(&b"\0\0\0\0\x05ab"[..]).status(0));
    assert!(costs(cut).await, "OK inside a message");
    let whole = move || grpc(body().message(b"abc").status(0));
    assert!(!costs(whole).await);
}

/// P1: what a reader who trusts `is_end_stream` never asks for is counted as well.
#[tokio::test(start_paused = true)]
async fn an_end_known_only_by_is_end_stream() {
    let layer = flat();
    let mut service = layer.layer(scripted(|| grpc(BodyScript::default().message(b"abc"))));
    let mut body = head(&mut service).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(service.meter().read().charge(), 25);
}

/// P1: failures of the connection, of the call and of the body, by their source chain.
#[tokio::test(start_paused = true)]
async fn connection_failures() {
    assert!(
        costs(|| Err(ConnectError(io_error().into()).into())).await,
        "dial"
    );
    assert!(
        costs(|| Err(io_error().into())).await,
        "lost before the head"
    );
    assert!(costs(|| Err(Status::from_error(io_error().into()).into())).await);
    assert!(!costs(|| Err("a layer's own trouble".into())).await);
    let body = || {
        BodyScript::default()
            .message(b"abc")
            .error("not the transport's")
    };
    assert!(!costs(move || grpc(body())).await, "nor in the body");
}

/// P1, P2: the default set, for what the other tests here don't provoke.
#[test]
fn the_default_set() {
    let yes = [
        Outcome::DialFailed,
        Outcome::NeverSent,
        Outcome::Unprocessed,
        Outcome::ConnectionLost,
        Outcome::Protocol,
        Outcome::Reset(0),
        Outcome::Reset(8),
        Outcome::GoAway(0),
        Outcome::NoStatus,
        Outcome::CutShort,
        Outcome::GapTimeout,
    ];
    let no = [
        Outcome::Status(0),
        Outcome::Timeout,
        Outcome::Local(LocalKind::Quarantine),
        Outcome::Dropped,
        Outcome::Other,
    ];
    assert!(yes.iter().all(is_failure));
    assert!(!no.iter().any(is_failure));
}

/// P1: a status in the headers and a bare HTTP status count with the head, though the stream stays
/// open, and once.
#[tokio::test(start_paused = true)]
async fn counts_at_the_head() {
    let heads: [fn() -> http::response::Builder; 2] = [
        || Response::builder().header("grpc-status", 14),
        || Response::builder().status(503),
    ];
    for head_of in heads {
        let layer = flat();
        let open = move || BodyScript::default().data("text").wait().start().0;
        let mut service = layer.layer(scripted(move || Ok(head_of().body(open()).unwrap())));
        let response = head(&mut service).await.unwrap();
        assert_eq!(service.meter().read().charge(), 25);
        drop(response);
        assert_eq!(layer.snapshot()[0].1.failures, 1);
    }
}

/// S2: the outcome of a probe charges nothing, whatever it is.
#[tokio::test(start_paused = true)]
async fn probes_say_nothing() {
    let layer = flat();
    let mut service = layer.layer(scripted(|| trailers_only(14)));
    for probe in [true, false] {
        let mut request = Request::new(());
        if probe {
            request.extensions_mut().insert(Probing::new());
        }
        let response = service.call(request).await.unwrap();
        let _ = response.into_body().collect().await;
        assert_eq!(layer.snapshot().is_empty(), probe);
    }
    let mut service = layer.layer(scripted(|| Err(io_error().into())));
    let mut request = Request::new(());
    request.extensions_mut().insert(Probing::new());
    assert!(service.call(request).await.is_err());
    assert_eq!(service.meter().read().charge(), 0);
}

/// P2: a caller that goes away, before the head and in the body.
#[tokio::test(start_paused = true)]
async fn drops_say_nothing() {
    let layer = flat();
    let never = tower::service_fn(|_: Request<()>| pending::<Reply>());
    let mut service = layer.layer(never);
    drop(service.call(Request::new(())));
    assert_eq!(service.meter().read().charge(), 0);
    let mut service = layer.layer(scripted(|| {
        grpc(BodyScript::default().message(b"a").wait())
    }));
    let mut body = head(&mut service).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(service.meter().read().charge(), 0);
    assert!(layer.snapshot().is_empty());
}

/// P2: never a failure, whatever the predicate says: callers that went, time-outs, local refusals.
#[tokio::test(start_paused = true)]
async fn never_a_failure() {
    fn local() -> BoxError {
        let mut status = Status::unavailable("quarantine");
        status.set_source(Arc::new(Local::new(LocalKind::Quarantine, "silent")));
        status.into()
    }
    for layer in [flat(), flat().with_failures(|_| true)] {
        assert!(!costs_in(&layer, || Err(local())).await, "marked as local");
        assert!(
            !costs_in(&layer, || Err(TimeoutExpired(()).into())).await,
            "deadline"
        );
        let mut service = layer.layer(scripted(|| grpc(BodyScript::default().wait())));
        drop(head(&mut service).await);
        assert_eq!(service.meter().read().charge(), 0, "dropped");
    }
}

/// P1: a gap time-out that a layer above noted before it dropped the attempt, before the head and in
/// the body.
#[tokio::test(start_paused = true)]
async fn gap_time_outs() {
    let request = || {
        let attempt = Attempt::new();
        let mut request = Request::new(());
        request.extensions_mut().insert(attempt.clone());
        (request, attempt)
    };
    let layer = flat();
    let mut service = layer.layer(tower::service_fn(|_: Request<()>| pending::<Reply>()));
    for abandon in [false, true] {
        let (request, attempt) = request();
        let call = service.call(request);
        if abandon {
            attempt.abandon(Abandoned::GapTimeout);
        }
        drop(call);
        assert_eq!(
            service.meter().read().charge(),
            if abandon { 25 } else { 0 }
        );
    }
    let mut service = layer.layer(scripted(|| {
        grpc(BodyScript::default().message(b"a").wait())
    }));
    let (request, attempt) = request();
    let mut body = service.call(request).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    attempt.abandon(Abandoned::GapTimeout);
    drop(body);
    assert_eq!(service.meter().read().charge(), 25);
}

/// P1: a gap time-out is about silence: an answer that came all the same is judged by itself.
#[tokio::test(start_paused = true)]
async fn an_answer_beats_the_note() {
    let layer = flat();
    let mut service = layer.layer(scripted(|| trailers_only(0)));
    let attempt = Attempt::new();
    attempt.abandon(Abandoned::GapTimeout);
    let mut request = Request::new(());
    request.extensions_mut().insert(attempt);
    drop(service.call(request).await);
    assert_eq!(service.meter().read().charge(), 0);
}

/// P1: the set is the user's to replace, and it is asked about what ended, not twice about the same.
#[tokio::test(start_paused = true)]
async fn another_predicate() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let layer = flat().with_failures(move |outcome| {
        log.lock().unwrap().push(*outcome);
        *outcome == Outcome::Status(5)
    });
    assert!(!costs_in(&layer, || trailers_only(14)).await);
    assert!(costs_in(&layer, || trailers_only(5)).await);
    let expected = [Outcome::Status(14), Outcome::Status(5)];
    assert_eq!(asked.lock().unwrap()[..], expected);
}

/// X6: a predicate that panics takes its own call down and nothing else.
#[tokio::test(start_paused = true)]
async fn a_predicate_that_panics() {
    let layer = flat().with_failures(|outcome| match outcome {
        Outcome::Status(7) => panic!("the user's bug"),
        other => is_failure(other),
    });
    let mut service = layer.layer(scripted(|| trailers_only(7)));
    let crash = tokio::spawn(async move { whole(&mut service).await });
    assert!(crash.await.unwrap_err().is_panic());
    assert!(costs_in(&layer, || trailers_only(14)).await);
}

/// X6: a task that unwinds drops its exchange without asking: a second panic would end the process.
#[tokio::test(start_paused = true)]
async fn a_predicate_is_not_asked_while_unwinding() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let layer = flat().with_failures(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        panic!("a second panic");
    });
    let mut service = layer.layer(tower::service_fn(|_: Request<()>| pending::<Reply>()));
    let crash = tokio::spawn(async move {
        let attempt = Attempt::new();
        let mut request = Request::new(());
        request.extensions_mut().insert(attempt.clone());
        attempt.abandon(Abandoned::GapTimeout);
        let _call = service.call(request);
        panic!("the first");
    });
    assert!(crash.await.unwrap_err().is_panic());
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// X3: switched off, the layer watches nothing.
#[tokio::test(start_paused = true)]
async fn switched_off() {
    let layer = PenaltyWindowLayer::new(PenaltyConfig {
        enabled: false,
        ..PenaltyConfig::default()
    });
    assert!(!costs_in(&layer.unwrap(), || trailers_only(14)).await);
}

/// X5: each failure is counted by pool and cause.
#[test]
fn metrics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        let layer = PenaltyWindowLayer::new(PenaltyConfig {
            name: "reads".to_owned(),
            ..PenaltyConfig::default()
        });
        let layer = layer.unwrap();
        runtime.block_on(async {
            let mut service = layer.layer(scripted(|| trailers_only(14)));
            whole(&mut service).await;
            whole(&mut service).await;
            let mut service = layer.layer(scripted(|| Err(io_error().into())));
            whole(&mut service).await;
            let mut service = layer.layer(scripted(|| trailers_only(0)));
            whole(&mut service).await;
        });
    });
    let mut counted: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let mut labels: Vec<_> = key
                .key()
                .labels()
                .map(|l| (l.key().to_owned(), l.value().to_owned()))
                .collect();
            labels.sort();
            (key.key().name().to_owned(), labels, value)
        })
        .collect();
    counted.sort_by(|a, b| a.1.cmp(&b.1));
    let row = |cause: &str, n| {
        let labels = vec![
            ("cause".to_owned(), cause.to_owned()),
            ("pool".to_owned(), "reads".to_owned()),
        ];
        (
            "steadfast.penalty".to_owned(),
            labels,
            DebugValue::Counter(n),
        )
    };
    assert_eq!(counted, [row("connection_lost", 1), row("status", 2)]);
}

/// The layer is transparent: head, frames and trailers go up as they came, errors keep their type.
#[tokio::test(start_paused = true)]
async fn passes_everything_on() {
    let layer = flat();
    let mut service = layer.layer(scripted(|| {
        grpc(BodyScript::default().message(b"abc").status(9))
    }));
    let response = head(&mut service).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let all = response.into_body().collect().await.unwrap();
    assert_eq!(all.trailers().unwrap()["grpc-status"], "9");
    assert_eq!(all.to_bytes(), &b"\0\0\0\0\x03abc"[..]);
    let mut service = layer.layer(tower::service_fn(|_: Request<()>| {
        ready(Err::<Response<ScriptBody>, _>(io_error()))
    }));
    let error = service.call(Request::new(())).await.unwrap_err();
    assert!(error.is::<io::Error>());
}
