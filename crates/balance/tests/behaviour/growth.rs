//! Growth on demand, stream limits, and the other ways to pick.

use std::time::Duration;

use crate::common::{Dial, Held, Net, call, loads, local, settle};
use steadfast_balance::{Balance, BalanceConfig, Strategy};
use steadfast_core::{BoxError, LocalKind, now};
use tokio::task::JoinSet;

type Pool = Balance<crate::common::TestChannel>;

/// Calls whose responses stay open.
async fn hold(pool: &Pool, calls: usize) -> Vec<Held> {
    let mut held = Vec::new();
    for _ in 0..calls {
        held.push(call(pool, "/held").await.unwrap());
    }
    held
}

/// Calls at once, each on a task of its own.
fn hold_at_once(pool: &Pool, calls: usize) -> JoinSet<Result<Held, BoxError>> {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let pool = pool.clone();
        tasks.spawn(async move { call(&pool, "/held").await });
    }
    tasks
}

/// B4: a request that goes to a channel at its maximum makes the pool grow at once, by at least 2, once in
/// 10 s; without the switch it waits for the minute.
#[tokio::test(start_paused = true)]
async fn pressure_grows_the_pool_at_once() {
    for (grow_on_demand, sizes) in [(true, [4, 6, 6, 8]), (false, [4, 4, 4, 4])] {
        let net = Net::new();
        let pool = net.pool(BalanceConfig {
            grow_on_demand,
            ..BalanceConfig::default()
        });
        let mut held = hold(&pool, 100).await;
        settle().await;
        let mut seen = vec![pool.snapshot().size()];
        held.extend(hold(&pool, 1).await);
        settle().await;
        seen.push(pool.snapshot().size());
        // All are at their maximum, but the pause isn't over.
        tokio::time::sleep(Duration::from_secs(5)).await;
        held.extend(hold(&pool, 60).await);
        settle().await;
        seen.push(pool.snapshot().size());
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(
            pool.snapshot().size(),
            seen[2],
            "what was during the pause is no pressure"
        );
        held.extend(hold(&pool, 1).await);
        settle().await;
        seen.push(pool.snapshot().size());
        assert_eq!(seen, sizes, "grow_on_demand {grow_on_demand}");
    }
}

/// B8: no channel gets more than one below its stream limit; when all are full the pool grows at once, up to
/// its maximum and whatever B4's switch says, and the calls wait for it.
#[tokio::test(start_paused = true)]
async fn full_channels_make_the_pool_grow() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_millis(100)));
    let config = BalanceConfig {
        assumed_streams: 10,
        grow_on_demand: false,
        ..BalanceConfig::default()
    };
    let pool = net.pool(config);
    pool.warm(4).await.unwrap();
    let began = now();
    let mut calls = hold_at_once(&pool, 100);
    let mut held = Vec::new();
    while let Some(done) = calls.join_next().await {
        held.push(done.unwrap().unwrap());
    }
    assert!(
        now() - began <= Duration::from_millis(200),
        "{:?}",
        now() - began
    );
    assert_eq!(pool.snapshot().size(), 12, "100 calls at 9 a channel");
    assert!(
        loads(&pool).iter().all(|load| *load <= 9),
        "{:?}",
        loads(&pool)
    );
}

/// B8, B7: at its maximum the pool makes calls wait for a stream: one that ends lets the next go on, and the
/// wait has B7's limit.
#[tokio::test(start_paused = true)]
async fn at_its_maximum_calls_wait_for_a_stream() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig {
        assumed_streams: 6,
        ..BalanceConfig::fixed(2)
    });
    let mut held = hold(&pool, 10).await;
    let waiting = hold_at_once(&pool, 1);
    settle().await;
    assert_eq!(pool.snapshot().waiting, 1);
    held.pop();
    let went_on = waiting.join_all().await;
    assert!(went_on.iter().all(Result::is_ok));
    let began = now();
    let error = call(&pool, "/held").await.unwrap_err();
    assert_eq!((now() - began).as_secs(), 10);
    let (kind, text) = local(&error);
    assert_eq!(kind, LocalKind::NoChannel);
    assert!(text.contains("stream limit"), "{text}");
}

/// B8: a limit that a transport shows is obeyed at once: lowered, set to 0, and raised again.
#[tokio::test(start_paused = true)]
async fn a_live_limit_is_obeyed() {
    let net = Net::new();
    net.set_stream_limit(Some(20));
    let pool = net.limited_pool(BalanceConfig::fixed(2));
    let mut held = hold(&pool, 38).await;
    assert_eq!(loads(&pool), [19, 19]);
    net.set_stream_limit(Some(0));
    held.truncate(0);
    let waiting = hold_at_once(&pool, 3);
    settle().await;
    assert_eq!(
        (pool.snapshot().in_flight(), pool.snapshot().waiting),
        (0, 3)
    );
    net.set_stream_limit(Some(1));
    settle().await;
    assert_eq!(loads(&pool), [1, 1], "at a limit of 1 a channel takes one");
    net.set_stream_limit(Some(3));
    let went_on = waiting.join_all().await;
    assert!(went_on.iter().all(Result::is_ok));
    net.set_stream_limit(Some(2));
    assert!(loads(&pool).iter().all(|load| *load <= 2));
    let more = hold_at_once(&pool, 5);
    settle().await;
    assert_eq!(pool.snapshot().waiting, 5);
    drop(more);
    settle().await;
    assert_eq!(pool.snapshot().waiting, 0);
}

/// B8: a pool whose calls wait for streams is quiet: nothing runs until something happens.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_stream_is_no_busy_wait() {
    let net = Net::new();
    net.set_stream_limit(Some(0));
    let pool = net.limited_pool(BalanceConfig {
        wait_for_ready: Some(Duration::from_secs(3_600)),
        ..BalanceConfig::fixed(2)
    });
    let waiting = hold_at_once(&pool, 50);
    settle().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let polls = metrics.worker_park_count(0) - before;
    assert!(polls < 100, "{polls} wake-ups in ten minutes of waiting");
    assert_eq!(pool.snapshot().waiting, 50);
    drop(waiting);
}

/// B2: power of two and round robin can be selected, and spread calls as they are known to.
#[tokio::test(start_paused = true)]
async fn the_other_strategies_can_be_selected() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig {
        strategy: Strategy::RoundRobin,
        ..BalanceConfig::fixed(4)
    });
    pool.warm(4).await.unwrap();
    let _held = hold(&pool, 42).await;
    let mut spread = loads(&pool);
    spread.sort_unstable();
    assert_eq!(spread, [10, 10, 11, 11]);

    let pool = net.pool(BalanceConfig {
        strategy: Strategy::PowerOfTwo,
        ..BalanceConfig::fixed(10)
    });
    pool.warm(10).await.unwrap();
    let _held = hold(&pool, 400).await;
    let spread = loads(&pool);
    assert!(
        spread.iter().all(|load| (36..=44).contains(load)),
        "{spread:?}"
    );
    assert!(
        spread.iter().any(|load| *load != 40),
        "it is no full scan: {spread:?}"
    );
}
