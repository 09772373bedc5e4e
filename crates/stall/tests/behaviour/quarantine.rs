//! S4, S5, S9: what a quarantine does, and how it ends.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use steadfast_core::{Attempt, BoxError, ChannelLayer, Metered, Standing};
use steadfast_stall::{Action, Cause, Condition, StallConfig, StallDetectLayer};
use tokio::time::sleep;
use tower::{Layer, Service};

use crate::common::{
    Asked, Fleet, SECOND, Server, TICK, assert_quarantined, call, probe, read, request, settle,
    spawn_call,
};

/// Four channels, of which the first is in quarantine.
async fn quarantined() -> Fleet {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    let caller = spawn_call(&fleet.channels[0], "/ok");
    fleet.until(0, Condition::Quarantined).await;
    assert_quarantined(&caller.await.unwrap().0.unwrap_err());
    fleet
}

/// S4: every open request ends at once: those before their headers, those in the body, whether they wait
/// or not, and those for which something is ready.
#[tokio::test(start_paused = true)]
async fn every_open_request_ends_at_once() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..4);
    let reader = spawn_call(&fleet.channels[0], "/stream");
    let mut lazy = call(&fleet.channels[0], "/now").await.unwrap().into_body();
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    let before_headers = spawn_call(&fleet.channels[0], "/ok");
    fleet.until(0, Condition::Quarantined).await;
    let began = steadfast_core::now();
    for caller in [reader, before_headers] {
        let (result, ended) = caller.await.unwrap();
        assert_quarantined(&result.unwrap_err());
        assert!(ended - began <= Duration::from_millis(1));
    }
    let frame = lazy.frame().await.unwrap();
    assert_quarantined(&frame.unwrap_err());
    assert!(lazy.frame().await.is_none());
    settle().await;
    assert_eq!(fleet.servers[0].open(), 0, "the streams below are given up");
    assert_eq!(fleet.layer.snapshot()[0].waiting, 0);
}

/// S4: a quarantined channel gets nothing until it is restored. Whoever waits for it is woken then.
#[tokio::test(start_paused = true)]
async fn it_gets_nothing_until_it_is_restored() {
    let fleet = quarantined().await;
    let before = fleet.servers[0].calls();
    let mut channel = fleet.channels[0].clone();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(channel.poll_ready(&mut cx).is_pending());
    let (first, second) = (
        spawn_call(&fleet.channels[0], "/ok"),
        spawn_call(&fleet.channels[0], "/ok"),
    );
    sleep(20 * SECOND).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(fleet.servers[0].calls(), before);
    fleet.servers[0].thaw();
    let restored = fleet.until(0, Condition::Serving).await;
    assert!(restored <= 13 * SECOND, "{restored:?}");
    assert_eq!(fleet.channels[0].meter().read().standing(), Standing::Open);
    assert!(channel.poll_ready(&mut cx).is_ready());
    for caller in [first, second] {
        assert_eq!(caller.await.unwrap().0.unwrap(), 1);
    }
    assert_eq!(fleet.servers[0].calls(), before + 2);
}

/// S4: a call that was on its way to a channel when that was put in quarantine is refused, and its
/// extensions go back to whoever asked for them.
#[tokio::test(start_paused = true)]
async fn a_call_that_comes_all_the_same_is_refused() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..4);
    let mut ready = fleet.channels[0].clone();
    poll_fn(|cx| ready.poll_ready(cx)).await.unwrap();
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    spawn_call(&fleet.channels[0], "/ok");
    fleet.until(0, Condition::Quarantined).await;
    let before = fleet.servers[0].calls();
    let attempt = Attempt::new();
    attempt.keep_extensions();
    let mut refused = request("/ok");
    refused.extensions_mut().insert(attempt.clone());
    refused.extensions_mut().insert("a tenant");
    let error = ready.call(refused).await.unwrap_err();
    assert_quarantined(&error);
    assert_eq!(attempt.take_extensions().unwrap().get(), Some(&"a tenant"));
    assert_eq!(fleet.servers[0].calls(), before);
}

/// A clone doesn't wait for its original's sake: the contract's "a clone starts un-ready".
#[tokio::test(start_paused = true)]
async fn clones_wait_for_themselves() {
    let fleet = quarantined().await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut original = fleet.channels[0].clone();
    assert!(original.poll_ready(&mut cx).is_pending());
    let mut clone = original.clone();
    drop(original);
    let waits = tokio::spawn(async move { poll_fn(|cx| clone.poll_ready(cx)).await });
    fleet.servers[0].thaw();
    fleet.until(0, Condition::Serving).await;
    waits.await.unwrap().unwrap();
}

