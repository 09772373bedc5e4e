//! When a request counts as in flight, and where a burst goes.

use std::{sync::Arc, time::Duration};

use crate::common::{Dial, Net, call, loads, request, settle};
use http_body_util::BodyExt;
use steadfast_balance::{BalanceConfig, Places};
use steadfast_core::{Avoid, Prefer};
use tower::Service;

/// B1: a request counts until its *body* ends, in each of the five ways, and not at all when the body
/// is at its end as it comes.
#[tokio::test(start_paused = true)]
async fn counts_to_each_end_of_the_body() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(1));
    for path in ["/trailers", "/eos", "/broken"] {
        let mut response = call(&pool, path).await.unwrap();
        assert_eq!(pool.snapshot().in_flight(), 1, "{path}: the head is no end");
        response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(pool.snapshot().in_flight(), 1, "{path}: nor is a frame");
        let _ = response.body_mut().frame().await;
        assert_eq!(
            pool.snapshot().in_flight(),
            0,
            "{path}: ended, though the body is kept"
        );
        drop(response);
    }
    let mut response = call(&pool, "/at-end").await.unwrap();
    assert_eq!(pool.snapshot().in_flight(), 1);
    response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(
        pool.snapshot().in_flight(),
        0,
        "known only by is_end_stream"
    );
    let held = call(&pool, "/held").await.unwrap();
    assert_eq!(pool.snapshot().in_flight(), 1);
    drop(held);
    assert_eq!(pool.snapshot().in_flight(), 0, "dropped");
    let at_its_end = call(&pool, "/empty").await.unwrap();
    assert_eq!(pool.snapshot().in_flight(), 0, "at its end when it came");
    drop(at_its_end);
    assert!(call(&pool, "/error").await.is_err());
    assert_eq!(pool.snapshot().in_flight(), 0, "an error has no body");
}

/// B1: a request counts from the pick, in `call`, before its future was ever polled.
#[tokio::test(start_paused = true)]
async fn counts_from_the_pick() {
    let net = Net::new();
    let mut pool = net.pool(BalanceConfig::fixed(1));
    pool.warm(1).await.unwrap();
    let future = pool.call(request("/ok"));
    assert_eq!(pool.snapshot().in_flight(), 1);
    drop(future);
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// B1: 10,000 calls dropped at random await points: waiting for a channel, for the head, for a frame,
/// between frames. Nothing leaks.
#[tokio::test(start_paused = true)]
async fn ten_thousand_drops_leak_nothing() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_millis(10)));
    let pool = net.pool(BalanceConfig::fixed(4));
    let mut random = fastrand::Rng::with_seed(7);
    let paths = [
        "/headless",
        "/held",
        "/silent",
        "/trailers",
        "/eos",
        "/broken",
        "/slow",
        "/error",
        "/ok",
    ];
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..10_000 {
        let path = paths[random.usize(..paths.len())];
        let patience = Duration::from_millis(random.u64(..80));
        let pool = pool.clone();
        calls.spawn(async move {
            let whole = async {
                if let Ok(response) = call(&pool, path).await {
                    let mut body = response.into_body();
                    while let Some(Ok(_)) = body.frame().await {
                        tokio::task::yield_now().await;
                    }
                }
            };
            let _ = tokio::time::timeout(patience, whole).await;
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert_eq!(pool.snapshot().waiting, 0);
    let picks: u64 = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.picks)
        .sum();
    assert!(picks > 5_000, "{picks}: most calls reached a channel");
}

/// B2: 400 held requests on 10 warm channels of a pool of fixed size: exactly 40 each.
#[tokio::test(start_paused = true)]
async fn a_burst_spreads_exactly() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(10));
    pool.warm(10).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(call(&pool, "/held").await.unwrap());
    }
    assert_eq!(loads(&pool), [40; 10]);
}

/// B2: calls that end before the next one begins all find channels that are equal: they go round.
#[tokio::test(start_paused = true)]
async fn equals_take_turns() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(4));
    pool.warm(4).await.unwrap();
    for _ in 0..400 {
        call(&pool, "/ok").await.unwrap();
    }
    let channels = pool.snapshot().channels;
    let picks: Vec<_> = channels.iter().map(|channel| channel.picks).collect();
    assert!(
        picks.iter().all(|picks| (50..150).contains(picks)),
        "{picks:?}"
    );
}

/// B2: the same from two threads at once: at most 45 on any channel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_from_two_threads_spreads() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(10));
    pool.warm(10).await.unwrap();
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let burst = |_| {
        let (pool, barrier) = (pool.clone(), Arc::clone(&barrier));
        tokio::spawn(async move {
            barrier.wait().await;
            let mut held = Vec::new();
            for _ in 0..200 {
                held.push(call(&pool, "/held").await.unwrap());
            }
            held
        })
    };
    let tasks: Vec<_> = (0..2).map(burst).collect();
    let mut held = Vec::new();
    for task in tasks {
        held.extend(task.await.unwrap());
    }
    assert_eq!(pool.snapshot().in_flight(), 400);
    assert!(
        loads(&pool).iter().all(|load| *load <= 45),
        "{:?}",
        loads(&pool)
    );
}

