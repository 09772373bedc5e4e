//! Interleavings of callers, the gate and the pacemaker, tried by loom one after another.
//!
//! `RUSTFLAGS="--cfg steadfast_loom" cargo test -p steadfast-stall --release --lib`, with a target folder
//! of its own: the flag rebuilds everything.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Wake, Waker},
};

use loom::thread;
use steadfast_core::CutTicket;

use super::*;

/// Tries the interleavings with at most three preemptions: enough to find each of the mistakes that
/// these tests were tried with, and seconds instead of hours.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn waker() -> (std::sync::Arc<Woken>, Waker) {
    let woken = std::sync::Arc::<Woken>::default();
    (std::sync::Arc::clone(&woken), woken.into())
}

fn come(seats: &Seats) -> Option<Ticket> {
    match seats.gate() {
        Gate::Open(ticket) => Some(ticket),
        Gate::Shut | Gate::Gone => None,
    }
}

/// S4: a caller that takes its seat while the gate is shut is either woken or finds it shut.
#[test]
fn nobody_sleeps_through_a_quarantine() {
    model(|| {
        let seats = Arc::new(Seats::new());
        let gate = Arc::clone(&seats);
        let there = thread::spawn(move || gate.shut());
        let (woken, waker) = waker();
        let sits = |ticket| seats.sit(ticket, None, 1, waker).is_some();
        let waits = come(&seats).is_some_and(sits);
        let ended = there.join().unwrap();
        if waits {
            assert_eq!((woken.0.load(SeqCst), ended), (1, 1));
        }
    });
}

/// S4: nor when it only changes its waker, or another one sits beside it and stands up.
#[test]
fn nor_with_another_waker() {
    model(|| {
        let seats = Arc::new(Seats::new());
        let ticket = come(&seats).unwrap();
        let (_, first) = waker();
        let seat = seats.sit(ticket, None, 1, first).unwrap().unwrap();
        let gate = Arc::clone(&seats);
        let there = thread::spawn(move || gate.shut());
        let (woken, second) = waker();
        let waits = seats.sit(ticket, Some(&seat), 1, second).is_some();
        there.join().unwrap();
        if waits {
            assert_eq!(woken.0.load(SeqCst), 1);
        }
        seats.stand_up(seat);
        assert_eq!(seats.look().sitting, 0);
    });
}

/// S5: who waits for the quarantine's end is woken by it, or finds that it is over.
#[test]
fn nobody_sleeps_through_a_restore() {
    model(|| {
        let seats = Arc::new(Seats::new());
        seats.shut();
        let gate = Arc::clone(&seats);
        let there = thread::spawn(move || gate.open());
        let (woken, waker) = waker();
        let mut ticket = CutTicket::new();
        let switch = seats.reopening();
        let over = switch
            .as_ref()
            .is_none_or(|switch| ticket.wait(switch, &mut Context::from_waker(&waker)));
        there.join().unwrap();
        assert!(over || woken.0.load(SeqCst) == 1);
        assert!(come(&seats).is_some());
        if let Some(switch) = switch {
            ticket.leave(&switch);
        }
    });
}

/// S12: the pacemaker doesn't rest while somebody sits, without that one waking it.
#[test]
fn nobody_sits_while_the_pacemaker_rests() {
    model(|| {
        let seats = Arc::new(Seats::new());
        let awake = Arc::new(Awake::new());
        awake.set(true);
        let (watched, its) = (Arc::clone(&seats), Arc::clone(&awake));
        let there = thread::spawn(move || its.may_rest(|| watched.look().sitting > 0));
        let ticket = come(&seats).unwrap();
        let (_, waker) = waker();
        let seat = seats.sit(ticket, None, 1, waker).unwrap().unwrap();
        let wakes = !awake.is();
        let rests = there.join().unwrap();
        assert!(!rests || wakes);
        seats.stand_up(seat);
    });
}

/// Seats of callers that come and go at once aren't mixed up.
#[test]
fn seats_are_not_mixed_up() {
    model(|| {
        let seats = Arc::new(Seats::new());
        let ticket = come(&seats).unwrap();
        let other = Arc::clone(&seats);
        let there = thread::spawn(move || {
            let (_, waker) = waker();
            let seat = other.sit(ticket, None, 3, waker).unwrap().unwrap();
            other.stand_up(seat);
        });
        let (_, waker) = waker();
        let seat = seats.sit(ticket, None, 2, waker).unwrap().unwrap();
        there.join().unwrap();
        let waiting = seats.look();
        assert_eq!((waiting.sitting, waiting.since), (1, Some(2)));
        seats.stand_up(seat);
        assert_eq!(seats.look().sitting, 0);
    });
}
