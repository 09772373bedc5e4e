//! Interleavings of the meter and the cut switch, tried by loom one after another.
//!
//! `RUSTFLAGS="--cfg steadfast_loom" cargo test -p steadfast-core --release --test loom`, with a target
//! folder of its own: the flag rebuilds everything.
#![cfg(steadfast_loom)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
};

use loom::thread;
use steadfast_core::{CutSwitch, CutTicket, Meter, Standing};

/// Tries the interleavings with at most three preemptions: enough to find each of the mistakes that
/// these tests were tried with, and seconds instead of hours.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Claims one place, whatever it takes.
fn claim(meter: &Meter) {
    let mut seen = meter.read();
    while let Err(now) = meter.claim(seen) {
        seen = now;
    }
}

/// B1: counts aren't lost between claims, entries and releases.
#[test]
fn counts_are_not_lost() {
    model(|| {
        let meter = Meter::new();
        let other = meter.clone();
        let there = thread::spawn(move || {
            claim(&other);
            other.enter();
            other.release();
        });
        claim(&meter);
        meter.release();
        there.join().unwrap();
        assert_eq!(meter.read().in_flight(), 1);
    });
}

/// B1: nor while an owner changes standing and charge, which are kept as well.
#[test]
fn counts_and_standings_do_not_lose_each_other() {
    model(|| {
        let meter = Meter::new();
        let owner = meter.owner();
        let there = thread::spawn(move || {
            owner.set_charge(25);
            owner.set_standing(Standing::Reserve);
            owner
        });
        claim(&meter);
        meter.enter();
        meter.release();
        let _owner = there.join().unwrap();
        let reading = meter.read();
        assert_eq!((reading.in_flight(), reading.charge()), (1, 25));
        assert_eq!(reading.standing(), Standing::Reserve);
    });
}

/// Two owners at once: the word ends as the sum of both, whoever wrote last.
#[test]
fn the_word_sums_up_two_owners() {
    model(|| {
        let meter = Meter::new();
        let (here, other) = (meter.owner(), meter.owner());
        let there = thread::spawn(move || {
            other.set_standing(Standing::Reserve);
            other.set_charge(5);
            other
        });
        here.set_standing(Standing::Shut);
        here.set_charge(2);
        here.set_standing(Standing::Open);
        let _other = there.join().unwrap();
        let reading = meter.read();
        assert_eq!(reading.standing(), Standing::Reserve);
        assert_eq!(reading.charge(), 7);
        drop(here);
        assert_eq!(meter.read().charge(), 5);
    });
}

/// Owners that come and go at once leave nothing, a condemnation excepted.
#[test]
fn owners_come_and_go_at_once() {
    model(|| {
        let meter = Meter::new();
        let other = meter.clone();
        let there = thread::spawn(move || {
            let owner = other.owner();
            owner.set_charge(5);
            owner.condemn("there");
        });
        let owner = meter.owner();
        owner.set_standing(Standing::Reserve);
        drop(owner);
        there.join().unwrap();
        let reading = meter.read();
        assert_eq!(reading.standing(), Standing::Condemned);
        assert_eq!(reading.charge(), 0);
        assert_eq!(meter.condemned_for().as_deref(), Some("there"));
    });
}

/// Two condemnations at once: one cause stays, and it is one of the two.
#[test]
fn one_cause_stays() {
    model(|| {
        let meter = Meter::new();
        let other = meter.owner();
        let there = thread::spawn(move || other.condemn("there"));
        let owner = meter.owner();
        owner.condemn("here");
        let first = meter.condemned_for();
        there.join().unwrap();
        assert_eq!(meter.condemned_for(), first);
        assert!(matches!(first.as_deref(), Some("here" | "there")));
    });
}

/// Claims one place if the channel is on trial, and says whether it did.
fn take_trial(meter: &Meter) -> usize {
    let mut seen = meter.read();
    while seen.on_trial() {
        match meter.claim(seen) {
            Ok(()) => return 1,
            Err(now) => seen = now,
        }
    }
    0
}

