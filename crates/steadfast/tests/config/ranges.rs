//! Every setting out of its range, and values that are none.

use std::collections::BTreeSet;

use super::{build, env, file, line, paths, variable};

/// Path, values that are refused, and the range that the error shows.
type Row = (&'static str, &'static [&'static str], &'static str);

const YEARS: &str = "4000years";
const ROWS: &[Row] = &[
    ("balance.initial", &["0", "3", "65"], "4 to 64"),
    ("balance.min", &["0", "10001"], "1 to 10000"),
    ("balance.max", &["0", "3", "10001"], "4 to 10000"),
    ("balance.min_requests", &["0", "26"], "1 to 25"),
    ("balance.max_requests", &["0", "1000001"], "1 to 1000000"),
    ("balance.assumed_streams", &["0", "65535"], "1 to 65534"),
    ("balance.resize_interval", &["0s", "999ms", YEARS], "1s to "),
    ("balance.resize_step", &["0", "10001"], "1 to 10000"),
    ("balance.max_age", &["0s", "999ms", YEARS], "1s to "),
    ("balance.age_jitter", &[YEARS], "0ns to "),
    ("balance.refresh_step", &["0", "10001"], "1 to 10000"),
    ("balance.drain_limit", &[YEARS], "0ns to "),
    (
        "balance.connect_budget",
        &["0s", "999us", "601s"],
        "1ms to 600s",
    ),
    ("balance.wait_for_ready", &[YEARS], "0ns to "),
    ("penalty.weight", &["0", "1000001"], "1 to 1000000"),
    ("penalty.window", &["0s", "999us", "3601s"], "1ms to 3600s"),
    ("penalty.step", &["1000001"], "0 to 1000000"),
    ("penalty.cap", &["1000001"], "0 to 1000000"),
    ("penalty.trickle", &["0s", "9ms", "3601s"], "10ms to 3600s"),
    ("stall.silence", &["0s", "99ms", "3601s"], "100ms to 3600s"),
    ("stall.answer", &["0s", "999us", "3601s"], "1ms to 3600s"),
    ("stall.prepare", &["0s", "999us", "3601s"], "1ms to 3600s"),
    ("stall.reprobe", &["0s", "999us", "3601s"], "1ms to 3600s"),
    (
        "stall.reprobe_most",
        &["0s", "999ms", "3601s"],
        "1s to 3600s",
    ),
    ("stall.most_percent", &["101"], "0 to 100"),
    ("stall.strikes", &["0", "1001"], "1 to 1000"),
    (
        "stall.strike_window",
        &["0s", "999ms", "86401s"],
        "1s to 86400s",
    ),
    (
        "stall.dead_after",
        &["0s", "999ms", "86401s"],
        "1s to 86400s",
    ),
    (
        "stall.replace_every",
        &["0s", "999ms", "86401s"],
        "1s to 86400s",
    ),
    ("stall.tick", &["0s", "999us", "1001ms"], "1ms to 1s"),
    ("stall.tolerance", &["0s", "49ms", "3601s"], "50ms to 3600s"),
    ("stall.ring", &["15", "1000001"], "16 to 1000000"),
    (
        "resume.gap_timeout",
        &["0s", "999us", "3601s"],
        "1ms to 3600s",
    ),
    ("resume.max_attempts", &["0", "101"], "1 to 100"),
    (
        "resume.header_timeout",
        &["0s", "999us", "86401s"],
        "1ms to 86400s",
    ),
    ("resume.backoff", &["61s"], "0ns to 60s"),
    (
        "resume.backoff_max",
        &["0s", "9ms", "3601s"],
        "10ms to 3600s",
    ),
    (
        "resume.message_limit",
        &["0", "1073741825"],
        "1 to 1073741824",
    ),
    ("resume.request_limit", &["1073741825"], "0 to 1073741824"),
    ("resume.budget_percent", &["1001"], "0 to 1000"),
    ("resume.budget_per_second", &["1000001"], "0 to 1000000"),
    ("retry.attempts", &["0", "101"], "1 to 100"),
    ("retry.resends", &["1001"], "0 to 1000"),
    (
        "retry.attempt_timeout",
        &["0s", "999us", "3601s"],
        "1ms to 3600s",
    ),
    ("retry.backoff", &["61s"], "0ns to 60s"),
    (
        "retry.backoff_max",
        &["0s", "9ms", "3601s"],
        "10ms to 3600s",
    ),
    ("retry.request_limit", &["1073741825"], "0 to 1073741824"),
    ("retry.reply_limit", &["1073741825"], "0 to 1073741824"),
    ("retry.budget_percent", &["1001"], "0 to 1000"),
    ("retry.budget_per_second", &["1000001"], "0 to 1000000"),
    (
        "deadline.default",
        &["0s", "999us", "31557601s"],
        "1ms to 31557600s",
    ),
    (
        "egress.stream_window",
        &["0", "2147483648"],
        "1..=2147483647",
    ),
    (
        "egress.connection_window",
        &["0", "2147483648"],
        "1..=2147483647",
    ),
    (
        "egress.max_frame_size",
        &["0", "16383", "16777216"],
        "16384..=16777215",
    ),
    (
        "egress.max_header_list_size",
        &["0", "2147483648"],
        "1..=2147483647",
    ),
    ("egress.reset_streams", &["1048577"], "0..=1048576"),
    ("egress.reset_stream_duration", &["3601s"], "0ns..=3600s"),
    (
        "egress.keepalive.interval",
        &["0s", "999us", "3601s"],
        "1ms..=3600s",
    ),
    (
        "egress.keepalive.timeout",
        &["0s", "999us", "3601s"],
        "1ms..=3600s",
    ),
];

/// Settings that have no range, and what they may be.
const WORDS: &[(&str, &str)] = &[
    (
        "balance.strategy",
        "least_loaded or power_of_two or round_robin",
    ),
    ("balance.grow_on_demand", "true or false"),
    ("penalty.enabled", "true or false"),
    ("penalty.mode", "flat or reserve"),
    ("penalty.linear_decay", "true or false"),
    ("penalty.occupancy", "true or false"),
    ("stall.enabled", "true or false"),
    ("stall.probes", "true or false"),
    ("resume.enabled", "true or false"),
    ("resume.attempts_per", "stream or progress"),
    ("resume.budget", "true or false"),
    ("resume.resume_on.dial_failed", "true or false"),
    ("resume.resume_on.never_processed", "true or false"),
    ("resume.resume_on.connection_lost", "true or false"),
    ("resume.resume_on.refused", "true or false"),
    ("resume.resume_on.reset", "true or false"),
    ("resume.resume_on.goaway", "true or false"),
    ("resume.resume_on.no_status", "true or false"),
    ("resume.resume_on.unavailable", "true or false"),
    ("resume.resume_on.quarantine", "true or false"),
    ("retry.enabled", "true or false"),
    ("retry.budget", "true or false"),
    ("retry.retry_on.dial_failed", "true or false"),
    ("retry.retry_on.unprocessed", "true or false"),
    ("retry.retry_on.connection_lost", "true or false"),
    ("retry.retry_on.reset", "true or false"),
    ("retry.retry_on.no_status", "true or false"),
    ("retry.retry_on.unavailable", "true or false"),
    ("retry.retry_on.quarantine", "true or false"),
    ("retry.retry_on.timeout", "true or false"),
    ("egress.keepalive", "none, or the settings in it"),
];

#[test]
fn every_setting_out_of_its_range_is_refused() {
    for (path, values, range) in ROWS {
        for value in *values {
            let config = file(&line(path, value)).expect(path);
            let error = build(config).expect_err(path);
            assert_eq!(error.field(), *path, "{error}");
            assert!(error.range().starts_with(range), "{error}");
            assert!(!error.value().is_empty(), "{error}");

            let error = env(&[(&variable(path), value)]).expect_err(path);
            assert_eq!(error.field(), variable(path));
            assert_eq!(error.value(), format!("{value:?}"));
            assert!(error.range().starts_with(range), "{error}");
        }
    }
    let rows = ROWS.iter().map(|(path, ..)| *path);
    let words = WORDS.iter().map(|(path, _)| *path);
    let tried: BTreeSet<String> = rows.chain(words).map(str::to_owned).collect();
    let mut all = paths();
    assert!(all.remove("balance.name"), "any text will do");
    assert_eq!(tried, all, "a setting without its row");
}

#[test]
fn values_that_cannot_be_understood_are_refused() {
    let ranges = ROWS.iter().map(|(path, _, range)| (*path, *range));
    for (path, range) in ranges.chain(WORDS.iter().copied()) {
        for value in [
            "",
            "-1",
            "5 parsecs",
            "1.5",
            "99999999999999999999999999",
            "{}",
        ] {
            let error = env(&[(&variable(path), value)]).expect_err(path);
            assert_eq!(error.field(), variable(path));
            assert_eq!(error.value(), format!("{value:?}"));
            assert!(error.range().contains(range), "{error}");

            let error = file(&line(path, value)).expect_err(path);
            assert!(
                error.starts_with(&format!("{path} is {value:?}; allowed is ")),
                "{error}"
            );
            assert!(error.contains(range), "{error}");
        }
    }
    let message = "STEADFAST_BALANCE_MAX_AGE is \"5\"; allowed is none, or a time with its unit, \
                   such as 5s or 1h 30m, 1s to ";
    let error = env(&[("STEADFAST_BALANCE_MAX_AGE", "5")]).unwrap_err();
    assert!(error.to_string().starts_with(message), "{error}");
    for (text, expected) in [
        (
            "balance.max = -1",
            r#"balance.max is "-1"; allowed is a whole number, 4 to 10000"#,
        ),
        (
            "balance.max = 1.5",
            r#"balance.max is "1.5"; allowed is a whole number, 4 to 10000"#,
        ),
        (
            "penalty.enabled = 1",
            r#"penalty.enabled is "1"; allowed is true or false"#,
        ),
        (
            "preset = 'spanner'",
            r#"preset is "spanner"; allowed is default or bigtable"#,
        ),
    ] {
        assert_eq!(file(text).unwrap_err(), expected);
    }
    let list = file("balance.max = [1]").unwrap_err();
    assert!(
        list.contains("a value or a table for balance.max"),
        "{list}"
    );
}
