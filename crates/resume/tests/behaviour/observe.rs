//! What is counted and said.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use super::{support::*, *};

/// R1: the snapshot counts calls and what came of them, rule by rule; and metrics do.
#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_rule() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let guard = metrics::set_default_local_recorder(&recorder);
    let pool = Pool::new(|seen| match (seen.body[6], seen.body[5]) {
        (1, _) => grpc(numbers(0..1).status(0)),
        (2, 0) => grpc(numbers(0..1).error("cut")),
        (3, 0) => grpc(numbers(0..1).wait()),
        (4, _) => grpc(numbers(0..4).error("cut")),
        (5, from) => grpc(numbers(from..from + 1).error("cut")),
        (6, _) => grpc(BodyScript::default().message(&[9])),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let layer = layer(|config| config.name = "test".to_owned());
    for to in [1, 2, 3, 4, 5, 6] {
        let _ = call(layer.layer(pool.clone()), up_to(to)).await;
    }
    let snapshot = layer.snapshot();
    let rule = &snapshot.rules[0];
    assert_eq!(rule.method, STREAM);
    assert_eq!((rule.calls, rule.passed, rule.refused), (6, 0, 1));
    assert_eq!((rule.resumed, rule.gap_timeouts), (4, 1));
    assert_eq!((rule.completed, rule.exhausted, rule.denied), (1, 1, 0));
    drop(guard);
    let mut counted: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let key = key.key();
            let labels: Vec<_> = key
                .labels()
                .map(|it| format!("{}={}", it.key(), it.value()))
                .collect();
            let DebugValue::Counter(count) = value else {
                panic!("{key:?} isn't a counter")
            };
            format!("{} {} {count}", key.name(), labels.join(" "))
        })
        .collect();
    counted.sort();
    assert_eq!(
        counted,
        [
            "steadfast.gap_timeout pool=test 1",
            "steadfast.resume pool=test outcome=connection_lost 3",
            "steadfast.resume pool=test outcome=gap_timeout 1",
        ]
    );
}
