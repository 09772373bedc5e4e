//! The environment: the same names, and the last word.

use std::{process::Command, time::Duration};

use steadfast::{Config, Keepalive, Pool, ResumeConfig, RetryConfig, RetryOn, StallConfig};

use super::{URI, build, env, file, line, paths, variable};

#[test]
fn every_setting_can_be_set_in_a_file_and_in_the_environment() {
    for path in paths() {
        let value = match &*path {
            "balance.name" => "a name",
            "balance.strategy" => "round_robin",
            "balance.grow_on_demand" => "false",
            "balance.assumed_streams" => "3",
            "balance.initial" | "balance.max" => "20",
            "balance.min" | "balance.min_requests" | "balance.resize_step" => "3",
            "balance.max_requests" | "balance.refresh_step" | "penalty.step" => "50",
            "penalty.enabled" => "false",
            "penalty.linear_decay" | "penalty.occupancy" => "true",
            "penalty.mode" => "flat",
            "penalty.weight" | "penalty.cap" => "70",
            "egress.keepalive" => "none",
            "egress.max_frame_size" => "20000",
            "egress.stream_window" | "egress.connection_window" | "egress.max_header_list_size" => {
                "100000"
            }
            "egress.reset_streams" => "77",
            "stall.enabled" | "stall.probes" | "retry.enabled" | "retry.budget"
            | "resume.enabled" | "resume.budget" => "false",
            "resume.attempts_per" => "progress",
            path if path.starts_with("resume.resume_on.") => "false",
            "resume.max_attempts" => "33",
            "resume.message_limit" | "resume.request_limit" => "7",
            "resume.budget_percent" | "resume.budget_per_second" => "70",
            "resume.header_timeout" => "2m",
            "retry.retry_on.unavailable" => "true",
            path if path.starts_with("retry.retry_on.") => "false",
            "stall.most_percent" | "stall.ring" | "retry.attempts" | "retry.resends" => "33",
            "stall.strikes" | "retry.request_limit" | "retry.reply_limit" => "7",
            "retry.budget_percent" | "retry.budget_per_second" => "70",
            "stall.reprobe" | "stall.reprobe_most" => "5s",
            "stall.tick" => "40ms",
            "retry.backoff" | "resume.backoff" => "20ms",
            _ => "1m 30s",
        };
        let from_file = file(&line(&path, value)).expect(&path);
        let from_env = env(&[(&variable(&path), value)]).expect(&path);
        assert_eq!(from_file, from_env, "{path}");
        assert_ne!(from_env, Config::default(), "{path}");
        let written = toml::Table::try_from(&from_env).unwrap();
        let found = path
            .split('.')
            .try_fold(&toml::Value::Table(written), |value, key| value.get(key))
            .cloned();
        let found = found.expect(&path);
        let shown = found
            .as_str()
            .map_or_else(|| found.to_string(), str::to_owned);
        assert_eq!(shown, value, "{path}");
        assert!(build(from_env).is_ok(), "{path}");
    }
}

#[test]
fn the_environment_has_the_last_word() {
    let config = file("preset = 'bigtable'\nbalance.max = 100\negress.keepalive = 'none'").unwrap();
    let config = config
        .with_vars([
            ("STEADFAST_BALANCE_MAX", "50"),
            ("STEADFAST_BALANCE_MAX_AGE", "none"),
            ("STEADFAST_EGRESS_KEEPALIVE_TIMEOUT", "3s"),
        ])
        .unwrap();
    assert_eq!((config.balance.initial, config.balance.max), (10, 50));
    assert_eq!(config.balance.max_age, None);
    let keepalive = Keepalive::new(Duration::from_secs(60), Duration::from_secs(3));
    assert_eq!(
        config.egress.keepalive,
        Some(keepalive),
        "setting a part of it switches it on"
    );

    let both = [
        ("STEADFAST_EGRESS_KEEPALIVE_TIMEOUT", "3s"),
        ("STEADFAST_EGRESS_KEEPALIVE", "none"),
    ];
    for both in [both, [both[1], both[0]]] {
        assert_eq!(
            env(&both).unwrap_err().to_string(),
            "STEADFAST_EGRESS_KEEPALIVE is \"none\"; allowed is either this or STEADFAST_EGRESS_KEEPALIVE_TIMEOUT"
        );
    }
}

