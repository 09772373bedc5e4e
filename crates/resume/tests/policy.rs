//! The decisions, row by row of the table of failures, and what holds for any of them.

use std::time::Duration;

use proptest::prelude::*;
use steadfast_core::{LocalKind, Outcome};
use steadfast_resume::{
    AttemptsPer, Decision, Facts, Pushback, Reason, ResumeConfig, ResumeOn, ResumePolicy,
};

const MS: Duration = Duration::from_millis(1);

/// A failure with nothing in the way of going on.
fn facts(outcome: Outcome) -> Facts {
    Facts {
        outcome,
        pushback: None,
        left: None,
        random: 1.0,
    }
}

fn nothing() -> ResumeOn {
    ResumeOn {
        dial_failed: false,
        never_processed: false,
        connection_lost: false,
        refused: false,
        reset: false,
        goaway: false,
        no_status: false,
        unavailable: false,
        quarantine: false,
    }
}

type Switch = fn(&mut ResumeOn) -> &mut bool;

/// Each row with a switch of its own, and its outcomes.
fn switched() -> Vec<(Switch, Vec<Outcome>)> {
    let resets = (0..=20).filter(|code| *code != 7).map(Outcome::Reset);
    let proxies = [429, 502, 503, 504].map(Outcome::Http);
    let no_channel = Outcome::Local(LocalKind::NoChannel);
    vec![
        (
            |set| &mut set.dial_failed,
            vec![Outcome::DialFailed, no_channel],
        ),
        (
            |set| &mut set.never_processed,
            vec![Outcome::NeverSent, Outcome::Unprocessed],
        ),
        (
            |set| &mut set.connection_lost,
            vec![Outcome::ConnectionLost, Outcome::Protocol],
        ),
        (|set| &mut set.refused, vec![Outcome::Reset(7)]),
        (|set| &mut set.reset, resets.collect()),
        (
            |set| &mut set.goaway,
            (0..=14).map(Outcome::GoAway).collect(),
        ),
        (
            |set| &mut set.no_status,
            vec![Outcome::NoStatus, Outcome::CutShort],
        ),
        (
            |set| &mut set.unavailable,
            [Outcome::Status(14)].into_iter().chain(proxies).collect(),
        ),
        (
            |set| &mut set.quarantine,
            vec![Outcome::Local(LocalKind::Quarantine)],
        ),
    ]
}

/// What no switch makes a stream go on after.
fn never() -> Vec<Outcome> {
    let statuses = (0..=20).filter(|code| *code != 14).map(Outcome::Status);
    let https = [204, 301, 400, 401, 403, 404, 408, 413, 431, 500, 501].map(Outcome::Http);
    let locals = [
        LocalKind::Drained,
        LocalKind::Closed,
        LocalKind::Deadline,
        LocalKind::Overload,
        LocalKind::Budget,
        LocalKind::GapTimeout,
    ];
    let others = [Outcome::Timeout, Outcome::Dropped, Outcome::Other];
    let locals = locals.map(Outcome::Local);
    statuses.chain(https).chain(locals).chain(others).collect()
}

fn resumes(set: ResumeOn, outcome: Outcome) -> bool {
    let config = ResumeConfig {
        resume_on: set,
        ..ResumeConfig::default()
    };
    let decision = ResumePolicy::new().failed(&config, &facts(outcome));
    let resumes = matches!(decision, Decision::Resume { .. });
    assert_eq!(ResumePolicy::resumes(&config, outcome), resumes);
    if !resumes {
        assert_eq!(decision, Decision::GiveUp(Reason::NotResumed), "{outcome}");
    }
    resumes
}

/// R3: each row of the table is its own switch, and only that one.
#[test]
fn the_table() {
    for (switch, outcomes) in switched() {
        for outcome in outcomes {
            let (mut alone, mut all_but) = (nothing(), ResumeOn::default());
            (*switch(&mut alone), *switch(&mut all_but)) = (true, false);
            assert!(resumes(alone, outcome), "{outcome}");
            assert!(resumes(ResumeOn::default(), outcome), "{outcome}");
            assert!(!resumes(all_but, outcome), "{outcome}");
            assert!(!resumes(nothing(), outcome), "{outcome}");
        }
    }
    for outcome in never() {
        assert!(!resumes(ResumeOn::default(), outcome), "{outcome}");
    }
    assert!(resumes(nothing(), Outcome::GapTimeout));
}

/// R3: the narrow set is the whole one without GOAWAY and without resets, REFUSED_STREAM excepted.
#[test]
fn the_narrow_set() {
    let without = |outcome: &Outcome| {
        matches!(outcome, Outcome::GoAway(_) | Outcome::Reset(_)) && *outcome != Outcome::Reset(7)
    };
    let all = switched().into_iter().flat_map(|(_, outcomes)| outcomes);
    for outcome in all.chain(never()) {
        let expected = resumes(ResumeOn::default(), outcome) && !without(&outcome);
        assert_eq!(resumes(ResumeOn::narrow(), outcome), expected, "{outcome}");
    }
}

/// R2: so many attempts, and all but the last have a gap time-out.
#[test]
fn attempts() {
    for most in [1, 2, 3, 100] {
        let config = ResumeConfig {
            max_attempts: most,
            ..ResumeConfig::default()
        };
        let mut policy = ResumePolicy::default();
        let lost = facts(Outcome::ConnectionLost);
        for attempt in 1..=most {
            let gap = (attempt < most).then_some(config.gap_timeout);
            assert_eq!(policy.gap(&config), gap, "{attempt} of {most}");
            let decision = policy.failed(&config, &lost);
            let resumes = matches!(decision, Decision::Resume { .. });
            assert_eq!(resumes, attempt < most, "{attempt} of {most}");
        }
        // It stays so.
        let decision = policy.failed(&config, &lost);
        assert_eq!(decision, Decision::GiveUp(Reason::Attempts));
    }
}

