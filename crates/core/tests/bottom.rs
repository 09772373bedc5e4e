//! The bottom of a channel: S3's moment at which a probe has left, T1's extensions that come back, and
//! what stall detection and a pool say to each other on a meter (S5, S6).

mod support;

use std::{
    future::{Ready, pending, ready},
    sync::Arc,
    task::{Context, Poll},
};

use http::{Extensions, Request};
use steadfast_core::{
    Attempt, BottomLayer, BoxError, ChannelId, Keep, Meter, Metered, NewChannel, Outcome, Place,
    Probing, Standing, Verdict, at_bottom,
};
use support::Wakes;
use tower::Service;
use tower_layer::Layer;

/// Answers with the number of extensions that it was given.
#[derive(Clone, Debug, Default)]
struct Transport;

impl Service<Request<()>> for Transport {
    type Response = usize;
    type Error = BoxError;
    type Future = Ready<Result<usize, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        ready(Ok(request.extensions().len()))
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Token(u32);

fn request(attempt: Option<Attempt>) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(Token(7));
    if let Some(attempt) = attempt {
        request.extensions_mut().insert(attempt);
    }
    request
}

/// S3: a probe is told when it reaches the transport, and not before; who waits for it is woken.
#[tokio::test]
async fn a_probe_is_told_when_it_reaches_the_transport() {
    let probe = Probing::new();
    let mut request = request(None);
    assert!(!Probing::is_on(request.extensions()));
    request.extensions_mut().insert(probe.clone());
    assert!(Probing::is_on(request.extensions()));
    let wakes = Arc::new(Wakes::default());
    let waker = wakes.clone().into();
    let mut cx = Context::from_waker(&waker);
    let mut reached = Box::pin(probe.reached());
    assert!(reached.as_mut().poll(&mut cx).is_pending());
    let mut service = BottomLayer.layer(Transport);
    assert!(!probe.has_reached());
    service.call(request).await.unwrap();
    assert!(probe.has_reached());
    assert_eq!(wakes.count(), 1);
    assert!(reached.as_mut().poll(&mut cx).is_ready());
    probe.reached().await;
}

/// S3: a factory that is a closure has a bottom, below every layer that is put on its channels.
#[tokio::test]
async fn a_closure_has_a_bottom() {
    let factory = |_id: ChannelId, _place: Place| ready(Ok::<_, BoxError>(Transport));
    let channel = factory.new_channel(ChannelId::next(), &Place::default());
    let mut service = channel.await.unwrap().into_service();
    let probe = Probing::new();
    let mut request = request(None);
    request.extensions_mut().insert(probe.clone());
    service.call(request).await.unwrap();
    assert!(probe.has_reached());
}

/// T1: an attempt that asks for them gets the request's extensions back, itself apart, and the
/// transport gets none.
#[tokio::test]
async fn extensions_come_back_to_who_asked() {
    let mut service = BottomLayer.layer(Transport);
    let attempt = Attempt::new();
    attempt.keep_extensions();
    let seen = service.call(request(Some(attempt.clone()))).await.unwrap();
    assert_eq!(seen, 0);
    let back = attempt.take_extensions().unwrap();
    assert_eq!(back.get(), Some(&Token(7)));
    assert!(back.get::<Attempt>().is_none(), "it would hold itself");
    assert!(attempt.take_extensions().is_none(), "once");
}

/// T1: who didn't ask pays nothing, and the transport sees all.
#[tokio::test]
async fn extensions_stay_where_nobody_asked() {
    let mut service = BottomLayer.layer(Transport);
    let attempt = Attempt::new();
    let seen = service.call(request(Some(attempt.clone()))).await.unwrap();
    assert_eq!(seen, 2);
    assert!(attempt.take_extensions().is_none());
    assert_eq!(service.call(request(None)).await.unwrap(), 1);
    at_bottom(&mut Extensions::new());
}

/// T2: a pool that refuses a request hands its extensions back too, if they were asked for.
#[test]
fn a_refused_request_gives_its_extensions_back() {
    let attempt = Attempt::new();
    attempt.keep_extensions();
    Attempt::refused(request(Some(attempt.clone())).extensions_mut());
    assert_eq!(attempt.take_extensions().unwrap().get(), Some(&Token(7)));
    let attempt = Attempt::new();
    let mut kept = request(Some(attempt.clone()));
    Attempt::refused(kept.extensions_mut());
    assert!(attempt.take_extensions().is_none());
    assert_eq!(kept.extensions().len(), 2);
}

/// S6: what an owner says of itself isn't what the others say.
#[test]
fn an_owner_sees_what_the_others_say() {
    let meter = Meter::new();
    let (pool, stall) = (meter.owner(), meter.owner());
    stall.set_standing(Standing::Shut);
    assert_eq!(stall.others(), Standing::Open);
    assert_eq!(pool.others(), Standing::Shut);
    pool.set_standing(Standing::Reserve);
    assert_eq!(stall.others(), Standing::Reserve);
    pool.condemn("the connection is gone");
    drop(pool);
    assert_eq!(stall.others(), Standing::Condemned, "that stays");
}

/// S5: a replacement is asked for, heard once, and rings the pool; the standing doesn't change.
#[tokio::test]
async fn a_replacement_is_asked_for() {
    let meter = Meter::new();
    let owner = meter.owner();
    let bell = Arc::new(tokio::sync::Notify::new());
    meter.ring_on_change(Arc::clone(&bell));
    let mut rung = Box::pin(bell.notified());
    rung.as_mut().enable();
    assert_eq!(meter.take_replacement(), None);
    owner.ask_for_replacement("quarantined 3 times");
    rung.await;
    assert_eq!(meter.read().standing(), Standing::Open);
    let asked = meter.take_replacement();
    assert_eq!(asked.as_deref(), Some("quarantined 3 times"));
    assert_eq!(meter.take_replacement(), None);
}

/// B6, S2: a layer's probe travels with the channel past the layers above it; the outermost decides.
#[tokio::test]
async fn a_warm_up_travels_with_the_channel() {
    let channel = Metered::new(Transport);
    assert!(channel.warm_up().is_none());
    let inner = channel.with_warm_up(Arc::new(|_| Box::pin(pending())));
    let outer = inner.with_warm_up(Arc::new(|_| {
        Box::pin(ready(Verdict::Answered(Outcome::Status(12))))
    }));
    let layered = steadfast_core::ChannelLayer::layer_channel(&Keep(BottomLayer), outer);
    let warm_up = layered.warm_up().unwrap().clone();
    let verdict = warm_up(std::time::Duration::from_secs(1)).await;
    assert!(matches!(verdict, Verdict::Answered(Outcome::Status(12))));
    assert_eq!(verdict.to_string(), "answered: grpc-status 12");
    let lost = Verdict::NotAttempted("no token".into());
    assert_eq!(lost.to_string(), "not attempted: no token");
    let silent = Verdict::NoAnswer(Outcome::Timeout);
    assert_eq!(silent.to_string(), "no answer: timeout");
}
