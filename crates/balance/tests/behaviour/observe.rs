//! What a pool tells of itself: metrics. Spans and events are in `traces.rs`.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{Dial, Net, Readiness, call, request, settle};
use http_body_util::BodyExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use steadfast_balance::{BalanceConfig, Places};
use steadfast_core::Place;
use tokio::sync::watch;
use tower::Service;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a scenario under a paused clock with a recorder of its own.
fn recorded<F: Future<Output = ()>>(scenario: impl FnOnce(Meters) -> F) {
    let recorder = DebuggingRecorder::new();
    let meters = Meters {
        snapshotter: recorder.snapshotter(),
        seen: BTreeMap::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(scenario(meters)));
}

/// Counters from the beginning, histograms with all their values, and gauges as they were last set.
struct Meters {
    snapshotter: Snapshotter,
    seen: BTreeMap<String, Vec<f64>>,
}

impl Meters {
    /// All series by name and labels, without the pool's label, which each must have.
    ///
    /// The recorder begins anew with each look, gauges included: between two looks the pool must have set
    /// them, which it does when its channels change and at each interval.
    fn look(&mut self) -> &Self {
        for (key, unit, text, value) in self.snapshotter.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let (name, labels) = key.into_parts();
            let mut labels: Vec<_> = labels
                .iter()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let pool = labels.iter().position(|label| label == "pool=test");
            labels.remove(pool.expect("the pool's name is a label"));
            labels.sort();
            let name = name.as_str().strip_prefix("steadfast.").unwrap();
            assert!(unit.is_some() && text.is_some(), "{name} isn't described");
            let key = format!("{name}{{{}}}", labels.join(","));
            let series = self.seen.entry(key).or_default();
            match value {
                DebugValue::Counter(new) => {
                    *series = vec![series.first().unwrap_or(&0.0) + new as f64]
                }
                DebugValue::Gauge(now) => *series = vec![now.into_inner()],
                DebugValue::Histogram(new) => {
                    series.extend(new.into_iter().map(|v| v.into_inner()))
                }
            }
        }
        self
    }

    /// The one value of a counter or a gauge; 0 if it was never touched.
    fn value(&self, key: &str) -> f64 {
        self.seen.get(key).map_or(0.0, |values| values[0])
    }

    fn channels(&self) -> [f64; 3] {
        ["ready", "connecting", "draining"]
            .map(|state| self.value(&format!("channels{{state={state}}}")))
    }
}

fn test(config: BalanceConfig) -> BalanceConfig {
    config.named("test")
}

/// X5: channels by state, requests in flight, picks, waits and changes of size, exactly, through a pool's
/// life; nothing is left of it when it is gone.
#[test]
fn a_life_in_figures() {
    recorded(async |mut meters: Meters| {
        let net = Net::new();
        net.set("a", Dial::After(Duration::from_secs(2)));
        let config = BalanceConfig {
            grow_on_demand: false,
            ..BalanceConfig::default()
        };
        let pool = net.pool(test(config));
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let pool = pool.clone();
            held.spawn(async move { call(&pool, "/held").await.unwrap() });
        }
        settle().await;
        let now = meters.look();
        assert_eq!(now.channels(), [0.0, 4.0, 0.0]);
        assert_eq!(now.value("picks{}"), 0.0);
        let mut held = held.join_all().await;
        settle().await;
        let now = meters.look();
        assert_eq!(now.channels(), [4.0, 0.0, 0.0]);
        assert_eq!(now.value("picks{}"), 3.0);
        assert_eq!(now.seen["pick.wait{}"], [2.0; 3]);
        // 153 in flight need 7 channels: two more at each of the next two looks.
        for _ in 0..150 {
            held.push(call(&pool, "/held").await.unwrap());
        }
        for (changed, before, after) in [(2.0, 4.0, 6.0), (4.0, 6.0, 8.0)] {
            tokio::time::sleep(MINUTE - Duration::from_secs(1)).await;
            let now = meters.look();
            assert_eq!(now.value("inflight{}"), 153.0);
            assert_eq!(now.value("resize{direction=up,reason=load}"), changed);
            assert_eq!(now.channels(), [before, 2.0, 0.0]);
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(meters.look().channels(), [after, 0.0, 0.0]);
        }
        held.clear();
        for (changed, ready) in [(0.0, 8.0), (2.0, 6.0), (4.0, 4.0), (4.0, 4.0)] {
            tokio::time::sleep(MINUTE).await;
            let now = meters.look();
            assert_eq!(now.value("resize{direction=down,reason=load}"), changed);
            assert_eq!(now.channels(), [ready, 0.0, 0.0]);
            assert_eq!(now.value("inflight{}"), 0.0);
        }
        let now = meters.look();
        assert_eq!(now.value("resize{direction=up,reason=load}"), 4.0);
        assert_eq!(now.value("picks{}"), 153.0);
        assert_eq!(now.seen["pick.wait{}"].len(), 3, "only those that waited");
        assert_eq!(now.value("failed_locally{}"), 0.0);
        let held = call(&pool, "/held").await.unwrap();
        tokio::time::sleep(MINUTE).await;
        drop(pool);
        settle().await;
        let now = meters.look();
        assert_eq!(now.channels(), [0.0; 3]);
        assert_eq!(now.value("inflight{}"), 0.0);
        drop(held);
    });
}

