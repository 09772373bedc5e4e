//! Deadlines, exact on the paused clock, in each phase of a call.

use std::{future::pending, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use steadfast_classify::{call_error, deadline};
use steadfast_core::{BoxError, Local, LocalKind, Outcome, now};
use steadfast_retry::{DeadlineConfig, DeadlineLayer, RetryConfig};
use steadfast_testkit::body::{BodyScript, ScriptBody};
use tonic::{Code, Status, TimeoutExpired, body::Body};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    MS, layer,
    support::{HELD, OTHER, Pool, Reply, STREAM, body, good, grpc, request, whole},
};

const S: Duration = Duration::from_secs(1);

fn default(deadline: Duration) -> DeadlineLayer {
    let config = DeadlineConfig {
        default: Some(deadline),
    };
    DeadlineLayer::new(config).unwrap()
}

fn timed(path: &str, timeout: Duration) -> Request<Body> {
    let mut request = request(path, b"");
    deadline::write(request.headers_mut(), timeout);
    request
}

/// What ended a call: DEADLINE_EXCEEDED, made locally, in this phase.
fn assert_over(error: &BoxError, phase: &str) {
    let status: &Status = error.downcast_ref().expect("a status, not wrapped");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains(phase), "{status}");
    assert_eq!(Local::find(&**error).unwrap().kind(), LocalKind::Deadline);
    assert_eq!(call_error(&**error), Outcome::Local(LocalKind::Deadline));
}

/// The error of a call with each deadline that one can have, and that it came in time.
async fn over<F: Future<Output = Result<(Bytes, u32), BoxError>>>(
    call: impl Fn(DeadlineLayer, Request<Body>) -> F,
    path: &str,
    phase: &str,
) {
    let own = DeadlineLayer::default().method(path, 1_500 * MS).unwrap();
    for (layer, request) in [
        (DeadlineLayer::default(), timed(path, 1_500 * MS)),
        (default(1_500 * MS), request(path, b"")),
        (own, request(path, b"")),
        (default(MS), timed(path, 1_500 * MS)),
    ] {
        let began = now();
        let error = call(layer, request).await.unwrap_err();
        assert_eq!(now() - began, 1_500 * MS);
        assert_over(&error, phase);
        assert!(error.to_string().contains("1.5s"), "{error}");
    }
}

/// M1: while the call waits for a channel.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_channel() {
    let waits = service_fn(|_: Request<Body>| pending::<Result<Response<ScriptBody>, BoxError>>());
    let call = |layer: DeadlineLayer, request| whole(layer.layer(waits), request);
    over(call, OTHER, "phase: channel").await;
}

/// M1: while it waits for the reply's head, or for a reply that is kept.
#[tokio::test(start_paused = true)]
async fn waiting_for_the_head() {
    for path in [OTHER, HELD, STREAM] {
        let call = |deadline: DeadlineLayer, request| {
            let pool = Pool::new(|_| None);
            let retry = layer(RetryConfig::default()).layer(pool);
            whole(deadline.layer(retry), request)
        };
        over(call, path, "phase: headers").await;
    }
    let call = |deadline: DeadlineLayer, request| {
        let pool = Pool::new(|_| grpc(BodyScript::default().message(b"x").wait()));
        let retry = layer(RetryConfig::default()).layer(pool);
        whole(deadline.layer(retry), request)
    };
    over(call, HELD, "phase: headers").await;
}

/// M1: while the reply is read.
#[tokio::test(start_paused = true)]
async fn reading_the_reply() {
    for path in [OTHER, STREAM] {
        let call = |deadline: DeadlineLayer, request| {
            let pool = Pool::new(|_| grpc(BodyScript::default().message(b"x").wait()));
            let retry = layer(RetryConfig::default()).layer(pool);
            whole(deadline.layer(retry), request)
        };
        over(call, path, "phase: body").await;
    }
}

