//! Where two things happen at once, or something ends in the middle: deadlines over several waits, places
//! that are given back, runtimes and pools that end.

use std::{
    pin::pin,
    sync::atomic::Ordering,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::common::{Dial, Net, Readiness, call, loads, local, request, send, settle};
use steadfast_balance::{Balance, BalanceConfig, Connectivity, Places};
use steadfast_core::{Attempt, LocalKind, Outcome, Place, now};
use tokio::runtime::{Builder, Runtime};
use tower::Service;

const MINUTE: Duration = Duration::from_secs(60);
/// What takes milliseconds, times a hundred: a hang.
const HANG: Duration = Duration::from_secs(5);

fn timed(timeout: &'static str) -> http::Request<()> {
    let mut request = request("/ok");
    request
        .headers_mut()
        .insert("grpc-timeout", timeout.parse().unwrap());
    request
}

/// B7: a deadline is one deadline, over a wait for readiness and a wait for a channel together; what is
/// sent on is what is left after both.
#[tokio::test(start_paused = true)]
async fn a_deadline_spans_all_waits() {
    for (redial, outcome) in [
        (Dial::After(Duration::from_secs(1)), Ok("1000000u")),
        (Dial::Hangs, Err(LocalKind::Deadline)),
    ] {
        let net = Net::new();
        let pool = net.pool(BalanceConfig::fixed(1));
        pool.warm(1).await.unwrap();
        let id = pool.snapshot().channels[0].id;
        net.set_readiness(id, Readiness::Pending);
        net.set("a", redial);
        let began = now();
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { send(&pool, timed("5S")).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        net.set_readiness(id, Readiness::Lost);
        let result = waiting.await.unwrap();
        match outcome {
            Ok(left) => {
                result.unwrap();
                assert_eq!(net.timeouts(), [Some(left.to_owned())]);
            }
            Err(kind) => {
                let (got, text) = local(&result.unwrap_err());
                assert_eq!(got, kind);
                assert!(text.contains("after 5s"), "{text}");
                assert_eq!((now() - began).as_secs(), 5);
            }
        }
    }
}

/// B7: a deadline that no clock can hold is as good as none, and a wait may have no end.
#[tokio::test(start_paused = true)]
async fn the_longest_deadline_is_harmless() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(9)));
    let pool = net.pool(BalanceConfig::fixed(1));
    send(&pool, timed("99999999H")).await.unwrap();
    let id = pool.snapshot().channels[0].id;
    net.set_readiness(id, Readiness::Pending);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { send(&pool, timed("99999999H")).await.map(drop) }
    });
    tokio::time::sleep(MINUTE).await;
    net.set_readiness(id, Readiness::Ready);
    waiting.await.unwrap().unwrap();
}

/// B7: a place that is given back goes to a call that still looks for one, not to one that has its channel
/// and waits for that to be ready.
#[tokio::test(start_paused = true)]
async fn a_place_goes_to_a_call_that_has_none() {
    let net = Net::new();
    net.set("early", Dial::After(Duration::from_secs(1)));
    net.set("late", Dial::Hangs);
    let config = BalanceConfig {
        max_requests: 3,
        ..BalanceConfig::fixed(2)
    };
    let pool = net.pool_at(config, Places::list(["early", "late"]));
    let start = || {
        let pool = pool.clone();
        tokio::spawn(async move { call(&pool, "/held").await })
    };
    let mut calls: Vec<_> = (0..5).map(|_| start()).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut held = Vec::new();
    for call in calls.drain(..3) {
        held.push(call.await.unwrap().unwrap());
    }
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![3], 2));
    let early = pool.snapshot().channels[0].id;
    net.set_readiness(early, Readiness::Pending);
    // The next one gets the place, and waits for the channel to be ready; another one comes after it.
    held.pop();
    settle().await;
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![3], 1));
    calls.push(start());
    settle().await;
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![3], 2));
    for waiting in [1, 0] {
        held.pop();
        settle().await;
        assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![3], waiting));
    }
    net.set_readiness(early, Readiness::Ready);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// B7: no call fails on a pool whose dials all succeed, at whatever moment of its start it looks: it is asked
