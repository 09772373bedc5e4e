//! The life of a pool and of its channels: warming, draining, replacing, closing, observing.

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{Dial, Net, Readiness, call, loads, local, request, send, settle};
use http_body_util::BodyExt;
use steadfast_balance::{BalanceConfig, BalanceLayer, Connectivity, Places};
use steadfast_core::{Attempt, BoxError, LocalKind, Outcome, Place, now};
use tokio::sync::watch;
use tower::{Layer, Service};

const MINUTE: Duration = Duration::from_secs(60);

/// B10: a pool can be built outside a runtime; `warm` starts it and resolves with the n-th channel.
#[test]
fn built_outside_a_runtime() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(1)));
    let pool = net.pool(BalanceConfig::fixed(3));
    assert_eq!(net.dials("a"), 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let began = now();
        pool.warm(3).await.unwrap();
        assert_eq!((now() - began).as_secs(), 1, "the dials ran side by side");
        assert_eq!(pool.snapshot().channels.len(), 3);
    });
}

/// B10: a pool whose runtime is gone starts again on the next one.
#[test]
fn survives_its_runtime() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(2));
    for round in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            for _ in 0..4 {
                call(&pool, "/ok").await.unwrap();
            }
            pool.warm(2).await.unwrap();
            settle().await;
        });
        drop(runtime);
        assert!(net.dials("a") <= 2 * round, "{}", net.dials("a"));
    }
}

/// B6: `warm` makes the pool grow to what it asks for, and refuses more than the maximum.
#[tokio::test(start_paused = true)]
async fn warm_grows_up_to_the_maximum() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::default());
    pool.warm(7).await.unwrap();
    assert_eq!(pool.snapshot().channels.len(), 7);
    let error = pool.warm(65).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "warm is 65; allowed is 0 to 64 (balance.max)"
    );
}

/// B10: the pool's tasks and channels end with its last clone.
#[tokio::test(start_paused = true)]
async fn ends_with_the_last_clone() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(4));
    pool.warm(4).await.unwrap();
    let clone = pool.clone();
    drop(pool);
    settle().await;
    call(&clone, "/ok").await.unwrap();
    let held = call(&clone, "/held").await.unwrap();
    drop(clone);
    settle().await;
    assert_eq!(net.alive.load(Ordering::SeqCst), 0, "no channel is kept");
    let mut body = held.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    tokio::time::sleep(100 * MINUTE).await;
    assert_eq!(net.dials("a"), 4, "nobody dials any more");
}

/// B5: a channel that is lost or removed keeps its open response; the channel goes with its end.
#[tokio::test(start_paused = true)]
async fn a_drained_channel_keeps_its_open_response() {
    let (sender, places) = watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let pool = net.pool_at(BalanceConfig::fixed(1), Places::watch(places));
    let mut held = call(&pool, "/held").await.unwrap();
    sender.send(vec![Place::new("b")]).unwrap();
    settle().await;
    let snapshot = pool.snapshot();
    assert_eq!(snapshot.draining.len(), 1);
    assert_eq!(snapshot.channels[0].place.as_str(), "b");
    assert_eq!(snapshot.size(), 1, "draining ones don't count");
    for _ in 0..5 {
        call(&pool, "/ok").await.unwrap();
    }
    assert_eq!(pool.snapshot().draining[0].picks, 1, "no new request");
    held.body_mut().frame().await.unwrap().unwrap();
    drop(held);
    settle().await;
    assert!(pool.snapshot().draining.is_empty());
}

/// B5, S4: what is open after the drain limit ends at once, with an error that is marked as local and
/// wakes a reader that waits.
#[tokio::test(start_paused = true)]
async fn the_drain_limit_ends_open_responses() {
    let (sender, places) = watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let pool = net.pool_at(BalanceConfig::fixed(1), Places::watch(places));
    let reading = |path| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let mut body = call(&pool, path).await?.into_body();
            loop {
                match body.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err::<(), BoxError>(error),
                    None => return Ok(()),
                }
            }
        })
    };
    let (in_body, in_head) = (reading("/silent"), reading("/headless"));
    settle().await;
    assert_eq!(loads(&pool), [2]);
    sender.send(vec![Place::new("b")]).unwrap();
    let began = now();
    for ended in [in_body, in_head] {
        let (kind, text) = local(&ended.await.unwrap().unwrap_err());
        assert_eq!(kind, LocalKind::Drained);
        assert!(text.contains("1800s"), "{text}");
    }
    assert_eq!((now() - began).as_secs(), 30 * 60);
    settle().await;
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert!(pool.snapshot().draining.is_empty());
}

