//! The contracts of tower and http-body, on services under both layers.

use std::{future::ready, sync::Mutex, time::Duration};

use http::{Request, Response};
use steadfast_core::BoxError;
use steadfast_retry::{DeadlineConfig, DeadlineLayer, Kind, RetryConfig, RetryLayer};
use steadfast_testkit::{
    body::{BodyScript, ScriptBody},
    contract::{Violation, check_body, check_service},
};
use tonic::body::Body;
use tower::{Layer, ServiceExt, service_fn};

const HELD: &str = "/a.B/Held";
const STREAM: &str = "/a.B/Stream";
const OTHER: &str = "/a.B/Other";

fn retry(change: impl FnOnce(&mut RetryConfig)) -> RetryLayer {
    let mut config = RetryConfig::default();
    change(&mut config);
    let layer = RetryLayer::new(config).unwrap();
    let layer = layer.idempotent(HELD, Kind::Held).unwrap();
    layer.idempotent(STREAM, Kind::Streaming).unwrap()
}

fn deadline() -> DeadlineLayer {
    let default = Some(Duration::from_secs(3_600));
    DeadlineLayer::new(DeadlineConfig { default }).unwrap()
}

fn request(path: &str) -> Request<Body> {
    let body = BodyScript::default().message(b"abc").start().0;
    Request::post(path).body(Body::new(body)).unwrap()
}

/// The service's contract: with a reply that is kept, a stream, and neither; and where attempts have a
/// time-out, so that all of them are sent on the slow path.
#[tokio::test(start_paused = true)]
async fn retry_keeps_the_service_contract() {
    for timeout in [None, Some(Duration::from_secs(3_600))] {
        let layer = retry(|config| config.attempt_timeout = timeout);
        for path in [OTHER, HELD, STREAM] {
            let checked = check_service(|inner| layer.layer(inner), || request(path)).await;
            checked.unwrap_or_else(|found| panic!("{path} {timeout:?}: {found}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_keeps_the_service_contract() {
    for layer in [deadline(), DeadlineLayer::default()] {
        let over = |inner| layer.layer(inner);
        check_service(over, || request(OTHER)).await.unwrap();
        let both = |inner| layer.layer(retry(|_| {}).layer(inner));
        check_service(both, || request(HELD)).await.unwrap();
    }
}

/// A reply with this body, through a layer.
async fn through<S, B>(inner: ScriptBody, path: &str, wrap: impl FnOnce(Once) -> S) -> B
where
    S: tower::Service<Request<Body>, Response = Response<B>, Error = BoxError>,
{
    let inner = std::sync::Arc::new(Mutex::new(Some(inner)));
    let service: Once = tower::util::BoxCloneService::new(service_fn(move |_: Request<Body>| {
        let inner = inner.lock().unwrap().take().expect("called once");
        // A status in the head: no end of the body is a failure.
        let head = Response::builder().header("grpc-status", "0");
        ready(Ok::<_, BoxError>(head.body(inner).unwrap()))
    }));
    let response = wrap(service).oneshot(request(path)).await;
    response.expect("the head came").into_body()
}

type Once = tower::util::BoxCloneService<Request<Body>, Response<ScriptBody>, BoxError>;

/// A body that passes through says of itself what the inner one does.
#[tokio::test(start_paused = true)]
async fn its_bodies_keep_the_body_contract() {
    let layer = retry(|_| {});
    let over = |inner| layer.layer(inner);
    check_body(async |inner: ScriptBody| through(inner, OTHER, over).await)
        .await
        .unwrap();
    let timed = deadline();
    for layer in [DeadlineLayer::default(), timed] {
        let over = |inner| layer.layer(inner);
        check_body(async |inner: ScriptBody| through(inner, OTHER, over).await)
            .await
            .unwrap();
    }
}

/// A stream that may be repeated yet can't know how much comes; else it keeps the contract, and so does a
/// reply that was too large to be kept.
#[tokio::test(start_paused = true)]
async fn streams_and_large_replies_keep_the_body_contract() {
    // Once is all that an idempotent call is sent, so that a failure goes up as it came.
    let once = retry(|config| (config.attempts, config.reply_limit) = (1, 0));
    let over = |inner| once.layer(inner);
    let checked = check_body(async |inner: ScriptBody| through(inner, STREAM, over).await).await;
    let allowed = |violation: &Violation| {
        matches!(
            violation,
            Violation::SizeHintLost | Violation::EndStreamLost
        )
    };
    if let Err(found) = checked {
        let others: Vec<_> = found.iter().filter(|(_, found)| !allowed(found)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
