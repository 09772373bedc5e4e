//! The contracts of tower and http-body, on a service whose calls wait for places.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use steadfast_core::BoxError;
use steadfast_sparse::{SparseConfig, SparseFlowLayer};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};
use tower::{Layer, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_service_contract() {
    let layer = SparseFlowLayer::client(SparseConfig::default()).unwrap();
    check_service(|inner: StrictService| layer.layer(inner), request)
        .await
        .unwrap();
    assert_eq!(layer.snapshot(), steadfast_sparse::SparseReading::default());
}

#[tokio::test(start_paused = true)]
async fn its_bodies_keep_the_body_contract() {
    let layer = SparseFlowLayer::client(SparseConfig::default()).unwrap();
    check_body(async |inner: ScriptBody| {
        let inner = Arc::new(Mutex::new(Some(inner)));
        let service = layer.layer(service_fn(move |_: Request<()>| {
            let inner = inner.lock().unwrap().take().expect("called once");
            ready(Ok::<_, BoxError>(Response::new(inner)))
        }));
        let response = service.oneshot(request()).await.expect("the head came");
        response.into_body()
    })
    .await
    .unwrap();
}