/// B5: channels are refreshed by age, the new one first, and calls never notice.
#[tokio::test(start_paused = true)]
async fn aged_channels_are_refreshed() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig {
        max_age: Some(45 * MINUTE),
        ..BalanceConfig::fixed(4)
    });
    pool.warm(4).await.unwrap();
    let first: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    for _ in 0..60 {
        tokio::time::sleep(MINUTE).await;
        assert_eq!(pool.snapshot().channels.len(), 4);
        call(&pool, "/ok").await.unwrap();
    }
    let now: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    assert!(first.iter().all(|old| !now.contains(old)));
    assert_eq!(net.dials("a"), 8);
}

/// B3: the pool grows with the peak of open responses and shrinks when they are gone; the next peak
/// starts from what is still open; a charge is no demand.
#[tokio::test(start_paused = true)]
async fn sized_by_the_peak_of_open_bodies() {
    let net = Net::new();
    let config = BalanceConfig {
        grow_on_demand: false,
        ..BalanceConfig::default()
    };
    let pool = net.pool(config);
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(call(&pool, "/held").await.unwrap());
    }
    assert_eq!(pool.snapshot().size(), 4);
    for size in [6, 8, 8, 8] {
        // No call in between: what is open is the peak.
        tokio::time::sleep(MINUTE).await;
        settle().await;
        assert_eq!(pool.snapshot().size(), size);
    }
    held.clear();
    tokio::time::sleep(MINUTE).await;
    settle().await;
    assert_eq!(pool.snapshot().size(), 8, "the last minute's peak was 200");
    for size in [6, 4, 4] {
        tokio::time::sleep(MINUTE).await;
        settle().await;
        assert_eq!(pool.snapshot().size(), size);
    }
}

/// B3: the peak is the highest number in flight at once, to the one: 101 need a fifth channel, 100 don't.
#[tokio::test(start_paused = true)]
async fn the_peak_is_exact() {
    for (peak, size) in [(100, 4), (101, 6)] {
        let net = Net::new();
        let config = BalanceConfig {
            grow_on_demand: false,
            ..BalanceConfig::default()
        };
        let pool = net.pool(config);
        pool.warm(4).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..peak {
            held.push(call(&pool, "/held").await.unwrap());
        }
        held.clear();
        tokio::time::sleep(MINUTE).await;
        settle().await;
        assert_eq!(pool.snapshot().size(), size, "after a peak of {peak}");
    }
}

/// B5, B7: a call that waits for the readiness of a channel whose place is removed goes elsewhere.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_leaves_a_channel_that_drains() {
    let (sender, places) = watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let pool = net.pool_at(BalanceConfig::fixed(1), Places::watch(places));
    pool.warm(1).await.unwrap();
    let id = pool.snapshot().channels[0].id;
    net.set_readiness(id, Readiness::Pending);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    settle().await;
    sender.send(vec![Place::new("b")]).unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(net.served(id), 0);
    settle().await;
    assert!(pool.snapshot().draining.is_empty());
}

/// B10, S4: `close` refuses new calls, lets open ones end for the grace period, ends the rest with the
/// local mark, and says how many of each.
#[tokio::test(start_paused = true)]
async fn close_reports_what_was_cut() {
    let net = Net::new();
    let mut pool = net.pool(BalanceConfig::fixed(2));
    let mut ends = call(&pool, "/held").await.unwrap();
    let silent = call(&pool, "/silent").await.unwrap();
    let reader = tokio::spawn(async move {
        let mut body = silent.into_body();
        body.frame().await.unwrap().map(drop)
    });
    let closing = tokio::spawn({
        let pool = pool.clone();
        async move { pool.close(Duration::from_secs(5)).await }
    });
    settle().await;
    let refused = call(&pool, "/ok").await.unwrap_err();
    assert_eq!(local(&refused).0, LocalKind::Closed);
    assert!(
        std::future::poll_fn(|cx| pool.poll_ready(cx))
            .await
            .is_err()
    );
    ends.body_mut().frame().await.unwrap().unwrap();
    drop(ends);
    let began = now();
    let report = closing.await.unwrap();
    assert_eq!((now() - began).as_secs(), 5);
    assert_eq!((report.finished, report.cut), (1, 1));
    assert_eq!(
        local(&reader.await.unwrap().unwrap_err()).0,
        LocalKind::Closed
    );
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Closed);
    assert_eq!(net.alive.load(Ordering::SeqCst), 0);
    assert_eq!(local(&pool.warm(1).await.unwrap_err()).0, LocalKind::Closed);
}