/// A range that depends on another setting: the error names the variable, whichever of the two it set.
#[test]
fn a_variable_that_makes_another_setting_wrong_is_named() {
    let error = env(&[
        ("STEADFAST_BALANCE_MIN", "70"),
        ("STEADFAST_PENALTY_CAP", "90"),
    ])
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "balance.max is 64; allowed is 70 to 10000 with STEADFAST_BALANCE_MIN=70"
    );
    let error = env(&[("STEADFAST_STALL_TICK", "600ms")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stall.silence is 1s; allowed is 1.2s to 3600s with STEADFAST_STALL_TICK=600ms"
    );
    let mut wrong = Config::default();
    wrong.balance.max = 0;
    let error = wrong
        .with_vars([("STEADFAST_BALANCE_NAME", "x")])
        .unwrap_err();
    assert_eq!(error.to_string(), "balance.max is 0; allowed is 4 to 10000");
}

#[cfg(unix)]
#[test]
fn variables_that_are_not_unicode() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let hostile = OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(
        Config::default().with_vars([(hostile, hostile)]),
        Ok(Config::default())
    );
    let name = OsStr::new("STEADFAST_BALANCE_MAX");
    let error = Config::default().with_vars([(name, hostile)]).unwrap_err();
    assert_eq!(error.field(), "STEADFAST_BALANCE_MAX");
}

/// Set for a child of a test: a process's environment is changed before it starts, never in it.
const CHILD: &str = "CONFIG_TEST_CHILD";

/// Runs one test of this program once more, with these variables.
fn in_a_child(test: &str, variables: &[(&str, &str)]) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && out.contains("1 passed"),
        "{child:?}"
    );
}

#[test]
fn a_pool_reads_the_environment_when_it_is_built() {
    if std::env::var_os(CHILD).is_none() {
        return in_a_child(
            "environment::a_pool_reads_the_environment_when_it_is_built",
            &[("STEADFAST_BALANCE_MAX", "0")],
        );
    }
    let error = Pool::new(URI).unwrap_err();
    assert_eq!(
        error.to_string(),
        "STEADFAST_BALANCE_MAX is \"0\"; allowed is 4 to 10000"
    );
    assert_eq!(Config::from_env().unwrap_err(), error);
    let instance = "projects/p/instances/i";
    assert_eq!(Pool::bigtable(URI, instance).unwrap_err(), error);
    assert!(Pool::builder(URI).without_env().build().is_ok());
}

#[test]
fn the_layers_of_a_pool_get_what_the_environment_says() {
    if std::env::var_os(CHILD).is_none() {
        return in_a_child(
            "environment::the_layers_of_a_pool_get_what_the_environment_says",
            &[
                ("STEADFAST_BALANCE_NAME", "orders"),
                ("STEADFAST_STALL_ENABLED", "false"),
                ("STEADFAST_STALL_SILENCE", "2s"),
                ("STEADFAST_RESUME_GAP_TIMEOUT", "4s"),
                ("STEADFAST_RETRY_ATTEMPTS", "5"),
                ("STEADFAST_RETRY_RETRY_ON_UNAVAILABLE", "true"),
                ("STEADFAST_DEADLINE_DEFAULT", "30s"),
                ("STEADFAST_EGRESS_RESET_STREAMS", "9000"),
            ],
        );
    }
    let pool = Pool::new(URI).unwrap();
    let name = "orders".to_owned();
    let stall = StallConfig {
        name: name.clone(),
        enabled: false,
        silence: Duration::from_secs(2),
        resets: Some(9_000),
        ..StallConfig::default()
    };
    assert_eq!(pool.stall().config(), &stall);
    let resume = ResumeConfig {
        name: name.clone(),
        gap_timeout: Duration::from_secs(4),
        ..ResumeConfig::default()
    };
    assert_eq!(pool.resume().config(), &resume);
    let retry = RetryConfig {
        name,
        attempts: 5,
        retry_on: RetryOn {
            unavailable: true,
            ..RetryOn::default()
        },
        ..RetryConfig::default()
    };
    assert_eq!(pool.retry().config(), &retry);
    let deadline = Some(Duration::from_secs(30));
    assert_eq!(Config::from_env().unwrap().deadline.default, deadline);
}
