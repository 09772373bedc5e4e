//! X3: settings that are out of range are refused, with their name, value and range.

use std::time::Duration;

use steadfast_penalty::{Mode, PenaltyConfig, PenaltyWindowLayer};

/// A change to the default settings.
type Change = fn(&mut PenaltyConfig);

fn refused(change: Change) -> (&'static str, String, String) {
    let mut config = PenaltyConfig::default();
    change(&mut config);
    let error = PenaltyWindowLayer::new(config).unwrap_err();
    assert!(error.to_string().contains(error.field()));
    (
        error.field(),
        error.value().to_owned(),
        error.range().to_owned(),
    )
}

#[test]
fn out_of_range() {
    let most = "1000000";
    let rows: [(Change, &str, &str, String); 7] = [
        (
            |c| c.weight = Some(0),
            "penalty.weight",
            "0",
            format!("1 to {most}"),
        ),
        (
            |c| c.weight = Some(1_000_001),
            "penalty.weight",
            "1000001",
            format!("1 to {most}"),
        ),
        (
            |c| c.step = 1_000_001,
            "penalty.step",
            "1000001",
            format!("0 to {most}"),
        ),
        (
            |c| (c.step, c.cap) = (1, 24),
            "penalty.cap",
            "24",
            format!("25 to {most}"),
        ),
        (
            |c| c.window = Duration::ZERO,
            "penalty.window",
            "0ns",
            "1ms to 3600s".to_owned(),
        ),
        (
            |c| c.window = Duration::MAX,
            "penalty.window",
            "18446744073709551615.999999999s",
            "1ms to 3600s".to_owned(),
        ),
        (
            |c| c.trickle = Duration::from_millis(9),
            "penalty.trickle",
            "9ms",
            "10ms to 3600s".to_owned(),
        ),
    ];
    for (change, field, value, range) in rows {
        let expected = (field, value.to_owned(), range);
        assert_eq!(refused(change), expected);
    }
}

#[test]
fn the_edges_are_allowed() {
    let config = PenaltyConfig {
        weight: Some(1_000_000),
        window: Duration::from_millis(1),
        step: 0,
        cap: 0,
        trickle: Duration::from_secs(3600),
        ..PenaltyConfig::default()
    };
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(PenaltyConfig::default().validate(), Ok(()));
    assert_eq!(PenaltyConfig::default().mode, Mode::Reserve);
    assert_eq!(
        PenaltyWindowLayer::default().config(),
        &PenaltyConfig::default()
    );
}