/// B2, B7: 400 at once on a cold pool whose dials end at different times: at most 45 on any channel,
/// and none fails.
#[tokio::test(start_paused = true)]
async fn a_burst_on_a_cold_pool_spreads() {
    let net = Net::new();
    let names: Vec<String> = (0..10).map(|i| format!("place-{i}")).collect();
    for (i, name) in names.iter().enumerate() {
        net.set(name, Dial::After(Duration::from_millis(100 * i as u64)));
    }
    let pool = net.pool_at(BalanceConfig::fixed(10), Places::list(names));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let pool = pool.clone();
        calls.spawn(async move { call(&pool, "/held").await });
    }
    let mut held = Vec::new();
    while let Some(done) = calls.join_next().await {
        held.push(done.unwrap().unwrap());
    }
    assert_eq!(held.len(), 400);
    assert!(
        loads(&pool).iter().all(|load| *load <= 45),
        "{:?}",
        loads(&pool)
    );
}

/// B7: while others still dial, a ready channel takes at most its maximum of the waiting calls, and a
/// place that is given back goes to one that waits.
#[tokio::test(start_paused = true)]
async fn a_first_channel_is_not_swamped() {
    let net = Net::new();
    net.set("late", Dial::Hangs);
    let pool = net.pool_at(BalanceConfig::fixed(2), Places::list(["early", "late"]));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let pool = pool.clone();
        calls.spawn(async move { call(&pool, "/held").await });
    }
    settle().await;
    let mut held = Vec::new();
    for _ in 0..25 {
        held.push(calls.join_next().await.unwrap().unwrap().unwrap());
    }
    settle().await;
    assert!(calls.try_join_next().is_none());
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![25], 15));
    // One of the 40 is dropped, and the place it gives back goes to the next.
    held.pop();
    held.push(calls.join_next().await.unwrap().unwrap().unwrap());
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![25], 14));
    // When the other dial has failed there is nothing left to wait for: the ready one takes all.
    tokio::time::sleep(Duration::from_secs(11)).await;
    settle().await;
    assert_eq!((loads(&pool), pool.snapshot().waiting), (vec![39], 0));
}

/// B2: open bodies count and steer the pick: 30 open on one channel send the next 30 to the other.
#[tokio::test(start_paused = true)]
async fn open_bodies_steer_the_pick() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(2));
    pool.warm(2).await.unwrap();
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    let mut held = Vec::new();
    for _ in 0..30 {
        let mut request = request("/held");
        request.extensions_mut().insert(Prefer(ids[0]));
        held.push(crate::common::send(&pool, request).await.unwrap());
    }
    assert_eq!(net.served(ids[0]), 30);
    for _ in 0..30 {
        held.push(call(&pool, "/held").await.unwrap());
    }
    assert_eq!(net.served(ids[1]), 30);
}

/// B8, B9: a preferred channel without a free stream is passed over.
#[tokio::test(start_paused = true)]
async fn a_full_channel_is_not_preferred() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig {
        assumed_streams: 3,
        ..BalanceConfig::fixed(2)
    });
    pool.warm(2).await.unwrap();
    let id = pool.snapshot().channels[0].id;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut request = request("/held");
        request.extensions_mut().insert(Prefer(id));
        held.push(crate::common::send(&pool, request).await.unwrap());
    }
    assert_eq!(loads(&pool), [2, 2]);
}

/// B9: a channel that is preferred is used, one that is avoided isn't; with nothing else left it is.
#[tokio::test(start_paused = true)]
async fn preferences_are_kept_and_soft() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(2));
    pool.warm(2).await.unwrap();
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    let avoiding = |avoid: &[_]| {
        let mut request = request("/ok");
        request
            .extensions_mut()
            .insert(avoid.iter().copied().collect::<Avoid>());
        request
    };
    for _ in 0..10 {
        crate::common::send(&pool, avoiding(&ids[..1]))
            .await
            .unwrap();
    }
    assert_eq!((net.served(ids[0]), net.served(ids[1])), (0, 10));
    crate::common::send(&pool, avoiding(&ids)).await.unwrap();
    let mut both = avoiding(&ids[..1]);
    both.extensions_mut().insert(Prefer(ids[0]));
    let before = net.served(ids[0]);
    crate::common::send(&pool, both).await.unwrap();
    assert_eq!(net.served(ids[0]), before, "to avoid is stronger");
}
