//! X3: settings that are out of range are refused, with their name, value and range.

use std::time::Duration;

use steadfast_retry::{Kind, RetryConfig, RetryLayer, RetryOn};

type Change = fn(&mut RetryConfig);

#[test]
fn out_of_range() {
    let rows: [(Change, &str, &str, &str); 12] = [
        (|c| c.attempts = 0, "retry.attempts", "0", "1 to 100"),
        (|c| c.attempts = 101, "retry.attempts", "101", "1 to 100"),
        (|c| c.resends = 1_001, "retry.resends", "1001", "0 to 1000"),
        (
            |c| c.budget_percent = 1_001,
            "retry.budget_percent",
            "1001",
            "0 to 1000",
        ),
        (
            |c| c.budget_per_second = 1_000_001,
            "retry.budget_per_second",
            "1000001",
            "0 to 1000000",
        ),
        (
            |c| c.attempt_timeout = Some(Duration::ZERO),
            "retry.attempt_timeout",
            "0ns",
            "1ms to 3600s",
        ),
        (
            |c| c.attempt_timeout = Some(Duration::MAX),
            "retry.attempt_timeout",
            "18446744073709551615.999999999s",
            "1ms to 3600s",
        ),
        (
            |c| c.backoff = Duration::from_secs(61),
            "retry.backoff",
            "61s",
            "0ns to 60s",
        ),
        (
            |c| c.backoff_max = Duration::from_millis(9),
            "retry.backoff_max",
            "9ms",
            "10ms to 3600s",
        ),
        (
            |c| c.backoff_max = Duration::from_secs(3_601),
            "retry.backoff_max",
            "3601s",
            "10ms to 3600s",
        ),
        (
            |c| c.request_limit = (1 << 30) + 1,
            "retry.request_limit",
            "1073741825",
            "0 to 1073741824",
        ),
        (
            |c| c.reply_limit = (1 << 30) + 1,
            "retry.reply_limit",
            "1073741825",
            "0 to 1073741824",
        ),
    ];
    for (change, field, value, range) in rows {
        let mut config = RetryConfig::default();
        change(&mut config);
        let error = RetryLayer::new(config).unwrap_err();
        let found = (error.field(), error.value(), error.range());
        assert_eq!(found, (field, value, range));
    }
}

#[test]
fn the_edges_are_allowed() {
    let edges: [Change; 2] = [
        |c| {
            (c.attempts, c.resends, c.budget_percent) = (1, 0, 0);
            (c.budget_per_second, c.request_limit, c.reply_limit) = (0, 0, 0);
            (c.backoff, c.backoff_max) = (Duration::ZERO, Duration::ZERO);
            c.attempt_timeout = Some(Duration::from_millis(1));
        },
        |c| {
            (c.attempts, c.resends, c.budget_percent) = (100, 1_000, 1_000);
            (c.budget_per_second, c.request_limit) = (1_000_000, 1 << 30);
            (c.reply_limit, c.backoff) = (1 << 30, Duration::from_secs(60));
            c.backoff_max = Duration::from_secs(3600);
            c.attempt_timeout = Some(Duration::from_secs(3600));
        },
    ];
    for change in edges {
        let mut config = RetryConfig::default();
        change(&mut config);
        assert_eq!(RetryLayer::new(config.clone()).unwrap().config(), &config);
    }
    assert_eq!(RetryConfig::default().validate(), Ok(()));
    assert_eq!(RetryLayer::default().config(), &RetryConfig::default());
    assert!(!RetryOn::default().unavailable);
}

/// T2: a name that is no method's path is an error when the layer is built, and is in it.
#[test]
fn names_of_methods() {
    for bad in [
        "Get",
        "shop.Orders/Get",
        "/shop.Orders",
        "/shop.Orders/Get/",
        "",
    ] {
        let error = RetryLayer::default()
            .idempotent(bad, Kind::Held)
            .unwrap_err();
        assert_eq!(error.field(), "retry.idempotent");
        assert_eq!(error.value(), format!("{bad:?}"));
        assert_eq!(error.range(), "/package.Service/Method");
    }
}
