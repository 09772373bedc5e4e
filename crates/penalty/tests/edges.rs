//! The decisions at the very edges: the instant at which a window ends, and what is no news.

use std::time::Duration;

use steadfast_core::now;
use steadfast_penalty::{Mode, PenaltyConfig, PenaltyPolicy};

fn flat() -> PenaltyConfig {
    PenaltyConfig {
        mode: Mode::Flat,
        ..PenaltyConfig::default()
    }
}

/// P1: a failure at the instant at which a window ends begins a new one, also when the timer is late.
#[test]
fn a_failure_at_the_end_begins_anew() {
    for (before, failures) in [(Duration::ZERO, 1), (Duration::from_nanos(1), 2)] {
        let start = now().into_std();
        let config = flat();
        let end = start + config.window;
        let mut policy = PenaltyPolicy::new(config);
        let member = policy.join(start);
        policy.on_failure(member, start);
        policy.on_failure(member, end - before);
        let (_, penalised) = policy.penalised().next().unwrap();
        assert_eq!(penalised.failures, failures, "{before:?} before its end");
    }
}

/// P1: what a meter shows already is no action, and what was found twice before anyone asked is one.
#[test]
fn nothing_is_told_twice() {
    let start = now().into_std();
    let mut policy = PenaltyPolicy::new(flat());
    let (member, other) = (policy.join(start), policy.join(start));
    assert_eq!(policy.next_action(), None, "new channels are free");
    policy.on_failure(member, start);
    policy.on_usable(other, false, start);
    let action = policy.next_action().unwrap();
    assert_eq!((action.member, action.charge), (member, Some(25)));
    assert_eq!(policy.next_action(), None);
    policy.on_deadline(start + Duration::from_secs(1));
    assert_eq!(policy.next_action(), None, "nothing has changed");
}
