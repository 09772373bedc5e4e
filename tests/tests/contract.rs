//! The contracts of tower and http-body, on what this family puts together: tonic's body, whole stacks, and the pool.

use std::{
    future::{poll_fn, ready},
    sync::{Arc, Mutex},
    task::Poll,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use steadfast::{
    BalanceConfig, BalanceLayer, BoxError, Config, Each, InFlightLayer, Keep, PenaltyWindowLayer,
    Pool, TonicBodyLayer,
};
use steadfast_core::{ChannelId, Place};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{BodyCheck, Probe, StrictService, check_service},
    peer::{Answer, Peer, Script, Step},
};
use steadfast_tests::{HANG, soon};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

fn request() -> Request<()> {
    Request::new(())
}

#[tokio::test(start_paused = true)]
async fn tonics_body_keeps_the_service_contract() {
    check_service(|inner| TonicBodyLayer.layer(inner), request)
        .await
        .unwrap();
}

/// tonic's own body asks the inner one again when its reader asks again after an error, which http-body leaves open.
#[tokio::test(start_paused = true)]
async fn tonics_body_keeps_the_body_contract() {
    let check = BodyCheck::new(async |inner: ScriptBody| {
        let inner = Mutex::new(Some(inner));
        let service = TonicBodyLayer.layer(service_fn(move |_: Request<()>| {
            let inner = inner.lock().unwrap().take().expect("called once");
            ready(Ok::<_, BoxError>(Response::new(inner)))
        }));
        service
            .oneshot(request())
            .await
            .expect("the head came")
            .into_body()
    });
    check.after_error(false).run().await.unwrap();
}

/// X1: the whole stack over a strict channel, layer upon layer.
#[tokio::test(start_paused = true)]
async fn a_whole_stack_keeps_the_service_contract() {
    let make = |inner: StrictService| {
        let factory = move |_: ChannelId, _: Place| ready(Ok::<_, BoxError>(inner.clone()));
        ServiceBuilder::new()
            .layer(TonicBodyLayer)
            .layer(BalanceLayer::new(BalanceConfig::fixed(1)).unwrap())
            .layer(Each(PenaltyWindowLayer::default()))
            .layer(Each(InFlightLayer))
            .layer(Each(Keep(TonicBodyLayer)))
            .service(factory)
    };
    check_service(make, request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_whole_stack_keeps_the_body_contract() {
    let check = BodyCheck::new(async |inner: ScriptBody| {
        let inner = Arc::new(Mutex::new(Some(inner)));
        let channel = service_fn(move |_: Request<()>| {
            let inner = inner.lock().unwrap().take().expect("called once");
            ready(Ok::<_, BoxError>(Response::new(inner)))
        });
        let factory = move |_: ChannelId, _: Place| ready(Ok::<_, BoxError>(channel.clone()));
        let stack = ServiceBuilder::new()
            .layer(BalanceLayer::new(BalanceConfig::fixed(1)).unwrap())
            .layer(Each(PenaltyWindowLayer::default()))
            .layer(Each(InFlightLayer))
            .service(factory);
        stack
            .oneshot(request())
            .await
            .expect("the head came")
            .into_body()
    });
    check.run().await.unwrap();
}

fn pool(peer: &Peer) -> Pool {
    let config = Config {
        balance: BalanceConfig::fixed(1),
        ..steadfast_tests::lower_layers()
    };
    Pool::builder(peer.uri()).config(config).build().unwrap()
}

fn grpc() -> Request<tonic::body::Body> {
    Request::post("/steadfast.test.Echo/Unary")
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())
        .unwrap()
}

/// X6: the pool over a socket: Pending keeps the last waker and doesn't spin, and a future that resolved holds nothing.
#[tokio::test]
async fn the_pool_waits_without_spinning_and_lets_go() {
    let peer = Peer::start(Script::always(Answer::good().held())).unwrap();
    let mut pool = pool(&peer);
    poll_fn(|cx| pool.poll_ready(cx)).await.unwrap();
    let mut call = Box::pin(pool.call(grpc()));
    let (first, last) = (Probe::new(), Probe::new());
    while !peer.inspect(|state| state.held == 1) {
        let polled = first.poll(|cx| call.as_mut().poll(cx)).await.unwrap();
        assert!(polled.is_pending());
        tokio::select! {
            () = first.woken() => {}
            _ = peer.wait_until(HANG, |state| state.held == 1) => {}
        }
    }
    let polled = last.poll(|cx| call.as_mut().poll(cx)).await.unwrap();
    assert!(polled.is_pending());
    peer.release_all();
    let response = loop {
        soon("news of the call", last.woken()).await;
        if let Poll::Ready(response) = last.poll(|cx| call.as_mut().poll(cx)).await.unwrap() {
            break response.unwrap();
        }
    };
    assert_eq!(pool.snapshot().in_flight(), 1);
    drop(response);
    assert_eq!(pool.snapshot().in_flight(), 0);
    drop(pool);
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .expect("the future that is kept doesn't keep the pool");
    drop(call);
}

/// B1: dropped before the first poll, while it waits for the head, and with the body half read, a call is no longer in flight,
/// and its stream is reset.
#[tokio::test]
async fn dropped_at_each_point_a_call_of_the_pool_is_gone() {
    let half = Script::always(Answer::steps([Step::headers(), Step::good_message()]));
    let peer = Peer::start(half).unwrap();
    let pool = pool(&peer);
    soon("a channel", pool.warm(1)).await.unwrap();
    drop(pool.clone().call(grpc()));
    assert_eq!(pool.snapshot().in_flight(), 0);

    let response = soon("a head", pool.clone().oneshot(grpc())).await.unwrap();
    let mut body = Box::pin(response.into_body());
    let frame = soon("a frame", poll_fn(|cx| body.as_mut().poll_frame(cx))).await;
    let data: Bytes = frame.unwrap().unwrap().into_data().unwrap();
    assert_eq!(data.len(), 10);
    assert_eq!(pool.snapshot().in_flight(), 1);
    drop(body);
    assert_eq!(pool.snapshot().in_flight(), 0);
    peer.wait_until(HANG, |state| {
        state.open_streams() == 0 && state.resets.len() == 1
    })
    .await
    .unwrap();

    let silent = Peer::start(Script::ping_only()).unwrap();
    let pool = self::pool(&silent);
    let call = tokio::spawn(pool.clone().oneshot(grpc()));
    silent
        .wait_until(HANG, |state| state.open_streams() == 1)
        .await
        .unwrap();
    call.abort();
    silent
        .wait_until(HANG, |state| state.resets.len() == 1)
        .await
        .unwrap();
    assert_eq!(pool.snapshot().in_flight(), 0);
}