/// S5: a channel that falls silent again and again is to be replaced: asked for on the meter. One that
/// stays silent for a minute too.
#[tokio::test(start_paused = true)]
async fn a_repeat_offender_and_a_dead_one_are_replaced() {
    let mut fleet = Fleet::new(5);
    fleet.keep_busy(1..5);
    sleep(2 * SECOND).await;
    for time in 1..=3 {
        fleet.servers[0].freeze();
        spawn_call(&fleet.channels[0], "/ok");
        fleet.until(0, Condition::Quarantined).await;
        settle().await;
        let asked = fleet.channels[0].meter().take_replacement();
        assert_eq!(asked.is_some(), time == 3, "{asked:?}");
        fleet.servers[0].thaw();
        fleet.until(0, Condition::Serving).await;
    }
    fleet.servers[1].freeze();
    let dead = fleet.until(1, Condition::Quarantined).await;
    assert!(dead <= 3 * SECOND, "{dead:?}");
    sleep(59 * SECOND).await;
    assert_eq!(fleet.channels[1].meter().take_replacement(), None);
    sleep(2 * SECOND).await;
    assert!(fleet.channels[1].meter().take_replacement().is_some());
    let replaced = |action| match action {
        Action::Replace(_, cause) => Some(cause),
        _ => None,
    };
    let ring = fleet.layer.ring();
    let causes: Vec<_> = ring
        .decisions()
        .filter_map(|(_, it)| replaced(it))
        .collect();
    assert_eq!(causes, [Cause::Strikes(3), Cause::Dead]);
}

/// S6: a channel that leaves the pool during its probe: nobody is asked to replace it, and the read that
/// is stuck on it is ended all the same.
#[tokio::test(start_paused = true)]
async fn one_that_leaves_during_its_probe() {
    let mut fleet = Fleet::new(3);
    fleet.keep_busy([1, 2]);
    let stuck = spawn_call(&fleet.channels[0], "/stream");
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    fleet.until(0, Condition::Suspect).await;
    let left = fleet.channels.remove(0);
    let meter = left.meter().clone();
    drop(left);
    settle().await;
    let (result, _) = stuck.await.unwrap();
    assert_quarantined(&result.unwrap_err());
    settle().await;
    assert_eq!(fleet.layer.snapshot().len(), 2, "then it is gone");
    assert_eq!(meter.take_replacement(), None);
    let ring = fleet.layer.ring();
    let shares = ring.decisions().filter_map(|(_, action)| match action {
        Action::Quarantine(_, share) => Some((share.silent, share.pool)),
        _ => None,
    });
    assert_eq!(
        shares.collect::<Vec<_>>(),
        [(0, 2)],
        "it takes no part of the cap"
    );
}

/// S6: a channel that somebody else holds shut, as a pool does when it drains, isn't in the pool; what is
/// stuck on it is ended too.
#[tokio::test(start_paused = true)]
async fn a_draining_channel_is_not_in_the_pool() {
    let mut fleet = Fleet::new(3);
    fleet.keep_busy([1, 2]);
    let stuck = spawn_call(&fleet.channels[0], "/stream");
    sleep(3 * SECOND).await;
    let pool = fleet.channels[0].meter().owner();
    pool.set_standing(Standing::Shut);
    fleet.servers[0].freeze();
    fleet.servers[1].freeze();
    let (result, _) = stuck.await.unwrap();
    assert_quarantined(&result.unwrap_err());
    fleet.until(1, Condition::Quarantined).await;
    assert_eq!(fleet.condition(2), Condition::Serving);
}

/// S7: a quarantine that drops more streams than the transport remembers gives the channel up: its
/// callers end at once, and it says "discard me".
#[tokio::test(start_paused = true)]
async fn a_channel_with_too_many_resets_is_given_up() {
    let few = StallConfig {
        resets: Some(10),
        ..StallConfig::default()
    };
    let mut fleet = Fleet::with(3, few);
    fleet.keep_busy([1, 2]);
    let streams: Vec<_> = (0..11)
        .map(|_| spawn_call(&fleet.channels[0], "/stream"))
        .collect();
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    let waiting = spawn_unready(&fleet, 0).await;
    fleet.until(0, Condition::GivenUp).await;
    for stream in streams {
        assert_quarantined(&stream.await.unwrap().0.unwrap_err());
    }
    settle().await;
    assert_eq!(fleet.servers[0].open(), 0);
    let meter = fleet.channels[0].meter();
    assert_eq!(meter.read().standing(), Standing::Condemned);
    assert!(meter.condemned_for().unwrap().contains("11 streams"));
    assert_quarantined(&call(&fleet.channels[0], "/ok").await.unwrap_err());
    waiting.abort();
}

