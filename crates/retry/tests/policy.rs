//! The decisions, row by row of the table of failures, and what holds for any of them.

use std::time::Duration;

use proptest::prelude::*;
use steadfast_core::{LocalKind, Outcome};
use steadfast_retry::{
    Decision, Facts, Kind, Pushback, Reason, Resend, RetryConfig, RetryOn, RetryPolicy,
};

const MS: Duration = Duration::from_millis(1);

/// A failure of an idempotent method, with nothing in the way of trying again.
fn facts(outcome: Outcome) -> Facts {
    Facts {
        outcome,
        kind: Some(Kind::Held),
        kept: true,
        handed_up: false,
        pushback: None,
        left: None,
        random: 1.0,
    }
}

fn first(config: &RetryConfig, facts: &Facts) -> Decision {
    RetryPolicy::new().failed(config, facts)
}

fn resent(decision: Decision) -> Option<Resend> {
    match decision {
        Decision::Resend(how) => Some(how),
        Decision::GiveUp(_) => None,
    }
}

const AT_ONCE: Decision = Decision::Resend(Resend {
    after: Duration::ZERO,
    paid: false,
    unprocessed: true,
});

/// A row of the table.
type Switch = fn(&mut RetryOn) -> &mut bool;

/// Every outcome there is, with the switch of its row; none for those that are never repeated.
fn table() -> Vec<(Outcome, Option<Switch>)> {
    let dial: Switch = |set| &mut set.dial_failed;
    let lost: Switch = |set| &mut set.connection_lost;
    let reset: Switch = |set| &mut set.reset;
    let no_status: Switch = |set| &mut set.no_status;
    let unavailable: Switch = |set| &mut set.unavailable;
    let mut rows = vec![
        (Outcome::DialFailed, Some(dial)),
        (Outcome::Local(LocalKind::NoChannel), Some(dial)),
        (Outcome::ConnectionLost, Some(lost)),
        (Outcome::Protocol, Some(lost)),
        (Outcome::NoStatus, Some(no_status)),
        (Outcome::CutShort, Some(no_status)),
        (Outcome::Timeout, Some((|set| &mut set.timeout) as Switch)),
        (
            Outcome::Local(LocalKind::Quarantine),
            Some((|set| &mut set.quarantine) as Switch),
        ),
        (Outcome::GapTimeout, None),
        (Outcome::Dropped, None),
        (Outcome::Other, None),
        (Outcome::Local(LocalKind::Drained), None),
        (Outcome::Local(LocalKind::Closed), None),
        (Outcome::Local(LocalKind::Deadline), None),
        (Outcome::Local(LocalKind::Overload), None),
        (Outcome::Local(LocalKind::Budget), None),
    ];
    for code in 0..14 {
        rows.push((Outcome::Reset(code), Some(reset)));
        rows.push((Outcome::GoAway(code), Some(no_status)));
    }
    for code in 0..=16 {
        rows.push((Outcome::Status(code), (code == 14).then_some(unavailable)));
    }
    for code in [
        204, 301, 400, 401, 403, 404, 408, 413, 429, 431, 500, 501, 502, 503, 504,
    ] {
        let proxy = matches!(code, 429 | 502 | 503 | 504);
        rows.push((Outcome::Http(code), proxy.then_some(unavailable)));
    }
    rows
}

/// T2: each row of the table is its own switch, and only that one; no other method than an idempotent one is
/// repeated, whatever the switches say.
#[test]
fn the_table() {
    for (outcome, switch) in table() {
        let mut alone = RetryConfig {
            retry_on: RetryOn::nothing(),
            ..RetryConfig::default()
        };
        assert_eq!(resent(first(&alone, &facts(outcome))), None, "{outcome}");
        let mut all_but = RetryConfig::default();
        all_but.retry_on.unavailable = true;
        let Some(switch) = switch else {
            let decision = first(&all_but, &facts(outcome));
            assert_eq!(decision, Decision::GiveUp(Reason::NotRepeated), "{outcome}");
            continue;
        };
        *switch(&mut alone.retry_on) = true;
        let how = resent(first(&alone, &facts(outcome))).expect("it is switched on");
        assert!(!how.unprocessed, "{outcome}");
        let paid = outcome != Outcome::Local(LocalKind::Quarantine);
        assert_eq!(how.paid, paid, "{outcome}");
        let other = Facts {
            kind: None,
            ..facts(outcome)
        };
        let decision = first(&alone, &other);
        assert_eq!(
            decision,
            Decision::GiveUp(Reason::NotIdempotent),
            "{outcome}"
        );
        *switch(&mut all_but.retry_on) = false;
        assert_eq!(resent(first(&all_but, &facts(outcome))), None, "{outcome}");
    }
}

