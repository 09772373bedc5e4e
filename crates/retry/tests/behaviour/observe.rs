//! What is counted.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use steadfast_core::LocalKind;
use steadfast_retry::RetryConfig;
use tower::Layer;

use crate::{
    layer,
    support::{HELD, OTHER, Pool, good, lost, never_sent, request, whole},
};

/// X5: what was sent again, by kind and by what had become of the attempt before, and what the budget didn't
/// pay for; the same as plain data; and nothing for calls that need none of it.
#[test]
fn metrics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let snapshot = metrics::with_local_recorder(&recorder, || {
        let retry = layer(RetryConfig {
            name: "reads".to_owned(),
            budget_percent: 100,
            budget_per_second: 0,
            ..RetryConfig::default()
        });
        let quarantine = || {
            let error = steadfast_classify::local_error(LocalKind::Quarantine, "a test", None);
            Some(Err(error))
        };
        let call = async |replies: [fn() -> crate::support::Reply; 3], path: &str| {
            let pool = Pool::scripted(replies);
            let _ = whole(retry.layer(pool), request(path, b"")).await;
        };
        runtime.block_on(async {
            call([good, good, good], OTHER).await;
            call([never_sent, never_sent, good], OTHER).await;
            call([quarantine, lost, good], HELD).await;
            // The second of its repetitions isn't paid for.
            call([lost, lost, good], HELD).await;
            // These are paid for, and are too few.
            for _ in 0..5 {
                call([good, good, good], HELD).await;
            }
            call([lost, lost, lost], HELD).await;
        });
        retry.snapshot()
    });
    let plain = (
        snapshot.resent,
        snapshot.repeated,
        snapshot.denied,
        snapshot.exhausted,
    );
    assert_eq!(plain, (2, 5, 1, 1));
    let mut counted = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
        let DebugValue::Counter(count) = value else {
            panic!("{key:?} is no counter")
        };
        counted.insert(format!("{} {}", key.key().name(), labels.join(" ")), count);
    }
    let expected = [
        ("steadfast.budget.denied reads", 1),
        ("steadfast.retry reads repeat connection_lost", 4),
        ("steadfast.retry reads repeat local", 1),
        ("steadfast.retry reads resend never_sent", 2),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counted, BTreeMap::from(expected));
}
