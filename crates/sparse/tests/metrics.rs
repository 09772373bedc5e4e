//! X5: what the metrics say.

mod support;

use std::{collections::BTreeMap, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use steadfast_sparse::{Key, SparseConfig, Watermark};
use steadfast_testkit::body::ScriptBody;
use support::{of, places, settle, start};
use tower::{Layer, Service};

/// X5: calls by lane, refusals by reason, waits, and gauges that end at zero.
#[tokio::test(start_paused = true)]
async fn what_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (layer, mut service, inner) = start(SparseConfig {
        name: "reads".into(),
        watermark: Watermark::Calls(1),
        credits: 1,
        max_waiting: 2,
        longest_wait: Some(Duration::from_secs(2)),
        ..places(1)
    });
    let layer = layer.with_express(["/h/"]).unwrap();
    let mut passes = layer.layer(inner.clone());
    let mut panics = layer
        .with_key(Key::from_fn(|_| panic!("asked to")))
        .layer(inner.clone());

    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let second = tokio::spawn(service.call(of("a")));
    settle().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut deadline = of("b");
    deadline
        .headers_mut()
        .insert("grpc-timeout", "100m".parse().unwrap());
    service.call(deadline).await.unwrap_err();
    let third = service.call(of("a"));
    service.call(of("c")).await.unwrap_err();
    drop(first);
    drop(second.await.unwrap().unwrap());
    drop(third);
    inner.give(ScriptBody::new().wait().start().0);
    let held = service.call(of("a")).await.unwrap();
    service.call(of("b")).await.unwrap_err();
    drop(held);
    let request = http::Request::builder().uri("/h/x").body(()).unwrap();
    drop(passes.call(request).await.unwrap());
    panics.call(of("a")).await.unwrap_err();

    let mut rows = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels = key.key().labels().filter(|label| label.key() != "pool");
        let labels: Vec<_> = labels.map(|label| label.value().to_owned()).collect();
        assert!(key.key().labels().any(|label| label.value() == "reads"));
        rows.insert(format!("{} {}", key.key().name(), labels.join(" ")), value);
    }
    let counter = |name: &str| {
        rows.get(name)
            .unwrap_or_else(|| panic!("{name} in {rows:#?}"))
    };
    for (name, count) in [
        ("steadfast.sparse.calls high", 2),
        ("steadfast.sparse.calls bulk", 1),
        ("steadfast.sparse.calls passed", 1),
        ("steadfast.sparse.refused total", 1),
        ("steadfast.sparse.refused wait", 1),
        ("steadfast.sparse.refused deadline", 1),
        ("steadfast.sparse.refused key", 1),
    ] {
        assert_eq!(*counter(name), DebugValue::Counter(count), "{name}");
    }
    let DebugValue::Histogram(waits) = counter("steadfast.sparse.wait bulk") else {
        panic!("{rows:#?}")
    };
    assert_eq!(waits.len(), 1);
    assert!((1.0..1.2).contains(&waits[0].into_inner()), "{waits:?}");
    for name in [
        "steadfast.sparse.running high",
        "steadfast.sparse.running bulk",
        "steadfast.sparse.waiting high",
        "steadfast.sparse.waiting bulk",
        "steadfast.sparse.flows ",
    ] {
        assert_eq!(*counter(name), DebugValue::Gauge(0.0.into()), "{name}");
    }
}
