//! X3: settings that are out of range are refused, with their name, value and range.

use std::time::Duration;

use steadfast_resume::{ResumableStreamLayer, ResumeConfig};

const SECOND: Duration = Duration::from_secs(1);

type Change = fn(&mut ResumeConfig);

fn with(change: Change) -> ResumeConfig {
    let mut config = ResumeConfig::default();
    change(&mut config);
    config
}

#[test]
fn out_of_range() {
    type Row = (Change, &'static str, &'static str);
    let rows: [Row; 16] = [
        (
            |c| c.gap_timeout = Duration::ZERO,
            "gap_timeout",
            "1ms to 3600s",
        ),
        (
            |c| c.gap_timeout = 3_601 * SECOND,
            "gap_timeout",
            "1ms to 3600s",
        ),
        (|c| c.max_attempts = 0, "max_attempts", "1 to 100"),
        (|c| c.max_attempts = 101, "max_attempts", "1 to 100"),
        (
            |c| c.header_timeout = Duration::ZERO,
            "header_timeout",
            "1ms to 86400s",
        ),
        (
            |c| c.header_timeout = 86_401 * SECOND,
            "header_timeout",
            "1ms to 86400s",
        ),
        (|c| c.backoff = 61 * SECOND, "backoff", "0ns to 60s"),
        (
            |c| c.backoff_max = Duration::ZERO,
            "backoff_max",
            "10ms to 3600s",
        ),
        (
            |c| c.backoff_max = 3_601 * SECOND,
            "backoff_max",
            "10ms to 3600s",
        ),
        (|c| c.message_limit = 0, "message_limit", "1 to 1073741824"),
        (
            |c| c.message_limit = 1 << 31,
            "message_limit",
            "1 to 1073741824",
        ),
        (
            |c| c.request_limit = 1 << 31,
            "request_limit",
            "0 to 1073741824",
        ),
        (|c| c.budget_percent = 1_001, "budget_percent", "0 to 1000"),
        (
            |c| c.budget_per_second = 1_000_001,
            "budget_per_second",
            "0 to 1000000",
        ),
        (
            |c| c.gap_timeout = Duration::MAX,
            "gap_timeout",
            "1ms to 3600s",
        ),
        (
            |c| c.backoff_max = Duration::MAX,
            "backoff_max",
            "10ms to 3600s",
        ),
    ];
    for (change, field, range) in rows {
        let error = ResumableStreamLayer::new(with(change)).unwrap_err();
        assert_eq!(error.field(), format!("resume.{field}"));
        assert_eq!(error.range(), range);
    }
}

#[test]
fn the_edges_are_allowed() {
    let edges: [Change; 2] = [
        |c| {
            (c.gap_timeout, c.header_timeout) = (SECOND / 1_000, SECOND / 1_000);
            (c.max_attempts, c.message_limit, c.request_limit) = (1, 1, 0);
            (c.backoff, c.backoff_max) = (Duration::ZERO, Duration::ZERO);
            (c.budget_percent, c.budget_per_second) = (0, 0);
        },
        |c| {
            (c.gap_timeout, c.header_timeout) = (3_600 * SECOND, 86_400 * SECOND);
            (c.max_attempts, c.message_limit, c.request_limit) = (100, 1 << 30, 1 << 30);
            (c.backoff, c.backoff_max) = (60 * SECOND, 3_600 * SECOND);
            (c.budget_percent, c.budget_per_second) = (1_000, 1_000_000);
        },
    ];
    for change in edges {
        let config = with(change);
        let layer = ResumableStreamLayer::new(config.clone()).unwrap();
        assert_eq!(layer.config(), &config);
    }
    assert_eq!(
        ResumableStreamLayer::default().config(),
        &ResumeConfig::default()
    );
}

/// R2: a time-out on the head that isn't longer than the gap is warned of, unless there is no gap.
#[test]
fn a_short_time_for_the_head_is_warned_of() {
    let rows: [(Change, bool); 6] = [
        (|c| c.header_timeout = c.gap_timeout, true),
        (|c| c.header_timeout = c.gap_timeout - SECOND / 1_000, true),
        (|c| c.header_timeout = c.gap_timeout + SECOND / 1_000, false),
        (|_| {}, false),
        (
            |c| (c.header_timeout, c.max_attempts) = (c.gap_timeout, 1),
            false,
        ),
        (
            |c| (c.header_timeout, c.enabled) = (c.gap_timeout, false),
            false,
        ),
    ];
    for (change, warns) in rows {
        let warnings = with(change).warnings();
        assert_eq!(!warnings.is_empty(), warns, "{warnings:?}");
        if warns {
            assert!(warnings[0].contains("resume.header_timeout"));
            assert!(warnings[0].contains("resume.gap_timeout (5s)"));
        }
    }
}