/// without a pause while another thread makes the first channel.
#[test]
fn first_calls_and_first_channels_meet() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut cx = Context::from_waker(Waker::noop());
        let mut looks = 0_u64;
        for _ in 0..1_000 {
            let mut pool = Net::new().pool(BalanceConfig::fixed(1));
            loop {
                looks += 1;
                let call = pin!(Service::call(&mut pool, request("/ok")));
                match call.poll(&mut cx) {
                    Poll::Pending => {}
                    Poll::Ready(answer) => break drop(answer.unwrap()),
                }
            }
        }
        assert!(looks > 2_000, "{looks}");
    });
}

/// B3, B6: what `warm` asked for is no new minimum: an idle pool shrinks afterwards and dials nothing.
#[tokio::test(start_paused = true)]
async fn a_warmed_pool_shrinks_again() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::default());
    pool.warm(9).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(pool.snapshot().size(), 4);
    assert_eq!(net.dials("a"), 9);
}

/// B6: while a `warm` waits, the size it waits for is kept; when it is given up, it isn't.
#[tokio::test(start_paused = true)]
async fn a_waiting_warm_holds_the_size() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(BalanceConfig::default());
    let warming = |channels| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.warm(channels).await })
    };
    let (larger, smaller) = (warming(12), warming(8));
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(pool.snapshot().size(), 12);
    larger.abort();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(pool.snapshot().size(), 8);
    net.set("a", Dial::Works);
    smaller.await.unwrap().unwrap();
    assert_eq!(pool.snapshot().channels.len(), 8);
}

/// B3, B6: and no channel is removed under a `warm` that waits, to be dialled again at once.
#[tokio::test(start_paused = true)]
async fn a_waiting_warm_churns_nothing() {
    let net = Net::new();
    net.set("b", Dial::Hangs);
    let pool = net.pool_at(BalanceConfig::default(), Places::list(["a", "b"]));
    let warming = tokio::spawn({
        let pool = pool.clone();
        async move { pool.warm(10).await }
    });
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(net.dials("a"), 5);
    net.set("b", Dial::Works);
    warming.await.unwrap().unwrap();
}

/// B10: a pool without places closes too: connectivity says so, and a `warm` that waits ends.
#[tokio::test(start_paused = true)]
async fn a_pool_without_places_closes() {
    let net = Net::new();
    let pool = net.pool_at(BalanceConfig::fixed(1), Places::list::<Place>([]));
    let warming = tokio::spawn({
        let pool = pool.clone();
        async move { pool.warm(1).await }
    });
    settle().await;
    pool.close(MINUTE).await;
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Closed);
    let ended = tokio::time::timeout(MINUTE, warming).await.unwrap();
    assert_eq!(local(&ended.unwrap().unwrap_err()).0, LocalKind::Closed);
}

/// B7, B10: calls that wait on a pool whose only channel drains fail as soon as it is closed.
#[tokio::test(start_paused = true)]
async fn closing_wakes_those_that_wait_for_a_place() {
    let (sender, places) = tokio::sync::watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let config = BalanceConfig {
        wait_for_ready: Some(60 * MINUTE),
        ..BalanceConfig::fixed(1)
    };
    let pool = net.pool_at(config, Places::watch(places));
    let held = call(&pool, "/held").await.unwrap();
    sender.send(Vec::new()).unwrap();
    settle().await;
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    settle().await;
    assert_eq!(pool.snapshot().waiting, 1);
    let closing = tokio::spawn({
        let pool = pool.clone();
        async move { pool.close(MINUTE).await }
    });
    let began = now();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(local(&error).0, LocalKind::Closed);
    assert_eq!(now(), began);
    drop(held);
    let report = closing.await.unwrap();
    assert_eq!((report.finished, report.cut), (1, 0));
}