fn pushes_back() -> Reply {
    let head = Response::builder()
        .header("grpc-status", "14")
        .header("grpc-retry-pushback-ms", "1000");
    Some(Ok(head.body(body(BodyScript::default())).unwrap()))
}

/// M1, R6: between attempts. Without `DeadlineLayer` too, if the caller set the deadline.
#[tokio::test(start_paused = true)]
async fn between_attempts() {
    let retry = || {
        let mut config = RetryConfig::default();
        config.retry_on.unavailable = true;
        layer(config).layer(Pool::scripted([pushes_back]))
    };
    let call = |deadline: DeadlineLayer, request| whole(deadline.layer(retry()), request);
    for (layer, request) in [
        (DeadlineLayer::default(), timed(HELD, 1_500 * MS)),
        (default(1_500 * MS), request(HELD, b"")),
    ] {
        let began = now();
        let error = call(layer, request).await.unwrap_err();
        assert_eq!(now() - began, 1_500 * MS);
        assert_over(&error, "between attempts");
        let text = error.to_string();
        assert!(
            text.contains("grpc-status 14") && text.contains("after 2 attempts"),
            "{text}"
        );
    }
    let began = now();
    let error = whole(retry(), timed(HELD, 1_500 * MS)).await.unwrap_err();
    assert_eq!(now() - began, 1_500 * MS);
    assert_over(&error, "between attempts");
}

/// M1: the default is sent on; what the caller set stays, and so does what can't be read, which is no
/// deadline here as it is none on the server.
#[tokio::test(start_paused = true)]
async fn it_is_sent_on() {
    let deadlines = default(20 * S).method(HELD, 3 * S).unwrap();
    let rows = [
        (request(OTHER, b""), Some("20000000u")),
        (request(HELD, b""), Some("3000000u")),
        (timed(HELD, S), Some("1000000u")),
        (timed(HELD, 100 * S), Some("100000m")),
    ];
    for (request, expected) in rows {
        let pool = Pool::scripted([good]);
        whole(deadlines.layer(boxed(&pool)), request).await.unwrap();
        let seen = &pool.seen()[0].headers;
        let sent = seen
            .get("grpc-timeout")
            .map(|value| value.to_str().unwrap());
        assert_eq!(sent, expected);
    }
    let pool = Pool::new(|_| None);
    let mut odd = request(HELD, b"");
    odd.headers_mut()
        .insert("grpc-timeout", "soon".parse().unwrap());
    let call = whole(deadlines.layer(boxed(&pool)), odd);
    tokio::time::timeout(3_600 * S, call).await.unwrap_err();
    assert_eq!(pool.seen()[0].headers["grpc-timeout"], "soon");
    let pool = Pool::scripted([good]);
    whole(
        DeadlineLayer::default().layer(boxed(&pool)),
        request(HELD, b""),
    )
    .await
    .unwrap();
    assert!(!pool.seen()[0].headers.contains_key("grpc-timeout"));
}

fn boxed(pool: &Pool) -> steadfast_retry::Retry<Pool> {
    layer(RetryConfig::default()).layer(pool.clone())
}

/// M1, R6: a default deadline goes with each attempt as what is left of it.
#[tokio::test(start_paused = true)]
async fn attempts_carry_what_is_left_of_a_default() {
    let pool = Pool::scripted([pushes_back, good]);
    let mut config = RetryConfig::default();
    config.retry_on.unavailable = true;
    let retry = layer(config).layer(pool.clone());
    whole(default(5 * S).layer(retry), request(HELD, b""))
        .await
        .unwrap();
    let left = |number: usize| deadline::read(&pool.seen()[number].headers).unwrap();
    assert_eq!([left(0), left(1)], [5 * S, 4 * S]);
}

