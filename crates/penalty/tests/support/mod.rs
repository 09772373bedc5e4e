//! Services that answer by script.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use steadfast_core::{BoxError, ObservedBody};
use steadfast_penalty::{PenaltyConfig, PenaltyObserver, PenaltyWindow, PenaltyWindowLayer};
use steadfast_testkit::body::{BodyScript, ScriptBody};
use tower::Service;

/// What a request gets.
pub(crate) type Reply = Result<Response<ScriptBody>, BoxError>;
pub(crate) type Body = ObservedBody<ScriptBody, PenaltyObserver>;

/// A service that gives each request the same answer, at once.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<dyn Fn() -> Reply + Send + Sync>);

impl Service<Request<()>> for Scripted {
    type Response = Response<ScriptBody>;
    type Error = BoxError;
    type Future = Ready<Reply>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<()>) -> Self::Future {
        ready((self.0)())
    }
}

pub(crate) fn scripted(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted(Arc::new(reply))
}

/// A gRPC answer with this body.
pub(crate) fn grpc(body: BodyScript) -> Reply {
    let head = Response::builder().header("content-type", "application/grpc");
    Ok(head.body(body.start().0).unwrap())
}

/// A gRPC answer with this status in its headers and nothing else.
pub(crate) fn trailers_only(code: u32) -> Reply {
    let head = Response::builder().header("grpc-status", code);
    Ok(head.body(BodyScript::default().start().0).unwrap())
}

pub(crate) fn flat() -> PenaltyWindowLayer {
    PenaltyWindowLayer::new(PenaltyConfig {
        mode: steadfast_penalty::Mode::Flat,
        ..PenaltyConfig::default()
    })
    .unwrap()
}

/// One call up to the head.
pub(crate) async fn head(
    service: &mut PenaltyWindow<Scripted>,
) -> Result<Response<Body>, BoxError> {
    service.call(Request::new(())).await
}

/// One call up to the end of its body.
pub(crate) async fn whole(service: &mut PenaltyWindow<Scripted>) {
    if let Ok(response) = head(service).await {
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }
}