/// B10: what `close` cuts is told why, and each of two closings at once reports what was cut.
#[tokio::test(start_paused = true)]
async fn two_closings_tell_the_same() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(2));
    let silent = call(&pool, "/silent").await.unwrap();
    let closing = |grace| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.close(grace).await })
    };
    let (patient, hasty) = (closing(MINUTE), closing(Duration::from_secs(2)));
    let began = now();
    for closing in [patient, hasty] {
        let report = closing.await.unwrap();
        assert_eq!((report.finished, report.cut), (0, 1));
    }
    assert_eq!((now() - began).as_secs(), 2);
    let error = http_body_util::BodyExt::collect(silent.into_body()).await;
    let (kind, text) = local(&error.unwrap_err());
    assert_eq!(kind, LocalKind::Closed);
    assert!(text.contains("the pool was closed"), "{text}");
}

/// B9, S4: a call that the pool refused says so on its handle, where no foreign layer can lose it.
#[tokio::test(start_paused = true)]
async fn a_refused_call_marks_its_attempt() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    net.set("b", Dial::Hangs);
    let failing = net.pool(BalanceConfig::fixed(1));
    let hanging = net.pool_at(BalanceConfig::fixed(1), Places::list(["b"]));
    let closed = net.pool(BalanceConfig::fixed(1));
    call(&closed, "/ok").await.unwrap_err();
    let try_one = async |pool: &Balance<_>| {
        let mut request = timed("1S");
        let attempt = Attempt::new();
        request.extensions_mut().insert(attempt.clone());
        // `call` itself, as by a caller that asked for readiness just before the pool was closed.
        let answer = Service::call(&mut pool.clone(), request).await;
        drop(answer.map(drop).unwrap_err());
        assert_eq!(attempt.channel(), None);
        attempt.outcome()
    };
    let refused = |kind| Some(Outcome::Local(kind));
    assert_eq!(try_one(&failing).await, refused(LocalKind::NoChannel));
    assert_eq!(try_one(&hanging).await, refused(LocalKind::Deadline));
    closed.close(MINUTE).await;
    assert_eq!(try_one(&closed).await, refused(LocalKind::Closed));
}

/// B12: a place that comes and goes again while a channel is moving there costs no channel.
#[tokio::test(start_paused = true)]
async fn a_place_that_comes_and_goes_costs_nothing() {
    let (sender, places) = tokio::sync::watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let config = BalanceConfig {
        initial: 8,
        ..BalanceConfig::default()
    };
    let pool = net.pool_at(config, Places::watch(places));
    pool.warm(8).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(call(&pool, "/held").await.unwrap());
    }
    net.set("b", Dial::Hangs);
    sender.send(vec![Place::new("a"), Place::new("b")]).unwrap();
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(pool.snapshot().connecting.len(), 1);
    assert!(net.dials("b") > 20, "its own, and one that is moving");
    sender.send(vec![Place::new("a")]).unwrap();
    settle().await;
    assert_eq!(pool.snapshot().draining.len(), 0);
    assert_eq!(pool.snapshot().in_flight(), 50);
    let hung = net.dials("b");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(net.dials("b"), hung, "the move was given up");
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Starts the pool's keeper on a runtime of its own, which is given back.
fn started_elsewhere(pool: &Balance<crate::common::TestChannel>, path: &'static str) -> Runtime {
    let runtime = runtime();
    runtime.block_on(async {
        let waiting = tokio::time::timeout(Duration::from_millis(50), call(pool, path));
        let _ = waiting.await;
        settle().await;
    });
    runtime
}

/// B10: calls and a `warm` that wait when the pool's runtime ends go on where they are.
#[test]
fn waiting_survives_the_end_of_the_runtime() {
    let net = Net::new();
    net.set("a", Dial::Hangs);
    let pool = net.pool(BalanceConfig::fixed(2));
    let first = started_elsewhere(&pool, "/ok");
    net.set("a", Dial::Works);
    runtime().block_on(async {
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { call(&pool, "/ok").await.map(drop) }
        });
        settle().await;
        first.shutdown_background();
        let answer = tokio::time::timeout(HANG, waiting).await.unwrap();
        answer.unwrap().unwrap();
    });
    let net = Net::new();
    net.set("a", Dial::Hangs);
    let pool = net.pool(BalanceConfig::fixed(2));
    let first = started_elsewhere(&pool, "/ok");
    net.set("a", Dial::Works);
    runtime().block_on(async {
        let warming = tokio::spawn({
            let pool = pool.clone();
            async move { pool.warm(2).await }
        });
        settle().await;
        first.shutdown_background();
        let warm = tokio::time::timeout(HANG, warming).await.unwrap();
        warm.unwrap().unwrap();
    });
}

