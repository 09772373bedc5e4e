//! What is told to a subscriber of tracing.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// The spans of one crate with their fields as they are now, those that are open too, and its events.
#[derive(Clone)]
pub(crate) struct Told {
    target: &'static str,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Fields>,
    events: Vec<(Level, Fields)>,
}

pub(crate) type Fields = BTreeMap<&'static str, String>;

impl Told {
    pub(crate) fn of(target: &'static str) -> Self {
        Self {
            target,
            seen: Arc::default(),
        }
    }

    pub(crate) fn forget(&self) {
        *self.seen.lock().unwrap() = Seen::default();
    }

    pub(crate) fn spans(&self) -> Vec<Fields> {
        self.seen.lock().unwrap().spans.clone()
    }

    pub(crate) fn events(&self, level: Level) -> Vec<Fields> {
        let seen = self.seen.lock().unwrap();
        let events = seen.events.iter().filter(|it| it.0 == level);
        events.map(|it| it.1.clone()).collect()
    }
}

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
        of.target().starts_with(self.target)
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::from([("", span.metadata().name().to_owned())]);
        span.record(&mut Fill(&mut fields));
        let spans = &mut self.seen.lock().unwrap().spans;
        spans.push(fields);
        span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &span::Id, values: &span::Record<'_>) {
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fill(&mut self.seen.lock().unwrap().spans[index]));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Fill(&mut fields));
        let level = *event.metadata().level();
        self.seen.lock().unwrap().events.push((level, fields));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