/// B10: closing an idle pool, a pool that was never used, and one twice, is quick; a call that waits
/// for a channel fails.
#[tokio::test(start_paused = true)]
async fn close_is_quick_when_nothing_is_open() {
    let net = Net::new();
    let began = now();
    let unused = net.pool(BalanceConfig::fixed(2));
    assert_eq!(unused.close(MINUTE).await.cut, 0);
    let pool = net.pool(BalanceConfig::fixed(2));
    call(&pool, "/ok").await.unwrap();
    assert_eq!(pool.close(MINUTE).await.finished, 0);
    assert_eq!(pool.close(MINUTE).await.cut, 0);
    net.set("b", Dial::Hangs);
    let dialling = net.pool_at(BalanceConfig::fixed(2), Places::list(["b"]));
    let waiting = tokio::spawn({
        let pool = dialling.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    settle().await;
    dialling.close(MINUTE).await;
    assert_eq!(
        local(&waiting.await.unwrap().unwrap_err()).0,
        LocalKind::Closed
    );
    assert_eq!(now(), began);
}

/// B9: the attempt tells which channel served and how it ended, for a failure too.
#[tokio::test(start_paused = true)]
async fn an_attempt_tells_who_served() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(1));
    for (path, outcome) in [
        ("/trailers", Outcome::Status(0)),
        ("/unavailable", Outcome::Status(14)),
        ("/eos", Outcome::NoStatus),
        ("/error", Outcome::Other),
    ] {
        let attempt = Attempt::new();
        let mut request = request(path);
        request.extensions_mut().insert(attempt.clone());
        if let Ok(response) = send(&pool, request).await {
            let _ = response.into_body().collect().await;
        }
        assert_eq!(attempt.channel(), Some(pool.snapshot().channels[0].id));
        assert_eq!(attempt.place().unwrap().as_str(), "a");
        assert_eq!(attempt.outcome(), Some(outcome), "{path}");
    }
}

/// B11: the snapshot has each channel's age, picks and failures.
#[tokio::test(start_paused = true)]
async fn the_snapshot_is_complete() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(1));
    for path in ["/trailers", "/unavailable", "/eos"] {
        let _ = call(&pool, path).await.unwrap().into_body().collect().await;
    }
    let held = call(&pool, "/held").await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let snapshot = pool.snapshot();
    let channel = &snapshot.channels[0];
    assert_eq!(
        (channel.picks, channel.failures, channel.in_flight),
        (4, 2, 1)
    );
    assert_eq!(channel.age.as_secs(), 9);
    drop(held);
}

/// B6: with a warm-up probe a channel joins when it has answered, with any status.
#[tokio::test(start_paused = true)]
async fn a_probe_admits_a_channel() {
    for path in ["/trailers", "/unavailable"] {
        let net = Net::new();
        let layer = BalanceLayer::new(BalanceConfig::fixed(1))
            .unwrap()
            .places(Places::list(["a"]));
        let layer = layer.warm_up(move |_: &Place| Ok(request(path)));
        let pool = layer.layer(net.factory());
        pool.warm(1).await.unwrap();
        let channel = pool.snapshot().channels[0].clone();
        assert_eq!(net.served(channel.id), 1);
        assert_eq!(
            (channel.picks, channel.in_flight, channel.failures),
            (0, 0, 0),
            "no pick, no demand"
        );
    }
}

