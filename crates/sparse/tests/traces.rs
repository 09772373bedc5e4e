//! X5: what the layer tells of its state and its refusals.
//!
//! One test, in a process of its own: tracing keeps one cache for all threads of which call sites anybody
//! listens to, and a site that is first reached while another thread sets its subscriber may be missed.

mod support;

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};

use steadfast_sparse::SparseConfig;
use steadfast_testkit::body::ScriptBody;
use support::{of, places, start};
use tower::Service;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Keeps each event as a line.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("steadfast_sparse")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

/// X5: one event when calls begin to be refused, one for each of them, and one when nobody waits any more; nothing
/// while all is well.
#[tokio::test(start_paused = true)]
async fn events() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(told.clone());
    let (_, mut service, inner) = start(SparseConfig {
        name: "reads".into(),
        max_waiting: 1,
        ..places(1)
    });
    drop(service.call(of("a")).await.unwrap());
    assert!(told.0.lock().unwrap().is_empty());
    for _ in 0..2 {
        inner.give(ScriptBody::new().wait().start().0);
        let first = service.call(of("a")).await.unwrap();
        let waits = service.call(of("a"));
        for _ in 0..2 {
            service.call(of("b")).await.unwrap_err();
        }
        drop((waits, first));
        let lines = std::mem::take(&mut *told.0.lock().unwrap());
        let starts = [
            "INFO message=calls are refused",
            "DEBUG message=the call got no place",
            "DEBUG message=the call got no place",
            "INFO message=no call waits any more",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert!(lines[0].contains("name=\"reads\"") && lines[0].contains("bound=\"total\""));
        assert!(lines[1].contains("kind=overload"), "{}", lines[1]);
    }
}
