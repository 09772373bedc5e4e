//! The contracts of tower and http-body, on a pool of one channel.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use steadfast_balance::{Balance, BalanceConfig, BalanceLayer};
use steadfast_core::{BoxError, ChannelId, Place};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};
use tower::{Layer, Service, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

fn pool(inner: StrictService) -> Balance<steadfast_core::Bottom<StrictService>> {
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
        let response = pool.oneshot(request()).await.expect("the head came");
        response.into_body()
    })
    .await
    .unwrap();
}

/// A call that its deadline ended while it waited for its channel holds nothing, though its future is kept.
#[tokio::test(start_paused = true)]
async fn a_refused_call_that_is_kept_holds_nothing() {
    let (inner, watch) = StrictService::new();
    watch.unready();
    let mut pool = pool(inner);
    let mut request = request();
    let headers = request.headers_mut();
    headers.insert("grpc-timeout", http::HeaderValue::from_static("1S"));
    let mut call = Box::pin(pool.call(request));
    let ended = tokio::time::timeout(Duration::from_secs(60), call.as_mut()).await;
    ended.expect("it has a deadline").unwrap_err();
    assert_eq!(pool.snapshot().in_flight(), 0);
    drop(pool);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.instances(), 0);
    drop(call);
}
