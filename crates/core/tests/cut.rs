//! The cut switch, by which S4 ends all open exchanges of a channel at once and B5 those past their
//! limit.

mod support;

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use steadfast_core::{CutSwitch, CutTicket};
use support::Wakes;

fn wait(ticket: &mut CutTicket, switch: &CutSwitch, waker: &Waker) -> bool {
    ticket.wait(switch, &mut Context::from_waker(waker))
}

/// S4: who waits is woken and finds it thrown; who comes later finds it too; a clone is the same.
#[test]
fn a_throw_wakes_and_stays() {
    let switch = CutSwitch::new();
    let wakes = Wakes::new();
    let mut ticket = CutTicket::new();
    assert!(!wait(&mut ticket, &switch, &wakes.waker()));
    assert!(!switch.is_thrown());
    assert_eq!(switch.clone().throw(), 1);
    assert_eq!(wakes.count(), 1);
    assert!(switch.is_thrown());
    assert!(wait(&mut ticket, &switch, &wakes.waker()));
    ticket.leave(&switch);
    let mut late = CutTicket::new();
    assert!(wait(&mut late, &switch, &wakes.waker()));
    late.leave(&switch);
    assert_eq!(switch.throw(), 0, "nobody is left to wake");
    assert_eq!(wakes.count(), 1);
}

/// S4: all of many are woken, once each, by one throw.
#[test]
fn a_throw_wakes_all_of_many() {
    let switch = CutSwitch::new();
    let wakes = Wakes::new();
    let mut tickets: Vec<CutTicket> = (0..1_500).map(|_| CutTicket::new()).collect();
    for ticket in &mut tickets {
        assert!(!wait(ticket, &switch, &wakes.waker()));
    }
    assert_eq!(switch.throw(), 1_500);
    assert_eq!(wakes.count(), 1_500);
    for ticket in &mut tickets {
        assert!(wait(ticket, &switch, &wakes.waker()));
        ticket.leave(&switch);
    }
}

/// Only the task that polled last is woken.
#[test]
fn the_last_waker_counts() {
    let switch = CutSwitch::new();
    let (first, second) = (Wakes::new(), Wakes::new());
    let mut ticket = CutTicket::new();
    wait(&mut ticket, &switch, &first.waker());
    wait(&mut ticket, &switch, &second.waker());
    assert_eq!(Arc::strong_count(&first), 1, "the old waker is let go");
    switch.throw();
    assert_eq!((first.count(), second.count()), (0, 1));
    ticket.leave(&switch);
}

/// S8: waiting again with the same waker registers nothing new.
#[test]
fn a_waker_that_is_known_is_not_registered_again() {
    let switch = CutSwitch::new();
    let wakes = Wakes::new();
    let mut ticket = CutTicket::new();
    wait(&mut ticket, &switch, &wakes.waker());
    let held = Arc::strong_count(&wakes);
    for _ in 0..10 {
        assert!(!wait(&mut ticket, &switch, &wakes.waker()));
    }
    assert_eq!(Arc::strong_count(&wakes), held);
    assert_eq!(switch.throw(), 1);
    ticket.leave(&switch);
}

/// B1: who left isn't woken, and nothing of it is kept.
#[test]
fn who_left_is_not_woken() {
    let switch = CutSwitch::new();
    let wakes = Wakes::new();
    let mut ticket = CutTicket::new();
    wait(&mut ticket, &switch, &wakes.waker());
    ticket.leave(&switch);
    ticket.leave(&switch);
    assert_eq!(Arc::strong_count(&wakes), 1);
    assert_eq!(switch.throw(), 0);
    // It may come back.
    assert!(wait(&mut ticket, &switch, &wakes.waker()));
    ticket.leave(&switch);
}

/// A ticket that never waited has nothing to give back.
#[test]
fn who_never_waited_may_leave() {
    let switch = CutSwitch::new();
    CutTicket::new().leave(&switch);
    assert_eq!(switch.throw(), 0);
    assert!(format!("{switch:?}").contains("thrown: true"));
}

