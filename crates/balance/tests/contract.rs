//! The contracts of tower and http-body, on a pool of one channel.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use steadfast_balance::{Balance, BalanceConfig, BalanceLayer};
use steadfast_core::{BoxError, ChannelId, Place};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};
use tower::{Layer, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

fn pool(inner: StrictService) -> Balance<StrictService> {
    let layer = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
    layer.layer(move |_: ChannelId, _: Place| ready(Ok::<_, BoxError>(inner.clone())))
}

#[tokio::test(start_paused = true)]
async fn a_pool_keeps_the_service_contract() {
    check_service(pool, request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn its_bodies_keep_the_body_contract() {
    check_body(async |inner: ScriptBody| {
        let inner = Arc::new(Mutex::new(Some(inner)));
        let channel = service_fn(move |_: Request<()>| {
            let inner = inner.lock().unwrap().take().expect("called once");
            ready(Ok::<_, BoxError>(Response::new(inner)))
        });
        let layer = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
        let factory = move |_: ChannelId, _: Place| ready(Ok::<_, BoxError>(channel.clone()));
        let pool = layer.layer(factory);
        pool.oneshot(request())
            .await
            .expect("the head came")
            .into_body()
    })
    .await
    .unwrap();
}
