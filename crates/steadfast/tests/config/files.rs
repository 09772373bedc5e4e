//! Files: the example, defaults and presets.

use std::collections::BTreeSet;

use steadfast::{BalanceConfig, Config, EgressConfig, Keepalive};

use super::{collect, file, paths};

const EXAMPLE: &str = include_str!("../../../../docs/steadfast.example.toml");

/// The example says every setting, each at its default, and nothing else.
#[test]
fn the_example_is_the_default() {
    assert_eq!(file(EXAMPLE), Ok(Config::default()));
    let table: toml::Table = EXAMPLE.parse().unwrap();
    let mut written = BTreeSet::new();
    collect("", &table, &mut written);
    assert!(written.remove("preset"));
    let mut all = paths();
    // It is shown in words: with the section there it can't be there too.
    assert!(all.remove("egress.keepalive"));
    assert!(EXAMPLE.contains("keepalive = \"none\""));
    assert_eq!(written, all);

    // Each has its own words above it.
    let lines: Vec<_> = EXAMPLE.lines().collect();
    for pair in lines.windows(2) {
        if pair[1].contains(" = ") && !pair[1].starts_with('#') {
            assert!(pair[0].starts_with('#'), "{} isn't explained", pair[1]);
        }
    }
}

#[test]
fn what_is_not_in_a_file_has_its_default() {
    assert_eq!(file(""), Ok(Config::default()));
    assert_eq!(file("[balance]\n[egress.keepalive]"), Ok(Config::default()));
    let expected = Config {
        balance: BalanceConfig {
            max: 10,
            ..BalanceConfig::default()
        },
        ..Config::default()
    };
    assert_eq!(file("balance.max = 10"), Ok(expected));
    let expected = Config {
        egress: EgressConfig::default().with_keepalive(Keepalive::google()),
        ..Config::default()
    };
    assert_eq!(file("egress.keepalive.interval = '30s'"), Ok(expected));
}

#[test]
fn presets() {
    assert_eq!(file("preset = 'default'"), Ok(Config::default()));
    assert_eq!(file("preset = 'bigtable'"), Ok(Config::bigtable()));
    // TOML's order isn't the file's, and JSON's is: neither matters.
    let json = r#"{"balance": {"max": 100, "max_age": null}, "preset": "bigtable"}"#;
    let config: Config = serde_json::from_str(json).unwrap();
    let bigtable = BalanceConfig::bigtable().named("bigtable");
    let balance = BalanceConfig {
        max: 100,
        max_age: None,
        ..bigtable
    };
    assert_eq!(
        config,
        Config {
            balance,
            ..Config::bigtable()
        }
    );
    let off = file("preset = 'bigtable'\negress.keepalive = 'none'").unwrap();
    assert_eq!(off.egress.keepalive, None);
}
