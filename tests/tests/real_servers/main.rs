//! Streams that are resumed, of real servers behind a proxy that cuts, resets and freezes connections at random for a
//! minute.

mod bigtable;
mod chaos;
#[path = "../../../crates/rules/tests/etcd/mod.rs"]
mod etcd;
mod spanner;
mod watch;

use std::time::Duration;

use steadfast::{AttemptsPer, Config, Pool};
use steadfast_tests::{bigtable::unary, whole::quick};

/// How long each test is at it.
const TIME: Duration = Duration::from_secs(60);

/// A pool of six channels that notices silence soon, and whose streams go on as long as they get on.
fn config() -> Config {
    let mut config = quick(6);
    config.resume.gap_timeout = Duration::from_secs(1);
    config.resume.attempts_per = AttemptsPer::Progress;
    config.resume.max_attempts = 50;
    config.resume.backoff_max = Duration::from_millis(500);
    config.resume.budget = false;
    config
}

/// Attempts that carried streams of the pool's only rule on.
fn resumed(pool: &Pool) -> u64 {
    let rules = pool.resume().snapshot().rules;
    assert_eq!(rules.len(), 1);
    println!("{:?}", rules[0]);
    rules[0].resumed
}