/// X5: what the pool refuses or ends by itself, one by one; draining channels and what is open on them.
#[test]
fn what_fails_locally_is_counted() {
    recorded(async |mut meters: Meters| {
        let (sender, places) = watch::channel(vec![Place::new("a")]);
        let net = Net::new();
        let pool = net.pool_at(test(BalanceConfig::fixed(1)), Places::watch(places));
        let silent = call(&pool, "/silent").await.unwrap();
        let kept = call(&pool, "/held").await.unwrap();
        // No places: refused. The channel drains, and is ended with both its responses after 30 min.
        sender.send(Vec::new()).unwrap();
        settle().await;
        call(&pool, "/ok").await.unwrap_err();
        let now = meters.look();
        assert_eq!(now.value("failed_locally{}"), 1.0);
        assert_eq!(now.channels(), [0.0, 0.0, 1.0]);
        tokio::time::sleep(10 * MINUTE).await;
        assert_eq!(meters.look().value("inflight{}"), 2.0);
        tokio::time::sleep(21 * MINUTE).await;
        assert_eq!(meters.look().value("failed_locally{}"), 3.0);
        assert_eq!(meters.look().channels(), [0.0; 3]);
        silent.into_body().collect().await.unwrap_err();
        drop(kept);
        // A dial that hangs, and a deadline before it.
        net.set("b", Dial::Hangs);
        sender.send(vec![Place::new("b")]).unwrap();
        settle().await;
        call(&pool, "/ok").await.unwrap_err();
        assert_eq!(meters.look().value("failed_locally{}"), 4.0);
        // A channel that is lost, with nothing to go to; and the server's own errors, which don't count.
        sender.send(vec![Place::new("c")]).unwrap();
        pool.warm(1).await.unwrap();
        let _ = call(&pool, "/unavailable").await.unwrap();
        call(&pool, "/error").await.unwrap_err();
        assert_eq!(meters.look().value("failed_locally{}"), 4.0);
        net.set("c", Dial::Refuses);
        net.set_readiness(pool.snapshot().channels[0].id, Readiness::Lost);
        call(&pool, "/ok").await.unwrap_err();
        assert_eq!(meters.look().value("failed_locally{}"), 5.0);
        // A call that waits when the pool is closed, and a response that is cut then.
        net.set("c", Dial::Works);
        tokio::time::sleep(MINUTE).await;
        let silent = call(&pool, "/silent").await.unwrap();
        let report = pool.close(Duration::from_secs(1)).await;
        assert_eq!((report.finished, report.cut), (0, 1));
        assert_eq!(meters.look().value("failed_locally{}"), 6.0);
        let refused = Service::call(&mut pool.clone(), request("/ok")).await;
        drop(refused.map(drop).unwrap_err());
        assert_eq!(meters.look().value("failed_locally{}"), 7.0);
        drop(silent);
        assert_eq!(meters.look().value("failed_locally{}"), 7.0);
    });
}

/// X5: replacements by their outcome.
#[test]
fn replacements_are_counted() {
    recorded(async |mut meters: Meters| {
        let net = Net::new();
        let config = BalanceConfig {
            max_age: Some(45 * MINUTE),
            age_jitter: Duration::ZERO,
            ..BalanceConfig::fixed(4)
        };
        let pool = net.pool(test(config));
        pool.warm(4).await.unwrap();
        tokio::time::sleep(44 * MINUTE).await;
        assert_eq!(meters.look().value("replace{outcome=replaced}"), 0.0);
        for replaced in [2.0, 4.0, 4.0] {
            tokio::time::sleep(MINUTE + Duration::from_secs(1)).await;
            assert_eq!(meters.look().value("replace{outcome=replaced}"), replaced);
        }
        net.set("a", Dial::Refuses);
        let before = net.dials("a");
        tokio::time::sleep(60 * MINUTE).await;
        let failed = (net.dials("a") - before) as f64;
        assert!(failed > 10.0);
        assert_eq!(meters.look().value("replace{outcome=failed}"), failed);
        assert_eq!(meters.look().value("replace{outcome=replaced}"), 4.0);
        assert_eq!(
            meters.look().value("resize{direction=down,reason=load}"),
            0.0
        );
    });
}

/// X5: the number of series has a bound: a thousand dials to a hundred places add none, and no label names
/// a place or a channel.
#[test]
fn labels_are_bounded() {
    recorded(async |mut meters: Meters| {
        let (sender, places) = watch::channel(vec![Place::new("place-0")]);
        let net = Net::new();
        let config = BalanceConfig {
            max_age: Some(MINUTE),
            age_jitter: Duration::ZERO,
            refresh_step: 8,
            ..BalanceConfig::fixed(8)
        };
        let pool = net.pool_at(test(config), Places::watch(places));
        let mut dials = 0;
        for round in 0..100 {
            let name = format!("place-{round}");
            sender.send(vec![Place::new(name.clone())]).unwrap();
            for path in ["/ok", "/error", "/unavailable", "/broken"] {
                let _ = call(&pool, path).await;
            }
            tokio::time::sleep(2 * MINUTE).await;
            net.set(&name, Dial::Refuses);
            tokio::time::sleep(2 * MINUTE).await;
            dials += net.dials(&name);
        }
        assert!(dials > 1_000, "{dials}");
        let series: Vec<_> = meters.look().seen.keys().map(String::as_str).collect();
        assert_eq!(
            series,
            [
                "channels{state=connecting}",
                "channels{state=draining}",
                "channels{state=ready}",
                "failed_locally{}",
                "inflight{}",
                "pick.wait{}",
                "picks{}",
                "replace{outcome=failed}",
                "replace{outcome=replaced}",
            ]
        );
    });
}
