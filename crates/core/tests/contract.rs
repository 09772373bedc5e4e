//! The contracts of tower and http-body, on what this crate puts around services and bodies.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{Request, Response};
use steadfast_core::{
    BoxError, ChannelLayer, Each, End, InFlightLayer, Keep, Meter, Metered, Observe, Observed,
};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{StrictService, check_body, check_service},
};

fn request() -> Request<()> {
    Request::new(())
}

#[tokio::test(start_paused = true)]
async fn in_flight_keeps_the_service_contract_and_its_count() {
    let meters = Arc::new(Mutex::new(Vec::<Meter>::new()));
    let make = |inner: StrictService| {
        let channel = Metered::new(inner);
        meters.lock().unwrap().push(channel.meter().clone());
        InFlightLayer.layer_channel(channel).into_service()
    };
    check_service(make, request).await.unwrap();
    let meters = meters.lock().unwrap();
    assert!(meters.len() > 5);
    assert!(meters.iter().all(|meter| meter.read().in_flight() == 0));
}

#[tokio::test(start_paused = true)]
async fn metered_passes_everything_on() {
    check_service(Metered::new, request).await.unwrap();
    let kept = |inner| Keep(tower::layer::util::Identity::new()).layer_channel(Metered::new(inner));
    check_service(kept, request).await.unwrap();
}

/// An observer that ends nothing, and one that may: it looks at the waker.
#[derive(Debug)]
struct Looks;

impl Observe for Looks {
    fn waiting(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        // Pending: the test is about the inner body, which holds the waker.
        drop(cx.waker().clone());
        Poll::Pending
    }

    fn end(self, _end: End<'_>) {}
}

#[tokio::test(start_paused = true)]
async fn observed_bodies_keep_the_body_contract() {
    check_body(async |inner: ScriptBody| {
        let response = ready(Ok::<_, BoxError>(Response::new(inner)));
        let observed = Observed::new(response, Looks);
        observed.await.expect("the head came").into_body()
    })
    .await
    .unwrap();
}

/// Two layers, one around the other, as a factory with `Each` makes them.
#[tokio::test(start_paused = true)]
async fn stacked_layers_keep_the_service_contract() {
    use steadfast_core::{ChannelId, NewChannel, Place};
    use tower::Layer;

    // Dialled at once: a closure's dial of a ready service.
    let make = |inner: StrictService| {
        let inner = Mutex::new(Some(inner));
        let factory = move |_: ChannelId, _: Place| {
            let inner = inner.lock().unwrap().take();
            ready(inner.ok_or("dialled twice"))
        };
        let factory = Each(InFlightLayer).layer(Each(InFlightLayer).layer(factory));
        let mut dial = Box::pin(factory.new_channel(ChannelId::next(), &Place::default()));
        let waker = &mut Context::from_waker(std::task::Waker::noop());
        match dial.as_mut().poll(waker) {
            Poll::Ready(Ok(channel)) => channel,
            _ => panic!("the dial waits"),
        }
    };
    check_service(make, request).await.unwrap();
}
