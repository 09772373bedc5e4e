//! The decisions, on made-up time.

use std::time::{Duration, Instant};

use steadfast_core::now;
use steadfast_penalty::{Action, Member, Mode, PenaltyConfig, PenaltyPolicy};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A policy whose actions are carried out on plain numbers.
struct Pool {
    policy: PenaltyPolicy,
    members: Vec<Member>,
    shows: Vec<Shows>,
    start: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shows {
    reserve: bool,
    charge: u32,
    trials: u32,
    gone: bool,
}

impl Pool {
    fn new(size: usize, config: PenaltyConfig) -> Self {
        let start = now().into_std();
        let mut policy = PenaltyPolicy::new(config);
        let members = (0..size).map(|_| policy.join(start)).collect();
        let mut pool = Self {
            policy,
            members,
            shows: vec![Shows::default(); size],
            start,
        };
        pool.act();
        pool
    }

    fn flat(size: usize) -> Self {
        Self::new(size, flat())
    }

    fn reserve(size: usize) -> Self {
        Self::new(size, PenaltyConfig::default())
    }

    fn act(&mut self) {
        while let Some(action) = self.policy.next_action() {
            let Action {
                member,
                reserve,
                charge,
                trial,
                gone,
                ..
            } = action;
            let index = self.members.iter().position(|m| *m == member).unwrap();
            let shows = &mut self.shows[index];
            assert!(!shows.gone, "an action after the last one: {action:?}");
            shows.reserve = reserve.unwrap_or(shows.reserve);
            shows.charge = charge.unwrap_or(shows.charge);
            shows.trials += u32::from(trial);
            shows.gone = gone;
        }
    }

    fn join(&mut self, at: Duration) {
        let member = self.policy.join(self.start + at);
        self.members.push(member);
        self.shows.push(Shows::default());
        self.act();
    }

    fn fail(&mut self, index: usize, at: Duration) {
        self.policy.on_failure(self.members[index], self.start + at);
        self.act();
    }

    fn usable(&mut self, index: usize, usable: bool, at: Duration) {
        let member = self.members[index];
        self.policy.on_usable(member, usable, self.start + at);
        self.act();
    }

    fn leave(&mut self, index: usize, at: Duration) {
        self.policy.leave(self.members[index], self.start + at);
        self.act();
    }

    /// Tells the policy the time.
    fn tick(&mut self, at: Duration) {
        self.policy.on_deadline(self.start + at);
        self.act();
    }

    /// Runs the timer up to `at`, as the layer's task does.
    fn run_until(&mut self, at: Duration) {
        let end = self.start + at;
        while let Some(next) = self.policy.next_deadline().filter(|next| *next <= end) {
            self.policy.on_deadline(next);
            self.act();
            let after = self.policy.next_deadline();
            assert!(after.is_none_or(|after| after > next), "it spins");
        }
    }

    fn charges(&self) -> Vec<u32> {
        self.shows.iter().map(|shows| shows.charge).collect()
    }

