//! What the tests of the layer share.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use steadfast_core::BoxError;
use steadfast_sparse::{FlowId, SparseConfig, SparseFlow, SparseFlowLayer};
use steadfast_testkit::body::ScriptBody;
use tower::{Layer, Service};

/// A bound on what needs no time at all; the clock is paused.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Waits until nothing else can go on without time passing.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_nanos(1)).await;
}

/// A request of this flow.
pub(crate) fn of(flow: &str) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(FlowId::of(flow));
    request
}

/// A service that answers with the bodies it is given, the last one first, and notes the requests.
#[derive(Clone, Default)]
pub(crate) struct Inner {
    bodies: Arc<Mutex<Vec<ScriptBody>>>,
    calls: Arc<Mutex<Vec<Request<()>>>>,
}

impl Inner {
    pub(crate) fn give(&self, body: ScriptBody) {
        self.bodies.lock().unwrap().push(body);
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    pub(crate) fn last(&self) -> Request<()> {
        self.calls.lock().unwrap().pop().expect("a call came")
    }
}

impl Service<Request<()>> for Inner {
    type Response = Response<ScriptBody>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(
        &mut self,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.calls.lock().unwrap().push(request);
        let body = self.bodies.lock().unwrap().pop();
        ready(Ok(Response::new(
            body.unwrap_or_else(|| ScriptBody::new().start().0),
        )))
    }
}

/// A client's layer, a service of it, and what is below.
pub(crate) fn start(config: SparseConfig) -> (SparseFlowLayer, SparseFlow<Inner>, Inner) {
    let layer = SparseFlowLayer::client(config).unwrap();
    let inner = Inner::default();
    (layer.clone(), layer.layer(inner.clone()), inner)
}

/// The settings with this many places.
pub(crate) fn places(places: u32) -> SparseConfig {
    SparseConfig {
        places,
        ..SparseConfig::default()
    }
}

/// How many calls run and wait.
pub(crate) fn counts(layer: &SparseFlowLayer) -> (u32, u32) {
    let reading = layer.snapshot();
    (reading.running.iter().sum(), reading.waiting.iter().sum())
}
