//! The spans of attempts.
//!
//! One test, in a process of its own: tracing keeps one cache for all threads of which call sites anybody
//! listens to, and a site that is first reached while another thread sets its subscriber may be missed.

#[path = "support/mod.rs"]
mod support;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use steadfast_retry::{Kind, RetryConfig, RetryLayer};
use steadfast_testkit::body::BodyScript;
use support::{HELD, OTHER, Pool, STREAM, good, grpc, lost, never_sent, request, status, whole};
use tower::Layer;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// The spans with their fields as they are now. Those that are open count as well.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Fields>>>);

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
        of.target().starts_with("steadfast_retry")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::from([("", span.metadata().name().to_owned())]);
        span.record(&mut Fill(&mut fields));
        let mut spans = self.0.lock().unwrap();
        spans.push(fields);
        span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fill(&mut self.0.lock().unwrap()[index]));
    }

    fn event(&self, _: &Event<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// X5: a span for each attempt: its number, the channel that took it, and why it failed if it did.
#[tokio::test(start_paused = true)]
async fn a_span_per_attempt() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let config = RetryConfig {
        name: "reads".to_owned(),
        ..RetryConfig::default()
    };
    let retry = RetryLayer::new(config).unwrap();
    let retry = retry.idempotent(HELD, Kind::Held).unwrap();
    let retry = retry.idempotent(STREAM, Kind::Streaming).unwrap();
    let ends = || grpc(BodyScript::default().claim_end_stream(false));
    for (path, replies, causes) in [
        (
            HELD,
            [lost, lost, good] as [fn() -> support::Reply; 3],
            vec!["connection_lost"; 2],
        ),
        (OTHER, [never_sent, good, good], vec!["never_sent"]),
        (OTHER, [|| status(5), good, good], vec![]),
        (HELD, [|| status(5), good, good], vec!["grpc-status 5"]),
        (STREAM, [ends, good, good], vec!["no_status"]),
    ] {
        told.0.lock().unwrap().clear();
        let pool = Pool::scripted(replies);
        whole(retry.layer(pool.clone()), request(path, b""))
            .await
            .unwrap();
        let spans = told.0.lock().unwrap().clone();
        let seen = pool.seen();
        assert_eq!(spans.len(), seen.len(), "{path}");
        for (number, (span, seen)) in spans.iter().zip(&seen).enumerate() {
            assert_eq!(span[""], "attempt");
            assert_eq!((&*span["pool"], &*span["path"]), ("reads", path));
            assert_eq!(span["attempt"], (number + 1).to_string());
            assert_eq!(span["channel"], seen.channel.to_string());
            let cause = span.get("cause").map(String::as_str);
            assert_eq!(cause, causes.get(number).copied(), "{path}: {number}");
        }
    }
}