/// T2: what is repeated by default: all that the table has, but for a server that says that it is
/// unavailable.
#[test]
fn the_default_set() {
    let config = RetryConfig::default();
    for (outcome, switch) in table() {
        let unavailable = matches!(outcome, Outcome::Status(_) | Outcome::Http(_));
        let repeated = resent(first(&config, &facts(outcome))).is_some();
        assert_eq!(repeated, switch.is_some() && !unavailable, "{outcome}");
    }
}

/// T1: what never left is sent again at once, for every method and without the budget, 16 times; what the
/// peer refused, once, and then again only as a repetition.
#[test]
fn what_was_never_processed() {
    let config = RetryConfig {
        retry_on: RetryOn::nothing(),
        ..RetryConfig::default()
    };
    for kind in [None, Some(Kind::Held), Some(Kind::Streaming)] {
        let never_sent = Facts {
            kind,
            ..facts(Outcome::NeverSent)
        };
        let refused = Facts {
            outcome: Outcome::Unprocessed,
            ..never_sent
        };
        let mut policy = RetryPolicy::new();
        assert_eq!(policy.failed(&config, &refused), AT_ONCE);
        for _ in 0..16 {
            assert_eq!(policy.failed(&config, &never_sent), AT_ONCE);
        }
        let attempts = Decision::GiveUp(Reason::Attempts);
        assert_eq!(policy.failed(&config, &never_sent), attempts);
        let decision = policy.failed(&config, &refused);
        assert_eq!(decision, Decision::GiveUp(Reason::NotRepeated), "once");
        let mut policy = RetryPolicy::new();
        let config = RetryConfig::default();
        assert_eq!(policy.failed(&config, &refused), AT_ONCE);
        let repeated = resent(policy.failed(&config, &refused));
        assert_eq!(repeated.is_some(), kind.is_some());
        assert!(repeated.is_none_or(|how| how.paid && !how.unprocessed));
    }
}

/// T2: three attempts, of which those that were never processed are none.
#[test]
fn three_attempts() {
    let config = RetryConfig::default();
    let mut policy = RetryPolicy::new();
    let lost = facts(Outcome::ConnectionLost);
    assert!(resent(policy.failed(&config, &lost)).is_some());
    assert_eq!(policy.failed(&config, &facts(Outcome::NeverSent)), AT_ONCE);
    assert_eq!(
        policy.failed(&config, &facts(Outcome::Unprocessed)),
        AT_ONCE
    );
    assert!(resent(policy.failed(&config, &lost)).is_some());
    let attempts = Decision::GiveUp(Reason::Attempts);
    assert_eq!(policy.failed(&config, &lost), attempts);
    let once = RetryConfig {
        attempts: 1,
        ..RetryConfig::default()
    };
    assert_eq!(first(&once, &lost), attempts);
}

/// R6: 10 ms, doubling to 1 s, of which a random part is waited.
#[test]
fn backoff() {
    let config = RetryConfig {
        attempts: 100,
        ..RetryConfig::default()
    };
    for (random, part) in [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (7.0, 1.0), (-1.0, 0.0)] {
        let mut policy = RetryPolicy::new();
        for repeats in 0..99_u32 {
            let lost = Facts {
                random,
                ..facts(Outcome::ConnectionLost)
            };
            let how = resent(policy.failed(&config, &lost)).expect("one of 100");
            let whole = (10.0 * 2.0_f64.powi(repeats.min(30).cast_signed())).min(1_000.0);
            let expected = Duration::from_secs_f64(whole * part / 1_000.0);
            assert!(
                how.after.abs_diff(expected) < MS / 1_000,
                "{repeats}: {how:?}"
            );
        }
    }
}

