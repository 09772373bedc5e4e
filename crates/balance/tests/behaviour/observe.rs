//! What a pool tells of itself: metrics, spans and events.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::common::{Dial, Net, Readiness, call, request, settle};
use http_body_util::BodyExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use steadfast_balance::{BalanceConfig, Places};
use steadfast_core::Place;
use steadfast_testkit::alloc::count;
use tokio::sync::watch;
use tower::Service;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

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

/// What a subscriber was told: spans with their fields as they are now, and events.
#[derive(Clone, Default)]
struct Told(Arc<Inner>);

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    spans: Mutex<Vec<Fields>>,
    events: Mutex<Vec<(Level, Fields)>>,
}

type Fields = BTreeMap<&'static str, String>;

struct Fill<'a>(&'a mut Fields);

impl Visit for Fill<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let before = self.0.insert(field.name(), value.to_owned());
        assert_eq!(before, None, "{} is recorded once", field.name());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl Subscriber for Told {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("steadfast_balance")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::from([("", span.metadata().name().to_owned())]);
        span.record(&mut Fill(&mut fields));
        self.0.spans.lock().unwrap().push(fields);
        span::Id::from_u64(self.0.next.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fill(&mut self.0.spans.lock().unwrap()[index]));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Fill(&mut fields));
        let level = *event.metadata().level();
        self.0.events.lock().unwrap().push((level, fields));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Told {
    fn spans(&self) -> Vec<Fields> {
        self.0.spans.lock().unwrap().clone()
    }

    /// The INFO events so far, which are taken: message, channel's place and more.
    fn changes(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.0.events.lock().unwrap());
        let changes = events
            .into_iter()
            .filter(|(level, _)| *level == Level::INFO);
        changes
            .map(|(_, fields)| {
                assert_eq!(fields["pool"], "test");
                let more = ["place", "why", "before", "after", "reason"];
                let more = more.iter().filter_map(|name| fields.get(name));
                let message = [&fields["message"]];
                let words: Vec<_> = message.into_iter().chain(more).cloned().collect();
                words.join(" ")
            })
            .collect()
    }
}

/// X5: one span per call, with pool, path, channel, place and, at its end, the outcome.
#[tokio::test(start_paused = true)]
async fn a_span_per_call() {
    let told = Told::default();
    let _set = tracing::subscriber::set_default(told.clone());
    let net = Net::new();
    let pool = net.pool(test(BalanceConfig::fixed(1)));
    let expected = [
        ("/trailers", "grpc-status 0"),
        ("/unavailable", "grpc-status 14"),
        ("/eos", "no_status"),
        ("/error", "other"),
    ];
    for (path, _) in expected {
        if let Ok(response) = call(&pool, path).await {
            let _ = response.into_body().collect().await;
        }
    }
    let channel = pool.snapshot().channels[0].id.to_string();
    let mut held = call(&pool, "/held").await.unwrap();
    held.body_mut().frame().await.unwrap().unwrap();
    let spans = told.spans();
    assert_eq!(spans.len(), 5);
    assert!(!spans[4].contains_key("outcome"), "it isn't over");
    drop(held);
    let expected = expected.into_iter().chain([("/held", "dropped")]);
    for (span, (path, outcome)) in told.spans().iter().zip(expected) {
        let pairs = [
            ("", "call"),
            ("pool", "test"),
            ("path", path),
            ("channel", &channel),
            ("place", "a"),
            ("outcome", outcome),
        ];
        let expected: Fields = pairs.map(|(name, value)| (name, value.to_owned())).into();
        assert_eq!(*span, expected);
    }
}

/// X5: each change of state is one event at INFO, and a call is none.
#[tokio::test(start_paused = true)]
async fn events_for_changes_of_state() {
    let told = Told::default();
    let _set = tracing::subscriber::set_default(told.clone());
    let (sender, places) = watch::channel(vec![Place::new("a")]);
    let net = Net::new();
    let config = BalanceConfig {
        initial: 2,
        min: 1,
        ..BalanceConfig::default()
    };
    let pool = net.pool_at(test(config), Places::watch(places));
    pool.warm(2).await.unwrap();
    assert_eq!(told.changes(), ["channel ready a"; 2]);
    for _ in 0..100 {
        call(&pool, "/ok").await.unwrap();
    }
    assert_eq!(told.changes(), [""; 0]);
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(
        told.changes(),
        ["pool resized 2 1 load", "channel drains a Shrunk"]
    );
    sender.send(vec![Place::new("b")]).unwrap();
    settle().await;
    let changes = told.changes();
    assert_eq!(
        changes,
        ["channel drains a PlaceRemoved", "channel ready b"]
    );
    tokio::time::sleep(MINUTE).await;
    net.set_readiness(pool.snapshot().channels[0].id, Readiness::Lost);
    call(&pool, "/ok").await.unwrap();
    let changes = told.changes();
    let lost = [
        "channel lost b",
        "channel drains b Condemned",
        "channel ready b",
    ];
    assert_eq!(changes, lost);
    pool.close(MINUTE).await;
    settle().await;
    assert_eq!(told.changes(), ["channel drains b Closed"]);
}

/// X5: without a subscriber a call allocates nothing for spans: as much as on the bare channel.
#[tokio::test(start_paused = true)]
async fn spans_cost_nothing_when_off() {
    let net = Net::new();
    let pool = net.pool(test(BalanceConfig::fixed(1)));
    pool.warm(1).await.unwrap();
    let id = pool.snapshot().channels[0].id;
    let dial = net.factory()(id, Place::new("a"));
    let bare = dial.await.unwrap();
    // The least of many: the double's own books grow now and then.
    let least = |one: &mut dyn FnMut()| (0..50).map(|_| count(&mut *one)).min().unwrap();
    let mut through_pool = || {
        let answer = pin!(pool.clone().call(request("/ok")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(answer.poll(&mut cx), Poll::Ready(Ok(_))));
    };
    let mut directly = || {
        let answer = pin!(bare.clone().call(request("/ok")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(answer.poll(&mut cx), Poll::Ready(Ok(_))));
    };
    let of_channel = least(&mut directly);
    assert!(of_channel > 0, "the double allocates");
    assert_eq!(least(&mut through_pool), of_channel);
    // Control: with one, it does.
    let _set = tracing::subscriber::set_default(Told::default());
    assert!(least(&mut through_pool) > of_channel);
}