/// A task that takes the channel's readiness again and again.
async fn spawn_unready(fleet: &Fleet, channel: usize) -> tokio::task::JoinHandle<()> {
    let mut channel = fleet.channels[channel].clone();
    tokio::spawn(async move {
        while poll_fn(|cx| channel.poll_ready(cx)).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    })
}

/// S9: around one service with nothing else beside it: the probe alone decides, open requests fail, and new
/// ones at once, until it answers again.
#[tokio::test(start_paused = true)]
async fn around_one_channel_alone() {
    let server = Server::new();
    let layer = StallDetectLayer::new(StallConfig::alone(), probe).unwrap();
    let service = layer.layer(server.clone());
    let channel = Metered::new(service);
    sleep(SECOND).await;
    // A server that is slow but answers its probes stays in service.
    server.freeze();
    let slow = spawn_call(&channel, "/ok");
    server.when_asked(Asked::Status(5));
    tokio::spawn({
        let server = server.clone();
        async move {
            sleep(SECOND.mul_f64(1.5)).await;
            server.thaw();
        }
    });
    assert_eq!(slow.await.unwrap().0.unwrap(), 1);
    assert!(server.probes() >= 1);
    server.freeze();
    let began = steadfast_core::now();
    let (result, ended) = spawn_call(&channel, "/ok").await.unwrap();
    assert_quarantined(&result.unwrap_err());
    assert!(ended - began <= 2 * SECOND + TICK);
    let calls = server.calls();
    assert_quarantined(&call(&channel, "/ok").await.unwrap_err());
    assert_eq!(server.calls(), calls);
    server.thaw();
    sleep(13 * SECOND).await;
    assert_eq!(read(call(&channel, "/ok").await.unwrap()).await.unwrap(), 1);
}

/// S9: a call that was refused beforehand is refused, though the channel is restored meanwhile: the inner
/// service wasn't asked whether it is ready.
#[tokio::test(start_paused = true)]
async fn a_refusal_stands() {
    let layer = StallDetectLayer::new(StallConfig::alone(), probe).unwrap();
    let (inner, watch) = steadfast_testkit::contract::StrictService::new();
    watch.hold();
    let mut service = layer.layer(inner);
    async fn ready<S: Service<Request<()>, Error = BoxError>>(service: &mut S) {
        poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    }
    ready(&mut service).await;
    let error = service.call(request("/ok")).await.map(drop).unwrap_err();
    assert_quarantined(&error);
    watch.unready();
    ready(&mut service).await;
    watch.release();
    watch.ready();
    while layer.snapshot()[0].condition != Condition::Serving {
        sleep(Duration::from_millis(10)).await;
    }
    let calls = watch.calls();
    let error = service.call(request("/ok")).await.map(drop).unwrap_err();
    assert_quarantined(&error);
    assert_eq!((watch.calls(), watch.violations()), (calls, Vec::new()));
    ready(&mut service).await;
    service.call(request("/ok")).await.map(drop).unwrap();
}

/// The layer twice on one channel, by mistake: each is a channel to it, and both work.
#[tokio::test(start_paused = true)]
async fn twice_on_one_channel() {
    let layer = StallDetectLayer::new(StallConfig::alone(), probe).unwrap();
    let server = Server::new();
    let once = layer.layer_channel(Metered::new(server.clone()));
    let mut twice = layer.layer_channel(once);
    assert_eq!(layer.snapshot().len(), 2);
    let reply = twice.call(Request::new(())).await.unwrap();
    drop(reply);
    drop(twice);
    settle().await;
    assert_eq!(layer.snapshot().len(), 0);
}

/// X6: a service that panics when it is called leaves nobody waiting.
#[tokio::test(start_paused = true)]
async fn a_panic_leaves_nothing_behind() {
    #[derive(Clone)]
    struct Panics;
    impl Service<Request<()>> for Panics {
        type Response = <Server as Service<Request<()>>>::Response;
        type Error = <Server as Service<Request<()>>>::Error;
        type Future = <Server as Service<Request<()>>>::Future;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            panic!("a test says so")
        }
    }
    let layer = StallDetectLayer::new(StallConfig::default(), probe).unwrap();
    let mut service = layer.layer(Panics);
    let task = tokio::spawn(async move { service.call(request("/ok")).await.map(drop) });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(layer.snapshot().len(), 0);
}
