//! Names that are unknown, and those that were retired.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use steadfast::Config;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{env, file};

#[test]
fn unknown_names() {
    for (text, expected) in [
        (
            "balance.maxx = 1",
            "balance.maxx is no setting: the nearest is balance.max",
        ),
        (
            "egress.keepalive.intervall = '1s'",
            "egress.keepalive.intervall is no setting: the nearest is egress.keepalive.interval",
        ),
        (
            "egress.connect_budget = '1s'",
            "egress.connect_budget is no setting: it follows balance.connect_budget",
        ),
        (
            "penalty.name = 'x'",
            "penalty.name is no setting: it follows balance.name",
        ),
        (
            "stall.name = 'x'",
            "stall.name is no setting: it follows balance.name",
        ),
        (
            "stall.resets = 5",
            "stall.resets is no setting: it follows egress.reset_streams",
        ),
        (
            "stall.alone = true",
            "stall.alone is no setting: it is for a channel without a pool",
        ),
        (
            "retry.name = 'x'",
            "retry.name is no setting: it follows balance.name",
        ),
        (
            "retry.retry_on.timeouts = true",
            "retry.retry_on.timeouts is no setting: the nearest is retry.retry_on.timeout",
        ),
        (
            "retry.retry_on = 'reset'",
            "retry.retry_on is a section, and \"reset\" is none",
        ),
        (
            "deadline = '5s'",
            "deadline is a section, and \"5s\" is none",
        ),
        (
            "resumes.enabled = true",
            "resumes.enabled is no setting: the sections are balance, penalty, stall, resume, \
             retry, deadline, egress",
        ),
        (
            "resume.name = 'x'",
            "resume.name is no setting: it follows balance.name",
        ),
        (
            "max = 1",
            "max is no setting: the sections are balance, penalty, stall, resume, retry, deadline, \
             egress",
        ),
        ("[resumes]", "resumes is an empty table, and no section"),
        ("balance = 1", "balance is a section, and \"1\" is none"),
        (
            "balance.max.more = 1",
            "balance.max.more is no setting: the nearest is balance.max_age",
        ),
    ] {
        assert_eq!(file(text).unwrap_err(), expected);
    }
    for json in ["5", "null", "[]", "\"balance\""] {
        assert!(serde_json::from_str::<Config>(json).is_err(), "{json}");
    }
    let twice = r#"{"balance": {"max": 10}, "balance": {"max": 11}}"#;
    let error = serde_json::from_str::<Config>(twice).unwrap_err();
    assert!(
        error.to_string().starts_with("balance is given twice"),
        "{error}"
    );

    for (name, hint) in [
        (
            "STEADFAST_BALANCE_MAXX",
            "the nearest is STEADFAST_BALANCE_MAX",
        ),
        ("STEADFAST_BALANCE", "the nearest is STEADFAST_BALANCE_MIN"),
        (
            "STEADFAST_PENALTY_NAME",
            "it follows STEADFAST_BALANCE_NAME",
        ),
        (
            "STEADFAST_STALL_RESETS",
            "it follows STEADFAST_EGRESS_RESET_STREAMS",
        ),
        (
            "STEADFAST_STALL_ALONE",
            "it is for a channel without a pool",
        ),
        (
            "STEADFAST_RETRY_RETRY_ON_RESETS",
            "the nearest is STEADFAST_RETRY_RETRY_ON_RESET",
        ),
        ("STEADFAST_EGRESS_", "the nearest is "),
    ] {
        let error = env(&[(name, "1")]).expect_err(name);
        assert_eq!(
            (error.field(), error.value()),
            ("environment", &*format!("{name:?}"))
        );
        let expected = format!("the name of a setting: {hint}");
        assert!(error.range().starts_with(&expected), "{error}");
    }
    for name in [
        "STEADFAST_SKIP_LOG",
        "STEADFAST_",
        "STEADFAST_BALANCER",
        "steadfast_balance_max",
        "BALANCE_MAX",
        "",
    ] {
        assert_eq!(env(&[(name, "no number")]), Ok(Config::default()), "{name}");
    }
}

/// Each name is warned of once in a process, wherever it was met: so this is the one test that meets it.
#[test]
fn retired_names_are_ignored_and_warned_of_once() {
    let warned = warnings(|| {
        for _ in 0..2 {
            let config = file("balance.downscale_threshold = 5\nbalance.max = 10").unwrap();
            assert_eq!(config.balance.max, 10);
            let given = ("STEADFAST_BALANCE_DOWNSCALE_THRESHOLD", "anything");
            assert_eq!(env(&[given]), Ok(Config::default()));
        }
    });
    assert_eq!(warned.len(), 1, "{warned:?}");
    for part in [
        "balance.downscale_threshold",
        "retired",
        "ignored",
        "balance.min_requests",
    ] {
        assert!(
            warned[0].contains(part),
            "{warned:?} says nothing of {part}"
        );
    }
}

/// The warnings of this crate while `f` runs, each with all its fields.
fn warnings(f: impl FnOnce()) -> Vec<String> {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), f);
    let told = warnings.0.lock().unwrap();
    told.clone()
}

#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("steadfast")
    }

    fn event(&self, event: &Event<'_>) {
        assert_eq!(*event.metadata().level(), Level::WARN);
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}
