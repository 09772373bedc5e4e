//! S10: silence is believed only if this process was on time; and the task that tells.

use std::time::Duration;

use steadfast_stall::{Action, Condition, StallConfig};
use tokio::time::{advance, sleep};

use crate::common::{Asked, Fleet, SECOND, settle, spawn_call};

fn local_stalls(fleet: &Fleet) -> usize {
    let ring = fleet.layer.ring();
    let stalls = ring.decisions();
    stalls
        .filter(|(_, it)| matches!(it, Action::LocalStall(_)))
        .count()
}

/// S10: time that passed while nothing of ours ran, as when the process is stopped: nothing is
/// quarantined, whatever was going on, and it is counted.
#[tokio::test(start_paused = true)]
async fn a_stopped_process_quarantines_nothing() {
    for stop in [5 * SECOND, 3 * SECOND, SECOND / 2] {
        let mut fleet = Fleet::new(4);
        fleet.keep_busy(0..4);
        sleep(3 * SECOND).await;
        for (channel, into_silence) in [(0, 900), (1, 1_500), (2, 10)] {
            fleet.servers[channel].freeze();
            sleep(Duration::from_millis(into_silence)).await;
            advance(stop).await;
            fleet.servers[channel].thaw();
            sleep(3 * SECOND).await;
        }
        assert_eq!(local_stalls(&fleet), 3, "{}", fleet.layer.ring());
        let ring = fleet.layer.ring();
        let quarantined = |it: &Action| matches!(it, Action::Quarantine(..));
        assert!(!ring.decisions().any(|(_, it)| quarantined(&it)), "{ring}");
    }
}

/// S10: a probe whose time ran out while the process stood still gives no verdict, though its time-out is
/// seen before the pacemaker is.
#[tokio::test(start_paused = true)]
async fn a_probe_that_ran_out_meanwhile_says_nothing() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    fleet.until(0, Condition::Suspect).await;
    advance(5 * SECOND).await;
    settle().await;
    assert_eq!(local_stalls(&fleet), 1);
    assert_eq!(fleet.condition(0), Condition::Serving);
    // It is silent still, and that is found out.
    let took = fleet.until(0, Condition::Quarantined).await;
    assert!(took <= 4 * SECOND, "{took:?}");
}

/// S10: nor does one whose end is seen before the pacemaker has its turn. On the real clock, as only that
/// moves while nothing else does.
#[test]
fn a_probe_that_ends_before_the_pacemakers_turn_says_nothing() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().unwrap();
    runtime.block_on(async {
        let config = StallConfig {
            silence: Duration::from_millis(200),
            tick: Duration::from_millis(10),
            tolerance: Duration::from_millis(100),
            ..StallConfig::default()
        };
        let mut fleet = Fleet::with(4, config);
        fleet.keep_busy(1..4);
        fleet.servers[0].when_asked(Asked::BlocksAndCloses);
        let waits = spawn_call(&fleet.channels[0], "/hangs");
        while fleet.servers[0].probes() < 3 {
            sleep(Duration::from_millis(10)).await;
        }
        let ring = fleet.layer.ring();
        let quarantined = |it: &Action| matches!(it, Action::Quarantine(..));
        assert!(!ring.decisions().any(|(_, it)| quarantined(&it)), "{ring}");
        assert!(local_stalls(&fleet) >= 2, "{ring}");
        waits.abort();
    });
}

/// A tick that is a little late is nothing: the tolerance.
#[tokio::test(start_paused = true)]
async fn a_little_late_is_on_time() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    for _ in 0..5 {
        sleep(Duration::from_millis(100)).await;
        advance(Duration::from_millis(200)).await;
    }
    assert_eq!(local_stalls(&fleet), 0, "{}", fleet.layer.ring());
    let took = fleet.until(0, Condition::Quarantined).await;
    assert!(took <= 3 * SECOND, "{took:?}");
}

/// Rule of the house: the task ends with the last channel, and with the layer.
#[tokio::test(start_paused = true)]
async fn the_pacemaker_ends_with_the_last_channel() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    for layer_stays in [true, false] {
        let mut fleet = Fleet::new(2);
        let before = tasks();
        let mut layer = Some(fleet.layer.clone());
        spawn_call(&fleet.channels[0], "/ok")
            .await
            .unwrap()
            .0
            .unwrap();
        assert_eq!(tasks(), before + 1);
        // It rests when nobody waits, and is woken.
        sleep(60 * SECOND).await;
        assert_eq!(tasks(), before + 1);
        spawn_call(&fleet.channels[0], "/ok")
            .await
            .unwrap()
            .0
            .unwrap();
        assert_eq!(tasks(), before + 1);
        if !layer_stays {
            layer = None;
        }
        fleet.channels.clear();
        drop(fleet);
        sleep(2 * SECOND).await;
        assert_eq!(tasks(), before, "layer stays: {layer_stays}");
        drop(layer);
    }
}

/// The runtime in which the pacemaker ran goes away: those who wait elsewhere have another one.
#[test]
fn another_runtime_takes_over() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let mut fleet = second.block_on(async { Fleet::with(2, StallConfig::alone()) });
    first.block_on(async {
        spawn_call(&fleet.channels[1], "/ok")
            .await
            .unwrap()
            .0
            .unwrap();
    });
    let mut waits = None;
    second.block_on(async {
        fleet.servers[0].freeze();
        // Nothing but the layer wakes this one.
        waits = Some(spawn_call(&fleet.channels[0], "/hangs"));
        settle().await;
    });
    drop(first);
    second.block_on(async {
        fleet.until(0, Condition::Quarantined).await;
        waits.unwrap().await.unwrap().0.unwrap_err();
        fleet.servers[0].thaw();
        fleet.until(0, Condition::Serving).await;
    });
    second.block_on(async { fleet.channels.clear() });
}

/// A call outside any runtime works; it just isn't watched.
#[test]
fn outside_a_runtime_nobody_is_watched() {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };
    use tower::{Layer, Service};
    let layer =
        steadfast_stall::StallDetectLayer::new(StallConfig::default(), crate::common::probe);
    #[derive(Clone)]
    struct Never;
    impl Service<http::Request<()>> for Never {
        type Response = http::Response<crate::common::ServerBody>;
        type Error = steadfast_core::BoxError;
        type Future = std::future::Pending<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: http::Request<()>) -> Self::Future {
            std::future::pending()
        }
    }
    let layer = layer.unwrap();
    let mut service = layer.layer(Never);
    let mut call = pin!(service.call(crate::common::request("/ok")));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    assert_eq!(layer.snapshot()[0].waiting, 1);
}
