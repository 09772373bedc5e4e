//! The contracts of tower and http-body.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use steadfast_core::BoxError;
use steadfast_resume::{
    BidiRule, Conversation, Pass, Progress, Rest, ResumableBody, ResumableStreamLayer,
    ResumeConfig, Rule,
};
use steadfast_testkit::{
    body::{BodyScript, ScriptBody},
    contract::{Violation, check_body, check_service},
};
use tower::{Layer, ServiceExt, service_fn};

const STREAM: &str = "/a.B/Stream";
const BIDI: &str = "/a.B/Bidi";
const OTHER: &str = "/a.B/Other";

/// Never resumes.
struct Never(&'static str);

impl Rule for Never {
    fn method(&self) -> &str {
        self.0
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(Self(self.0)))
    }
}

impl Progress for Never {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::cannot("never"))
    }
}

impl BidiRule for Never {
    fn method(&self) -> &str {
        self.0
    }

    fn begin(&self) -> Arc<dyn Conversation> {
        Arc::new(Self(self.0))
    }
}

impl Conversation for Never {
    fn sent(&self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn received(&self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&self) -> Result<Rest, BoxError> {
        Ok(Rest::cannot("never"))
    }
}

fn layer() -> ResumableStreamLayer {
    // Once, so that a failure goes up as it came.
    let config = ResumeConfig {
        max_attempts: 1,
        ..ResumeConfig::default()
    };
    let layer = ResumableStreamLayer::new(config).unwrap();
    let layer = layer.rule(Never(STREAM)).unwrap();
    layer.bidi_rule(Never(BIDI)).unwrap()
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

fn request(path: &str) -> Request<tonic::body::Body> {
    let body = BodyScript::default().message(b"abc").start().0;
    Request::post(path)
        .body(tonic::body::Body::new(body))
        .unwrap()
}

/// The service's contract, with a rule and without one.
#[tokio::test(start_paused = true)]
async fn the_service_keeps_its_contract() {
    for path in [OTHER, STREAM, BIDI] {
        let checked = check_service(|inner| layer().layer(inner), || request(path)).await;
        checked.unwrap_or_else(|found| panic!("{path}: {found}"));
    }
}

/// A reply with this body, through the layer.
async fn through<B>(inner: B, path: &str) -> ResumableBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let inner = Arc::new(Mutex::new(Some(inner)));
    let service = service_fn(move |_: Request<tonic::body::Body>| {
        let inner = inner.lock().unwrap().take().expect("called once");
        // A status in the head: no end of the body is a failure.
        let head = Response::builder().header("grpc-status", "0");
        ready(Ok::<_, BoxError>(head.body(inner).unwrap()))
    });
    let response = layer().layer(service).oneshot(request(path)).await;
    response.expect("the head came").into_body()
}

/// The same, in which each frame is a message below the layer.
async fn messages(
    inner: ScriptBody,
    path: &str,
) -> impl Body<Data = Bytes, Error = BoxError> + Unpin + use<> {
    let inner = inner.map_frame(|frame| frame.map_data(|data| framed(&data)));
    let body = through(inner, path).await;
    body.map_frame(|frame| frame.map_data(|data| data.slice(5..)))
}

/// A body that passes through says of itself what the inner one does.
#[tokio::test(start_paused = true)]
async fn a_body_that_passes_keeps_its_contract() {
    check_body(async |inner: ScriptBody| through(inner, OTHER).await)
        .await
        .unwrap();
}

/// A stream that may go on can't know how much comes, or that nothing does; else it keeps the contract.
#[tokio::test(start_paused = true)]
async fn a_stream_keeps_its_contract() {
    for path in [STREAM, BIDI] {
        let checked = check_body(async |inner: ScriptBody| messages(inner, path).await).await;
        let allowed = |violation: &Violation| {
            matches!(
                violation,
                Violation::SizeHintLost | Violation::EndStreamLost
            )
        };
        if let Err(found) = checked {
            let others: Vec<_> = found.iter().filter(|(_, found)| !allowed(found)).collect();
            assert!(others.is_empty(), "{path}: {others:?}");
        }
    }
}
