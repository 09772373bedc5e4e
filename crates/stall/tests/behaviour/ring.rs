//! S11: what was seen and decided is kept, and leads to the same decisions again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use steadfast_stall::{Action, Condition, Note, StallConfig};
use tokio::time::{advance, sleep};

use crate::common::{Asked, Fleet, SECOND, spawn_call};

/// An hour in which channels freeze, thaw, answer their probes or not, leave, and the process stops.
async fn seeded_hour(seed: u64, ring: usize) -> Fleet {
    let config = StallConfig {
        ring,
        ..StallConfig::default()
    };
    let mut random = Rng::with_seed(seed);
    let mut fleet = Fleet::with(8, config);
    fleet.pause = Duration::from_millis(700);
    fleet.keep_busy(0..8);
    let end = steadfast_core::now() + 3_600 * SECOND;
    let left = Arc::new(Mutex::new(Vec::new()));
    while steadfast_core::now() < end {
        sleep(Duration::from_millis(random.u64(10..20_000))).await;
        let server = &fleet.servers[random.usize(..8)];
        match random.u8(..12) {
            0..=4 => server.freeze(),
            5..=8 => server.thaw(),
            9 => server.when_asked(
                random
                    .choice([Asked::Status(0), Asked::Never, Asked::Closes])
                    .unwrap(),
            ),
            10 => advance(Duration::from_millis(random.u64(10..6_000))).await,
            _ => left
                .lock()
                .unwrap()
                .push(spawn_call(&fleet.channels[random.usize(..8)], "/stream")),
        }
    }
    left.lock().unwrap().iter().for_each(|it| it.abort());
    fleet
}

/// S11: the ring of a seeded hour, replayed through the policy, gives the same decisions.
#[tokio::test(start_paused = true)]
async fn a_seeded_hour_is_decided_the_same_again() {
    for seed in 1..2 {
        let fleet = seeded_hour(seed, 1_000_000).await;
        let ring = fleet.layer.ring();
        let decided: Vec<_> = ring.decisions().collect();
        assert!(decided.len() > 200, "seed {seed}: {}", decided.len());
        let kinds = [
            |it: &Action| matches!(it, Action::Suspect(_)),
            |it: &Action| matches!(it, Action::Probe(_)),
            |it: &Action| matches!(it, Action::Clear(_)),
            |it: &Action| matches!(it, Action::Spare(..)),
            |it: &Action| matches!(it, Action::Quarantine(..)),
            |it: &Action| matches!(it, Action::Restore(_)),
            |it: &Action| matches!(it, Action::LocalStall(_)),
        ];
        for (kind, is_it) in kinds.iter().enumerate() {
            assert!(
                decided.iter().any(|(_, it)| is_it(it)),
                "seed {seed}: kind {kind}"
            );
        }
        assert_eq!(ring.replay(), decided, "seed {seed}");
    }
}

/// S11: its size is fixed, and what is left of a long time is decided the same again too.
#[tokio::test(start_paused = true)]
async fn a_ring_that_has_gone_round() {
    let fleet = seeded_hour(9, 64).await;
    let ring = fleet.layer.ring();
    let entries = ring.entries().count();
    // A fact's decisions stay with it.
    assert!((32..=64 + 16).contains(&entries), "{entries}");
    let first = ring.entries().next().unwrap();
    assert!(
        matches!(first.note, Note::Fact(_)) && first.at > 60 * SECOND,
        "{first:?}"
    );
    let decided: Vec<_> = ring.decisions().collect();
    assert_eq!(ring.replay(), decided);
    let text = ring.to_string();
    assert_eq!(text.lines().count(), entries);
    assert!(text.contains("decided"), "{text}");
}

/// X5: the metrics of a stall, by name and label.
#[test]
fn it_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut fleet = Fleet::new(4);
            fleet.keep_busy(1..4);
            sleep(3 * SECOND).await;
            fleet.servers[0].freeze();
            let waits = spawn_call(&fleet.channels[0], "/ok");
            fleet.until(0, Condition::Quarantined).await;
            waits.await.unwrap().0.unwrap_err();
            sleep(65 * SECOND).await;
            fleet.servers[0].thaw();
            fleet.until(0, Condition::Serving).await;
            advance(2 * SECOND).await;
            sleep(SECOND).await;
            for server in &fleet.servers[1..] {
                server.freeze();
            }
            sleep(SECOND / 2).await;
            fleet.keep_busy([0]);
            sleep(5 * SECOND).await;
        });
    });
    let mut seen: Vec<(String, f64)> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let mut labels: Vec<String> = key
            .key()
            .labels()
            .map(|it| format!("{}={}", it.key(), it.value()))
            .collect();
        labels.sort_unstable();
        assert!(labels.contains(&"pool=default".to_owned()), "{labels:?}");
        let name = format!("{} {}", key.key().name(), labels.join(" "));
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        seen.push((name, value));
    }
    let value = |name: &str| {
        let found = seen.iter().find(|(it, _)| it == name);
        found.unwrap_or_else(|| panic!("no {name} in {seen:#?}")).1
    };
    assert!(value("steadfast.suspect pool=default") >= 1.0);
    assert_eq!(
        value("steadfast.quarantine enforced=true pool=default reason=no_answer"),
        1.0
    );
    assert!(value("steadfast.quarantine enforced=false pool=default reason=too_many") >= 1.0);
    assert!(value("steadfast.probe outcome=no_answer pool=default") >= 1.0);
    assert!(value("steadfast.probe outcome=answered pool=default") >= 1.0);
    assert_eq!(value("steadfast.restore pool=default"), 1.0);
    assert_eq!(value("steadfast.replace outcome=asked pool=default"), 1.0);
    assert_eq!(value("steadfast.failed_locally pool=default"), 1.0);
    assert_eq!(value("steadfast.local_stall pool=default"), 1.0);
    assert!(value("steadfast.probe.duration pool=default") >= 2.0);
    assert!(value("steadfast.wait phase=headers pool=default") >= 100.0);
    assert!(value("steadfast.wait phase=body pool=default") >= 100.0);
    assert_eq!(
        value("steadfast.waiting.oldest pool=default"),
        0.0,
        "the layer is gone"
    );
}
