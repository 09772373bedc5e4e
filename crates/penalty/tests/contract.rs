//! The contracts of tower and http-body, on a service under a penalty window.

use std::{future::ready, sync::Mutex};

use http::{Request, Response};
use steadfast_core::{BoxError, ChannelLayer, Metered};
use steadfast_penalty::PenaltyWindowLayer;
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};
use tower::{Layer, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

#[tokio::test(start_paused = true)]
async fn a_penalty_window_keeps_the_service_contract() {
    let layer = PenaltyWindowLayer::default();
    check_service(|inner| layer.layer(inner), request)
        .await
        .unwrap();
    let channel = |inner: StrictService| layer.layer_channel(Metered::new(inner));
    check_service(channel, request).await.unwrap();
    assert!(layer.snapshot().is_empty(), "every channel has left");
}

#[tokio::test(start_paused = true)]
async fn its_bodies_keep_the_body_contract() {
    let layer = PenaltyWindowLayer::default();
    check_body(async |inner: ScriptBody| {
        let inner = Mutex::new(Some(inner));
        let service = layer.layer(service_fn(move |_: Request<()>| {
            let inner = inner.lock().unwrap().take().expect("called once");
            ready(Ok::<_, BoxError>(Response::new(inner)))
        }));
        service
            .oneshot(request())
            .await
            .expect("the head came")
            .into_body()
    })
    .await
    .unwrap();
}