/// R6: the server's pushback is waited for instead, and its no is a no; but not for what it never processed.
#[test]
fn pushback() {
    let config = RetryConfig::default();
    let said = |pushback| Facts {
        pushback: Some(pushback),
        ..facts(Outcome::ConnectionLost)
    };
    let how = resent(first(&config, &said(Pushback::After(70 * MS)))).unwrap();
    assert_eq!((how.after, how.paid), (70 * MS, true));
    let never = said(Pushback::Never);
    let decision = first(&config, &never);
    assert_eq!(decision, Decision::GiveUp(Reason::Pushback));
    let never_sent = Facts {
        outcome: Outcome::NeverSent,
        ..never
    };
    assert_eq!(first(&config, &never_sent), AT_ONCE);
}

/// T1, T2, T4: nothing is sent again past the deadline, after a part of it went up, or without its request.
#[test]
fn what_stands_in_the_way() {
    let config = RetryConfig::default();
    for outcome in [
        Outcome::NeverSent,
        Outcome::Unprocessed,
        Outcome::ConnectionLost,
    ] {
        let late = |left| Facts {
            left: Some(left),
            ..facts(outcome)
        };
        for left in [Duration::ZERO, MS - MS / 1_000] {
            let decision = first(&config, &late(left));
            assert_eq!(decision, Decision::GiveUp(Reason::Deadline));
        }
        assert!(resent(first(&config, &late(MS))).is_some());
        let handed_up = Facts {
            handed_up: true,
            ..facts(outcome)
        };
        let decision = first(&config, &handed_up);
        assert_eq!(decision, Decision::GiveUp(Reason::HandedUp));
        let gone = Facts {
            kept: false,
            ..facts(outcome)
        };
        let decision = first(&config, &gone);
        assert_eq!(decision, Decision::GiveUp(Reason::NotKept));
    }
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let mut all: Vec<_> = table().into_iter().map(|(outcome, _)| outcome).collect();
    // The ones that matter most come as often as all others.
    for _ in 0..all.len() / 2 {
        all.extend([Outcome::NeverSent, Outcome::Unprocessed]);
    }
    prop::sample::select(all)
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let kind = prop::option::of(prop::sample::select(vec![Kind::Held, Kind::Streaming]));
    let pushback = prop::option::of(prop_oneof![
        Just(Pushback::Never),
        (0_u64..400_000).prop_map(|ms| Pushback::After(Duration::from_millis(ms))),
    ]);
    let left = prop::option::of((0_u64..5_000).prop_map(Duration::from_micros));
    (
        outcomes(),
        kind,
        any::<(bool, bool)>(),
        pushback,
        left,
        0.0..1.0_f64,
    )
        .prop_map(
            |(outcome, kind, (kept, handed_up), pushback, left, random)| Facts {
                outcome,
                kind,
                kept,
                handed_up,
                pushback,
                left,
                random,
            },
        )
}

proptest! {
    /// T1, T2: whatever fails in whatever order, a call is sent a bounded number of times; one that may have
    /// been processed only for an idempotent method, and only as a repetition that is bounded and paid for.
    #[test]
    fn bounded(
        failures in prop::collection::vec(any_facts(), 0..200),
        attempts in 1_u32..6,
        resends in 0_u32..20,
    ) {
        let config = RetryConfig { attempts, resends, ..RetryConfig::default() };
        let mut policy = RetryPolicy::new();
        let (mut again, mut repeats, mut refused) = (0, 0, 0);
        for facts in failures {
            let before = policy;
            let Decision::Resend(how) = policy.failed(&config, &facts) else {
                prop_assert_eq!(before, policy, "giving up counts nothing");
                continue;
            };
            prop_assert!(facts.kept && !facts.handed_up);
            prop_assert!(facts.left.is_none_or(|left| left >= MS));
            if how.unprocessed {
                prop_assert!(!how.paid && how.after.is_zero());
                match facts.outcome {
                    Outcome::NeverSent => again += 1,
                    Outcome::Unprocessed => refused += 1,
                    other => prop_assert!(false, "{} may have been processed", other),
                }
            } else {
                repeats += 1;
                prop_assert!(facts.kind.is_some());
                prop_assert_ne!(facts.outcome, Outcome::NeverSent);
                let quarantine = facts.outcome == Outcome::Local(LocalKind::Quarantine);
                prop_assert_eq!(how.paid, !quarantine);
                match facts.pushback {
                    Some(pushback) => prop_assert_eq!(Pushback::After(how.after), pushback),
                    None => prop_assert!(how.after <= config.backoff_max),
                }
            }
        }
        prop_assert!(again <= resends && refused <= 1 && repeats < attempts);
    }
}
