//! The contracts of tower and http-body, on a service under stall detection.

use std::{future::ready, sync::Mutex};

use http::{Request, Response};
use steadfast_core::{BoxError, ChannelLayer, Metered, Place};
use steadfast_stall::{StallConfig, StallDetectLayer};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};
use tower::{Layer, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

fn layer(config: StallConfig) -> StallDetectLayer<()> {
    StallDetectLayer::new(config, |_: &Place| Ok(request())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn stall_detection_keeps_the_service_contract() {
    let off = StallConfig {
        enabled: false,
        ..StallConfig::default()
    };
    for config in [StallConfig::default(), StallConfig::alone(), off] {
        let layer = layer(config);
        check_service(|inner| layer.layer(inner), request)
            .await
            .unwrap();
        let channel =
            |inner: StrictService| layer.layer_channel(Metered::new(inner)).into_service();
        check_service(channel, request).await.unwrap();
        assert!(layer.snapshot().is_empty(), "every channel has left");
    }
}

#[tokio::test(start_paused = true)]
async fn its_bodies_keep_the_body_contract() {
    let layer = layer(StallConfig::default());
    check_body(async |inner: ScriptBody| {
        let inner = std::sync::Arc::new(Mutex::new(Some(inner)));
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