/// R2: a message makes the attempts begin anew, if they are counted so.
#[test]
fn progress() {
    for per in [AttemptsPer::Stream, AttemptsPer::Progress] {
        let config = ResumeConfig {
            attempts_per: per,
            ..ResumeConfig::default()
        };
        let mut policy = ResumePolicy::new();
        let lost = facts(Outcome::ConnectionLost);
        for _ in 0..2 {
            policy.failed(&config, &lost);
        }
        assert_eq!(policy.gap(&config), None);
        let anew = per == AttemptsPer::Progress;
        assert_eq!(policy.progressed(&config), anew);
        assert!(!policy.progressed(&config), "it is anew already");
        assert_eq!(policy.gap(&config).is_some(), anew);
        let decision = policy.failed(&config, &lost);
        match decision {
            // The wait begins anew, too.
            Decision::Resume { after, .. } => assert_eq!((anew, after), (true, 10 * MS)),
            Decision::GiveUp(reason) => assert_eq!((anew, reason), (false, Reason::Attempts)),
        }
    }
}

/// R6: 10 ms, doubling to 1 s; none after a gap time-out, which makes the next one no longer.
#[test]
fn waits() {
    let config = ResumeConfig {
        max_attempts: 100,
        ..ResumeConfig::default()
    };
    let after = |policy: &mut ResumePolicy, outcome, random| {
        let random = Facts {
            random,
            ..facts(outcome)
        };
        match policy.failed(&config, &random) {
            Decision::Resume { after, .. } => after,
            Decision::GiveUp(reason) => panic!("{reason:?}"),
        }
    };
    let mut policy = ResumePolicy::new();
    for most in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
        let mut half = policy;
        assert_eq!(after(&mut half, Outcome::NoStatus, 0.5), MS * most / 2);
        assert_eq!(after(&mut policy, Outcome::GapTimeout, 1.0), Duration::ZERO);
        assert_eq!(after(&mut policy, Outcome::NoStatus, 1.0), MS * most);
    }
    for _ in 0..50 {
        assert_eq!(after(&mut policy, Outcome::NoStatus, 1.0), 1_000 * MS);
    }
}

/// R6: what the server said goes before the wait, and before what the gap time-out saves.
#[test]
fn pushback() {
    let config = ResumeConfig::default();
    for outcome in [Outcome::Status(14), Outcome::GapTimeout] {
        let said = |pushback| Facts {
            pushback: Some(pushback),
            ..facts(outcome)
        };
        let decision = ResumePolicy::new().failed(&config, &said(Pushback::Never));
        assert_eq!(decision, Decision::GiveUp(Reason::Pushback));
        let said = said(Pushback::After(7 * MS));
        let decision = ResumePolicy::new().failed(&config, &said);
        let after = 7 * MS;
        assert_eq!(decision, Decision::Resume { after, paid: true });
    }
}

/// R6: a quarantine, and what was never processed, needs no budget.
#[test]
fn what_the_budget_pays() {
    for (_, outcomes) in switched() {
        for outcome in outcomes {
            let decision = ResumePolicy::new().failed(&ResumeConfig::default(), &facts(outcome));
            let Decision::Resume { paid, .. } = decision else {
                panic!("{decision:?}")
            };
            let free = matches!(
                outcome,
                Outcome::NeverSent | Outcome::Unprocessed | Outcome::Local(LocalKind::Quarantine)
            );
            assert_eq!(paid, !free, "{outcome}");
        }
    }
}

/// R6: nothing is sent in the last instant.
#[test]
fn time_left() {
    for (left, resumes) in [
        (Duration::ZERO, false),
        (MS - Duration::from_nanos(1), false),
        (MS, true),
    ] {
        let late = Facts {
            left: Some(left),
            ..facts(Outcome::NoStatus)
        };
        let decision = ResumePolicy::new().failed(&ResumeConfig::default(), &late);
        assert_eq!(
            matches!(decision, Decision::Resume { .. }),
            resumes,
            "{left:?}"
        );
        if !resumes {
            assert_eq!(decision, Decision::GiveUp(Reason::Deadline));
        }
    }
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let all: Vec<_> = switched()
        .into_iter()
        .flat_map(|(_, outcomes)| outcomes)
        .collect();
    proptest::sample::select([all, never(), vec![Outcome::GapTimeout]].concat())
}

proptest! {
    /// R2, R6: whatever happens, no stream is sent more often than it may be, and no wait is longer.
    #[test]
    fn bounds_hold(
        outcomes in proptest::collection::vec((any_outcome(), -1.0..2.0, any::<Option<u8>>()), 0..50),
        max_attempts in 1..100_u32,
        backoff in 0..60_000_u64,
        more in 0..60_000_u64,
    ) {
        let config = ResumeConfig {
            max_attempts,
            backoff: MS * u32::try_from(backoff).unwrap(),
            backoff_max: Duration::from_millis(backoff + more),
            ..ResumeConfig::default()
        };
        prop_assert_eq!(config.validate(), Ok(()));
        let (mut policy, mut sent) = (ResumePolicy::new(), 1);
        for (outcome, random, left) in outcomes {
            let left = left.map(|left| MS * left.into());
            let facts = Facts { outcome, pushback: None, left, random };
            if let Decision::Resume { after, .. } = policy.failed(&config, &facts) {
                sent += 1;
                prop_assert!(after <= config.backoff_max);
                prop_assert!(ResumePolicy::resumes(&config, outcome));
            }
        }
        prop_assert!(sent <= max_attempts);
    }
}