/// B6: a channel that doesn't answer its probe within the budget, or breaks on it, doesn't join; headers
/// alone and a body that just ends are no answer.
#[tokio::test(start_paused = true)]
async fn an_unanswered_probe_admits_nothing() {
    for path in ["/headless", "/silent", "/held", "/error", "/broken", "/eos"] {
        let net = Net::new();
        let layer = BalanceLayer::new(BalanceConfig::fixed(1))
            .unwrap()
            .places(Places::list(["a"]));
        let pool = layer
            .warm_up(move |_: &Place| Ok(request(path)))
            .layer(net.factory());
        let error = tokio::spawn(async move { pool.clone().call(request("/ok")).await.map(drop) });
        let text = local(&error.await.unwrap().unwrap_err()).1;
        assert!(
            text.contains("the warm-up probe got no answer"),
            "{path}: {text}"
        );
    }
}

/// B6: dial and probe share one budget.
#[tokio::test(start_paused = true)]
async fn a_probe_has_what_is_left_of_the_budget() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(6)));
    let layer = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
    let layer = layer.places(Places::list(["a"]));
    let pool = layer
        .warm_up(|_: &Place| Ok(request("/headless")))
        .layer(net.factory());
    let began = now();
    let mut connectivity = pool.connectivity();
    let warming = tokio::spawn(async move { pool.warm(1).await });
    let failing = connectivity.wait_for(|now| *now == Connectivity::Failing);
    failing.await.unwrap();
    assert_eq!((now() - began).as_secs(), 10);
    warming.abort();
}

/// B6: a probe that can't be prepared neither admits nor condemns: the same connection is asked again.
#[tokio::test(start_paused = true)]
async fn an_unprepared_probe_is_tried_again() {
    let net = Net::new();
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&tries);
    let layer = BalanceLayer::new(BalanceConfig::fixed(1))
        .unwrap()
        .places(Places::list(["a"]));
    let pool = layer
        .warm_up(
            move |_: &Place| match count.fetch_add(1, Ordering::SeqCst) {
                0..5 => Err::<http::Request<()>, BoxError>("no token".into()),
                _ => Ok(request("/ok")),
            },
        )
        .layer(net.factory());
    pool.warm(1).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 6);
    assert_eq!(net.dials("a"), 1, "the connection was kept");
}

/// B12: a place that is removed while it is dialled is dialled no more.
#[tokio::test(start_paused = true)]
async fn dials_stop_when_their_place_goes() {
    let (sender, places) = watch::channel(vec![Place::new("a"), Place::new("b")]);
    let net = Net::new();
    net.set("b", Dial::Refuses);
    let pool = net.pool_at(BalanceConfig::fixed(4), Places::watch(places));
    tokio::time::sleep(Duration::ZERO).await;
    pool.warm(2).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    let before = net.dials("b");
    assert!(before > 2);
    sender.send(vec![Place::new("a")]).unwrap();
    pool.warm(4).await.unwrap();
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(net.dials("b"), before);
    drop(sender);
    tokio::time::sleep(MINUTE).await;
    call(&pool, "/ok").await.unwrap();
}

/// B6: a replacement that never answers leaves the old channel in service.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_hangs_leaves_the_old_one() {
    let net = Net::new();
    let config = BalanceConfig {
        max_age: Some(MINUTE),
        age_jitter: Duration::ZERO,
        ..BalanceConfig::fixed(2)
    };
    let pool = net.pool(config);
    pool.warm(2).await.unwrap();
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    net.set("a", Dial::Hangs);
    tokio::time::sleep(30 * MINUTE).await;
    assert!(net.dials("a") > 4);
    let now: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    assert_eq!(now, ids);
    net.set_readiness(ids[0], Readiness::Ready);
    call(&pool, "/ok").await.unwrap();
}

/// B11: connectivity goes from connecting to ready to failing and back.
#[tokio::test(start_paused = true)]
async fn connectivity_follows_the_pool() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(1)));
    let pool = net.pool(BalanceConfig::fixed(1));
    let mut connectivity = pool.connectivity();
    assert_eq!(*connectivity.borrow_and_update(), Connectivity::Connecting);
    call(&pool, "/ok").await.unwrap();
    assert_eq!(*connectivity.borrow_and_update(), Connectivity::Ready);
    net.set("a", Dial::Refuses);
    tokio::time::sleep(MINUTE).await;
    net.set_readiness(pool.snapshot().channels[0].id, Readiness::Lost);
    call(&pool, "/ok").await.unwrap_err();
    assert_eq!(*connectivity.borrow_and_update(), Connectivity::Failing);
}