/// P5: of two picks that see the trial, exactly one gets it.
#[test]
fn a_trial_goes_to_one_of_two() {
    model(|| {
        let meter = Meter::new();
        let owner = meter.owner();
        owner.set_standing(Standing::Reserve);
        owner.grant_trial();
        let other = meter.clone();
        let there = thread::spawn(move || take_trial(&other));
        let taken = take_trial(&meter) + there.join().unwrap();
        assert_eq!(taken, 1);
        assert_eq!(meter.read().in_flight(), 1);
        assert!(!meter.read().on_trial());
    });
}

/// P5: a change by its owner or another's, at the moment of the claim, doesn't bring a trial back.
#[test]
fn a_used_trial_does_not_come_back() {
    model(|| {
        let meter = Meter::new();
        let (holder, other) = (meter.owner(), meter.owner());
        holder.set_standing(Standing::Reserve);
        holder.grant_trial();
        let there = thread::spawn(move || {
            other.set_charge(1);
            // Grants nothing: it holds nothing in reserve.
            other.grant_trial();
            other
        });
        let taken = take_trial(&meter);
        let _other = there.join().unwrap();
        assert_eq!(taken + take_trial(&meter), 1);
        assert!(!meter.read().on_trial());
    });
}

/// P5: a grant at the moment of a claim is either taken by it or still there; never two for one.
#[test]
fn a_grant_and_a_claim_at_once() {
    model(|| {
        let meter = Meter::new();
        let owner = meter.owner();
        owner.set_standing(Standing::Reserve);
        let there = thread::spawn(move || {
            owner.grant_trial();
            owner
        });
        let taken = take_trial(&meter);
        let owner = there.join().unwrap();
        owner.set_charge(1);
        assert_eq!(taken + take_trial(&meter), 1);
    });
}

/// P5: two that both hold the channel in reserve and both grant, while a pick takes what it sees: as
/// many requests get through as there were grants by both, at most.
#[test]
fn two_grants_are_not_one_too_many() {
    model(|| {
        let meter = Meter::new();
        let (one, two) = (meter.owner(), meter.owner());
        one.set_standing(Standing::Reserve);
        two.set_standing(Standing::Reserve);
        one.grant_trial();
        two.grant_trial();
        let there = thread::spawn(move || {
            two.grant_trial();
            two
        });
        let taken = take_trial(&meter);
        let two = there.join().unwrap();
        assert_eq!(taken, 1);
        // The second grant of `two` alone is no trial: `one` granted once.
        let again = take_trial(&meter);
        assert_eq!(again, 0, "a used trial of one came back with two's grant");
        drop((one, two));
    });
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// S4: who waits while the switch is thrown sees it or is woken.
#[test]
fn a_throw_is_seen_or_wakes() {
    model(|| {
        let switch = CutSwitch::new();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let thrower = switch.clone();
        let there = thread::spawn(move || thrower.throw());
        let mut ticket = CutTicket::new();
        let seen = ticket.wait(&switch, &mut Context::from_waker(&waker));
        let woken = there.join().unwrap();
        assert_eq!(woken, wakes.0.load(Ordering::SeqCst));
        assert!(seen || woken == 1, "a lost wake");
        ticket.leave(&switch);
    });
}

/// S4: one leaves and another comes to its slot while the switch is thrown: the one that waits isn't
/// missed.
#[test]
fn a_slot_that_changes_hands_is_not_missed() {
    model(|| {
        let switch = CutSwitch::new();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut first = CutTicket::new();
        first.wait(&switch, &mut Context::from_waker(Waker::noop()));
        let thrower = switch.clone();
        let there = thread::spawn(move || thrower.throw());
        first.leave(&switch);
        let mut second = CutTicket::new();
        let seen = second.wait(&switch, &mut Context::from_waker(&waker));
        there.join().unwrap();
        assert!(seen || wakes.0.load(Ordering::SeqCst) == 1, "a lost wake");
        second.leave(&switch);
    });
}