    fn reserves(&self) -> Vec<usize> {
        let indices = 0..self.shows.len();
        indices.filter(|&i| self.shows[i].reserve).collect()
    }
}

fn flat() -> PenaltyConfig {
    PenaltyConfig {
        mode: Mode::Flat,
        ..PenaltyConfig::default()
    }
}

/// P1: 25 requests busier for 5 s, to the instant.
#[test]
fn a_failure_costs_25_for_5_s() {
    let mut pool = Pool::flat(4);
    pool.fail(1, Duration::ZERO);
    assert_eq!(pool.charges(), [0, 25, 0, 0]);
    assert_eq!(pool.policy.next_deadline(), Some(pool.start + 5 * S));
    pool.tick(5 * S - Duration::from_nanos(1));
    assert_eq!(pool.charges(), [0, 25, 0, 0], "not a moment too early");
    pool.tick(5 * S);
    assert_eq!(pool.charges(), [0; 4]);
    assert_eq!(pool.policy.next_deadline(), None, "nothing to wait for");
}

/// P6: a second failure renews the window, and doesn't add up by itself.
#[test]
fn a_failure_renews_the_window() {
    let mut pool = Pool::flat(4);
    pool.fail(0, Duration::ZERO);
    pool.fail(0, 4 * S);
    assert_eq!(pool.charges(), [25, 0, 0, 0]);
    pool.run_until(9 * S - MS);
    assert_eq!(pool.charges(), [25, 0, 0, 0]);
    pool.run_until(9 * S);
    assert_eq!(pool.charges(), [0; 4]);
}

/// P6: a failure that is told late, with an older time, doesn't shorten the window.
#[test]
fn an_old_failure_shortens_nothing() {
    let mut pool = Pool::flat(2);
    pool.fail(0, 2 * S);
    pool.fail(0, S);
    pool.tick(7 * S - MS);
    assert_eq!(pool.charges(), [25, 0]);
}

/// P6: with a step, failures within the window add up to the cap; a new window begins at the weight.
#[test]
fn failures_add_up_to_the_cap() {
    let config = PenaltyConfig {
        weight: Some(10),
        step: 7,
        cap: 30,
        ..flat()
    };
    let mut pool = Pool::new(2, config);
    let mut charges = Vec::new();
    for n in 0..6 {
        pool.fail(0, n * MS);
        charges.push(pool.charges()[0]);
    }
    assert_eq!(charges, [10, 17, 24, 30, 30, 30]);
    // The timer is late: the window is over all the same.
    pool.fail(0, 6 * S);
    assert_eq!(pool.charges()[0], 10);
}

/// P6: the weight follows the pool's maximum unless it is set; the window can be set.
#[test]
fn weight_and_window_can_be_set() {
    let config = PenaltyConfig {
        window: 2 * S,
        ..flat()
    };
    let mut pool = Pool::new(1, config.clone().following(40));
    pool.fail(0, Duration::ZERO);
    assert_eq!(pool.charges(), [40]);
    pool.run_until(2 * S);
    assert_eq!(pool.charges(), [0]);
    let config = PenaltyConfig {
        weight: Some(3),
        ..config
    };
    let mut pool = Pool::new(1, config.following(40));
    pool.fail(0, Duration::ZERO);
    assert_eq!(pool.charges(), [3]);
}

/// P5: in reserve mode a penalised channel is in reserve and not charged.
#[test]
fn reserve_instead_of_a_charge() {
    let mut pool = Pool::reserve(4);
    pool.fail(2, Duration::ZERO);
    assert_eq!(pool.reserves(), [2]);
    assert_eq!(pool.charges(), [0; 4]);
    pool.run_until(5 * S);
    assert_eq!(pool.reserves(), []);
}

/// P5: one trial a second, the first one second after the failure, however many failures come.
#[test]
fn one_trial_a_second() {
    let mut pool = Pool::reserve(4);
    for ms in 0..10_000 {
        pool.run_until(ms * MS);
        pool.fail(0, ms * MS);
        assert_eq!(pool.shows[0].trials, ms / 1000, "at {ms} ms");
    }
}

/// P5: a late timer grants one trial, not those that it missed.
#[test]
fn missed_trials_are_not_made_up_for() {
    let mut pool = Pool::reserve(4);
    pool.fail(0, Duration::ZERO);
    pool.tick(4500 * MS);
    assert_eq!(pool.shows[0].trials, 1);
    assert_eq!(pool.policy.next_deadline(), Some(pool.start + 5 * S));
}

/// P5: at most half of the pool, rounded down; beyond that all are open, with the flat charge.
#[test]
fn at_most_half() {
    for size in 1..=9 {
        let mut pool = Pool::reserve(size);
        for failed in 1..=size {
            pool.fail(failed - 1, Duration::ZERO);
            if failed <= size / 2 {
                assert_eq!(pool.reserves().len(), failed);
                assert_eq!(pool.charges(), vec![0; size]);
            } else {
                assert_eq!(pool.reserves(), [], "{failed} of {size}");
                let charged = pool.charges().iter().filter(|c| **c == 25).count();
                assert_eq!(charged, failed);
            }
        }
        pool.run_until(4 * S);
        if size > 1 {
            let trials: u32 = pool.shows.iter().map(|shows| shows.trials).sum();
            assert_eq!(trials, 0, "an open channel needs no trial");
        }
    }
}

/// P5: when enough of them are free again, the rest goes back into reserve.
#[test]
fn back_to_reserve() {
    let mut pool = Pool::reserve(4);
    pool.fail(0, Duration::ZERO);
    pool.fail(1, S);
    pool.fail(2, 2 * S);
    assert_eq!(pool.charges(), [25, 25, 25, 0]);
    pool.run_until(5 * S);
    assert_eq!(pool.reserves(), [1, 2]);
    assert_eq!(pool.charges(), [0; 4]);
    pool.run_until(7 * S);
    assert_eq!(pool.reserves(), []);
}

/// P5: channels that are shut or condemned by others are no part of the pool.
#[test]
fn half_of_those_that_could_be_used() {
    let mut pool = Pool::reserve(4);
    pool.usable(3, false, Duration::ZERO);
    pool.usable(2, false, Duration::ZERO);
    pool.fail(0, Duration::ZERO);
    assert_eq!(pool.reserves(), [0], "one of two");
    pool.usable(1, false, S);
    assert_eq!(pool.reserves(), [], "the only one left");
    assert_eq!(pool.charges(), [25, 0, 0, 0]);
    pool.usable(2, true, S);
    assert_eq!(pool.reserves(), [0]);
    // One that is shut and penalised takes nobody's place.
    pool.fail(3, S);
    assert_eq!(pool.reserves(), [0, 3]);
}

/// P5: who joins and who leaves changes what half of the pool is; who left has no say and no window.
#[test]
fn joining_and_leaving() {
    let mut pool = Pool::reserve(2);
    pool.fail(0, Duration::ZERO);
    assert_eq!(pool.reserves(), [0]);
    pool.leave(1, S);
    assert!(pool.shows[1].gone);
    assert_eq!((pool.reserves(), pool.charges()[0]), (vec![], 25));
    pool.join(S);
    assert_eq!(pool.reserves(), [0]);
    pool.leave(0, 2 * S);
    let taken_back = Shows {
        gone: true,
        ..Shows::default()
    };
    assert_eq!(pool.shows[0], taken_back);
    pool.fail(0, 2 * S);
    assert_eq!(pool.policy.penalised().count(), 0);
    assert_eq!(pool.policy.next_deadline(), None);
}

/// The snapshot says who, how often, how much and until when.
#[test]
fn snapshot() {
    let mut pool = Pool::flat(3);
    pool.fail(1, Duration::ZERO);
    pool.fail(1, S);
    let all: Vec<_> = pool.policy.penalised().collect();
    let [(member, penalised)] = all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(member, pool.members[1]);
    assert_eq!((penalised.failures, penalised.charge), (2, 25));
    assert!(!penalised.reserve);
    assert_eq!(penalised.until, pool.start + 6 * S);
    assert!(pool.policy.is_penalised(member));
    assert!(!pool.policy.is_penalised(pool.members[0]));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Event {
        Fail(usize),
        Usable(usize, bool),
        Leave(usize),
        Join,
        Timer,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            6 => (0usize..8).prop_map(Event::Fail),
            2 => (0usize..8, any::<bool>()).prop_map(|(i, on)| Event::Usable(i, on)),
            1 => (0usize..8).prop_map(Event::Leave),
            1 => Just(Event::Join),
            4 => Just(Event::Timer),
        ]
    }