/// M1: the transport's own time-out for the same deadline is the deadline, with the transport's error as its
/// source; an earlier one isn't.
#[tokio::test(start_paused = true)]
async fn the_transports_time_out() {
    for (after, over) in [(1_500 * MS, true), (1_499 * MS, true), (400 * MS, false)] {
        let service = service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(after).await;
            Err::<Response<ScriptBody>, _>(BoxError::from(TimeoutExpired(())))
        });
        let call = DeadlineLayer::default()
            .layer(service)
            .oneshot(timed(OTHER, 1_500 * MS));
        let error = call.await.unwrap_err();
        if over {
            assert_over(&error, "phase: channel");
            let mut source: &(dyn std::error::Error + 'static) = &*error;
            while let Some(next) = source.source() {
                source = next;
            }
            assert!(source.is::<TimeoutExpired>());
        } else {
            assert!(error.is::<TimeoutExpired>());
        }
    }
}

/// M1, X6: a server that always has more to say doesn't outlast the deadline, and what came before it was
/// read.
#[tokio::test(start_paused = true)]
async fn an_endless_reply() {
    let pool = Pool::new(|_| {
        let script = (0..1_000).fold(BodyScript::default(), |script, _| script.message(b"x"));
        grpc(script)
    });
    let call = default(S).layer(boxed(&pool)).oneshot(request(OTHER, b""));
    let mut body = Box::pin(call.await.unwrap().into_body());
    for _ in 0..100 {
        body.frame().await.unwrap().unwrap();
        tokio::time::advance(10 * MS).await;
    }
    assert_over(&body.frame().await.unwrap().unwrap_err(), "phase: body");
    assert!(body.frame().await.is_none());
}

/// M1: a reply that ended in time is left alone, whenever it is read on.
#[tokio::test(start_paused = true)]
async fn a_reply_in_time() {
    let pool = Pool::scripted([good]);
    let call = default(S).layer(boxed(&pool)).oneshot(request(OTHER, b""));
    let mut body = Box::pin(call.await.unwrap().into_body());
    body.frame().await.unwrap().unwrap();
    let trailers = body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_trailers()
        .unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    tokio::time::advance(2 * S).await;
    assert!(body.frame().await.is_none());
}

/// X3: deadlines that are out of their range, and names that are none.
#[test]
fn settings() {
    for bad in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
        let config = DeadlineConfig { default: Some(bad) };
        let error = DeadlineLayer::new(config).unwrap_err();
        assert_eq!(error.field(), "deadline.default");
        assert_eq!(error.value(), format!("{bad:?}"));
        let error = DeadlineLayer::default().method(HELD, bad).unwrap_err();
        assert_eq!(error.field(), "deadline.method");
    }
    let error = DeadlineLayer::default().method("Get", S).unwrap_err();
    assert!(error.to_string().contains("\"Get\""), "{error}");
    let year = Duration::from_secs(31_557_600);
    assert!(DeadlineLayer::default().method(HELD, MS).is_ok());
    assert!(DeadlineLayer::default().method(HELD, year).is_ok());
}

/// M1: what a server says of the deadline that it knows too, as CANCELLED, is the deadline, to a caller that looks only
/// when it has passed; before that, and without a deadline, it is the server's.
#[tokio::test(start_paused = true)]
async fn a_servers_word_after_the_deadline_is_the_deadline() {
    for (limit, over) in [(Some(S), true), (Some(3 * S), false), (None, false)] {
        let server = service_fn(async |_: Request<Body>| {
            tokio::time::sleep(S / 2).await;
            crate::support::status(1).expect("it answers")
        });
        let request = match limit {
            Some(limit) => timed(OTHER, limit),
            None => request(OTHER, b""),
        };
        let mut call = std::pin::pin!(DeadlineLayer::default().layer(server).oneshot(request));
        // It is sent, and nobody looks until two seconds are over.
        assert!(crate::support::poll_once(&mut call).await.is_pending());
        tokio::time::sleep(2 * S).await;
        match call.await {
            Err(error) => {
                assert!(over, "{error}");
                assert_over(&error, "passed while it waited");
            }
            Ok(response) => {
                assert!(!over);
                assert_eq!(response.headers()["grpc-status"], "1");
            }
        }
    }
}