/// B10: a pool that starts again on another runtime knows nothing of what was before: neither that dials
/// failed, nor that channels were ready.
#[test]
fn a_new_runtime_begins_anew() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(BalanceConfig::fixed(2));
    drop(started_elsewhere(&pool, "/ok"));
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Failing);
    net.set("a", Dial::Works);
    runtime().block_on(call(&pool, "/ok")).unwrap();
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Ready);
    net.set("a", Dial::Hangs);
    runtime().block_on(async {
        let warm = tokio::time::timeout(Duration::from_millis(50), pool.warm(2));
        warm.await.unwrap_err();
    });
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Connecting);
    assert_eq!(net.alive.load(Ordering::SeqCst), 0);
}

/// B10: `close` ends when the pool's runtime ends meanwhile, or ended before; no channel is kept.
#[test]
fn closing_survives_the_end_of_the_runtime() {
    for ends_before in [true, false] {
        let net = Net::new();
        let pool = net.pool(BalanceConfig::fixed(2));
        let first = started_elsewhere(&pool, "/ok");
        let held = first.block_on(call(&pool, "/held")).unwrap();
        let mut first = Some(first);
        if ends_before {
            first = None;
        }
        runtime().block_on(async {
            let closing = tokio::spawn({
                let pool = pool.clone();
                async move { pool.close(MINUTE).await }
            });
            settle().await;
            first.into_iter().for_each(Runtime::shutdown_background);
            let report = tokio::time::timeout(HANG, closing).await.unwrap().unwrap();
            assert_eq!((report.finished, report.cut), (0, 1));
        });
        assert_eq!(*pool.connectivity().borrow(), Connectivity::Closed);
        assert_eq!(net.alive.load(Ordering::SeqCst), 0, "no channel is kept");
        drop(held);
    }
}

/// X3, X6: a time that no clock can hold is refused, and the longest that is allowed does no harm.
#[tokio::test(start_paused = true)]
async fn the_longest_times() {
    type Set = fn(&mut BalanceConfig, Duration);
    let fields: [(&str, Set); 6] = [
        ("balance.resize_interval", |c, d| c.resize_interval = d),
        ("balance.max_age", |c, d| c.max_age = Some(d)),
        ("balance.age_jitter", |c, d| c.age_jitter = d),
        ("balance.drain_limit", |c, d| c.drain_limit = d),
        ("balance.connect_budget", |c, d| c.connect_budget = d),
        ("balance.wait_for_ready", |c, d| c.wait_for_ready = Some(d)),
    ];
    let year = Duration::from_secs(31_557_600);
    for (field, set) in fields {
        let mut config = BalanceConfig::default();
        set(&mut config, Duration::MAX);
        let error = config.validate().unwrap_err();
        assert_eq!(error.field(), field);
        assert!(error.range().contains(" to "), "{error}");
        set(&mut config, year + Duration::from_nanos(1));
        assert!(config.validate().is_err(), "{field}");
    }
    let config = BalanceConfig {
        resize_interval: year,
        max_age: Some(year),
        age_jitter: year,
        drain_limit: year,
        connect_budget: Duration::from_secs(600),
        wait_for_ready: Some(year),
        ..BalanceConfig::fixed(1)
    };
    let net = Net::new();
    let (sender, places) = tokio::sync::watch::channel(vec![Place::new("a")]);
    let pool = net.pool_at(config, Places::watch(places));
    let held = call(&pool, "/held").await.unwrap();
    sender.send(vec![Place::new("b")]).unwrap();
    settle().await;
    call(&pool, "/ok").await.unwrap();
    assert_eq!(pool.snapshot().draining.len(), 1);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(pool.snapshot().in_flight(), 1);
    drop(held);
    assert_eq!(pool.close(Duration::MAX).await.cut, 0);
}