    proptest! {
        /// P1, P5, P6, whatever happens: no window ends early or late, a failure makes no channel
        /// cheaper, at most half of the usable channels are in reserve, trials come one a second.
        #[test]
        fn invariants(
            reserve in any::<bool>(),
            step in 0u32..9,
            size in 1usize..8,
            events in prop::collection::vec((event(), 0u32..1500), 1..80),
        ) {
            let mode = if reserve { Mode::Reserve } else { Mode::Flat };
            let config = PenaltyConfig { mode, step, ..PenaltyConfig::default() };
            let mut pool = Pool::new(size, config);
            let mut usable = vec![true; size];
            let mut failed: Vec<Option<Duration>> = vec![None; size];
            let mut at = Duration::ZERO;
            for (event, gap) in events {
                let before: Vec<u32> = pool.shows.iter().map(|shows| shows.trials).collect();
                at += gap * MS;
                pool.run_until(at);
                match event {
                    Event::Fail(i) if i < usable.len() && !pool.shows[i].gone => {
                        let before = pool.shows[i];
                        pool.fail(i, at);
                        failed[i] = Some(at);
                        let after = pool.shows[i];
                        let cheaper = before.reserve || after.charge < before.charge;
                        prop_assert!(after.reserve || !cheaper, "{before:?} {after:?}");
                        prop_assert!(after.reserve || after.charge >= 25);
                    }
                    Event::Usable(i, on) if i < usable.len() && !pool.shows[i].gone => {
                        pool.usable(i, on, at);
                        usable[i] = on;
                    }
                    Event::Leave(i) if i < usable.len() => {
                        pool.leave(i, at);
                        usable[i] = false;
                        failed[i] = None;
                    }
                    Event::Join => {
                        pool.join(at);
                        usable.push(true);
                        failed.push(None);
                    }
                    _ => {}
                }
                let mut held = 0;
                for (i, shows) in pool.shows.iter().enumerate() {
                    let in_window = failed[i].is_some_and(|failed| failed + 5 * S > at);
                    prop_assert_eq!(shows.reserve || shows.charge > 0, in_window, "channel {}", i);
                    prop_assert!(mode == Mode::Reserve || !shows.reserve);
                    prop_assert!(shows.charge == 0 || (25..=100).contains(&shows.charge));
                    prop_assert!(!shows.reserve || shows.charge == 0);
                    held += usize::from(shows.reserve && usable[i]);
                    let trials = shows.trials - before.get(i).unwrap_or(&0);
                    prop_assert!(trials <= 1 + gap / 1000, "{trials} trials in {gap} ms");
                    prop_assert!(u128::from(shows.trials) <= at.as_millis() / 1000);
                }
                let pool_size = usable.iter().filter(|on| **on).count();
                prop_assert!(held <= pool_size / 2, "{held} of {pool_size} in reserve");
            }
            pool.run_until(at + 5 * S);
            prop_assert!(pool.shows.iter().all(|s| !s.reserve && s.charge == 0));
            prop_assert_eq!(pool.policy.next_deadline(), None);
        }
    }
}