/// X6: slots are used again, so that a channel that lives long doesn't grow.
#[test]
fn slots_are_used_again() {
    let switch = CutSwitch::new();
    let wakes = Wakes::new();
    let mut used = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let mut tickets: Vec<CutTicket> = (0..3).map(|_| CutTicket::new()).collect();
        for ticket in &mut tickets {
            wait(ticket, &switch, &wakes.waker());
            // A ticket's Debug shows its slot.
            let shown = format!("{ticket:?}");
            let slot = shown.split(", waker").next().unwrap_or_default();
            used.insert(slot.to_owned());
        }
        tickets.iter_mut().for_each(|ticket| ticket.leave(&switch));
    }
    assert_eq!(used.len(), 3, "{used:?}");
}

/// X6: wakers run after unlocking: one may leave and wait again.
#[test]
fn wakers_run_outside_the_lock() {
    struct Uses(CutSwitch, mpsc::Sender<bool>);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            let mut ticket = CutTicket::new();
            let thrown = ticket.wait(&self.0, &mut Context::from_waker(Waker::noop()));
            ticket.leave(&self.0);
            let _ = self.1.send(thrown);
        }
    }
    let switch = CutSwitch::new();
    let (tell, told) = mpsc::channel();
    // On a thread of its own: a deadlock is then a failure and not a hang.
    thread::spawn(move || {
        let mut ticket = CutTicket::new();
        let waker = Waker::from(Arc::new(Uses(switch.clone(), tell)));
        wait(&mut ticket, &switch, &waker);
        switch.throw();
        ticket.leave(&switch);
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
}

/// S4: a throw that races with the registration is seen or wakes; no wake is lost.
#[test]
fn no_wake_is_lost_in_a_race() {
    for _ in 0..300 {
        let switch = CutSwitch::new();
        let start = Barrier::new(3);
        let lost = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let wakes = Wakes::new();
                    let mut ticket = CutTicket::new();
                    start.wait();
                    let seen = wait(&mut ticket, &switch, &wakes.waker());
                    while !switch.is_thrown() {
                        thread::yield_now();
                    }
                    // After this throw returned, who had not seen it has been woken.
                    start.wait();
                    if !seen && wakes.count() == 0 {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                    ticket.leave(&switch);
                });
            }
            start.wait();
            switch.throw();
            start.wait();
        });
        assert_eq!(lost.into_inner(), 0);
    }
}

/// The same through real tasks: futures on other threads all end.
#[test]
fn tasks_on_other_threads_all_end() {
    let switch = CutSwitch::new();
    let (tell, told) = mpsc::channel();
    for _ in 0..4 {
        let (switch, tell) = (switch.clone(), tell.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut ticket = CutTicket::new();
                let _ = tell.send(false);
                std::future::poll_fn(|cx| {
                    if ticket.wait(&switch, cx) {
                        Poll::Ready(())
                    } else {
                        // Pending: the switch holds the waker.
                        Poll::Pending
                    }
                })
                .await;
                ticket.leave(&switch);
                let _ = tell.send(true);
            });
        });
    }
    let limit = Duration::from_secs(10);
    for _ in 0..4 {
        assert_eq!(told.recv_timeout(limit), Ok(false), "it began");
    }
    switch.throw();
    for _ in 0..4 {
        assert_eq!(told.recv_timeout(limit), Ok(true), "it ended");
    }
}

proptest! {
    /// S4, B1: of any set of tickets that came, left and came back, exactly those that wait are woken.
    #[test]
    fn exactly_those_that_wait_are_woken(acts in prop::collection::vec((0_usize..6, any::<bool>()), 0..60)) {
        let switch = CutSwitch::new();
        let wakes: Vec<_> = (0..6).map(|_| Wakes::new()).collect();
        let mut tickets: Vec<CutTicket> = (0..6).map(|_| CutTicket::new()).collect();
        let mut waits = [false; 6];
        for (who, comes) in acts {
            if comes {
                prop_assert!(!wait(&mut tickets[who], &switch, &wakes[who].waker()));
            } else {
                tickets[who].leave(&switch);
            }
            waits[who] = comes;
        }
        prop_assert_eq!(switch.throw(), waits.iter().filter(|&&w| w).count());
        for (who, waited) in waits.into_iter().enumerate() {
            prop_assert_eq!(wakes[who].count(), usize::from(waited));
            tickets[who].leave(&switch);
        }
        prop_assert!(wakes.iter().all(|w| Arc::strong_count(w) == 1));
    }
}
