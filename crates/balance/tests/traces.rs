//! What a pool tells of its calls and its state: spans and events.
//!
//! One test, in a process of its own: tracing keeps one cache for all threads of which call sites anybody
//! listens to, and a site that is first reached while another thread sets its subscriber may be missed.
#![expect(
    unreachable_pub,
    reason = "the modules of one test binary share the items of `common`"
)]
#![expect(
    dead_code,
    reason = "the doubles are those of the other tests, of which this uses a part"
)]

#[path = "behaviour/common.rs"]
mod common;

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

use crate::common::{Net, Readiness, call, request, settle};
use http_body_util::BodyExt;
use steadfast_balance::{BalanceConfig, Places};
use steadfast_core::Place;
use steadfast_testkit::alloc::{CountingAllocator, count};
use tokio::sync::watch;
use tower::Service;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const MINUTE: Duration = Duration::from_secs(60);

fn test(config: BalanceConfig) -> BalanceConfig {
    config.named("test")
}

/// X5: what a pool tells, and that it costs nothing while nobody listens.
#[tokio::test(start_paused = true)]
async fn spans_and_events() {
    spans_cost_nothing_when_off().await;
    a_span_per_call().await;
    events_for_changes_of_state().await;
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
