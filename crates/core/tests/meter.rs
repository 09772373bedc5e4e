//! The meter: B1's count, B2's cost, P5's reserve and its trial, and that one owner's word never
//! disturbs another's.

mod support;

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use steadfast_core::{Meter, MeterOwner, Standing};
use support::Wakes;
use tokio::sync::Notify;

const CHARGE_MAX: u32 = (1 << 20) - 1;

/// B1, B2: a new meter shows nothing; the count and the charge add up to the cost.
#[test]
fn the_cost_is_in_flight_plus_charge() {
    let meter = Meter::new();
    assert_eq!(meter.read(), Meter::default().read());
    assert_eq!(meter.read().cost(), 0);
    assert_eq!(meter.read().standing(), Standing::Open);
    let owner = meter.owner();
    owner.set_charge(25);
    meter.enter();
    meter.enter();
    let reading = meter.read();
    assert_eq!((reading.in_flight(), reading.charge()), (2, 25));
    assert_eq!(reading.cost(), 27);
    assert_eq!(meter.release(), 2, "how many there were before");
    assert_eq!(meter.release(), 1);
    assert_eq!(meter.read().cost(), 25);
}

/// B1: the parts of the word don't run into each other, at their largest either.
#[test]
fn the_parts_of_the_word_are_apart() {
    let meter = Meter::new();
    let owner = meter.owner();
    owner.set_charge(CHARGE_MAX);
    owner.set_standing(Standing::Reserve);
    owner.grant_trial();
    for _ in 0..1_000 {
        meter.enter();
    }
    let reading = meter.read();
    assert_eq!(reading.in_flight(), 1_000);
    assert_eq!(reading.charge(), CHARGE_MAX);
    assert_eq!(reading.cost(), u64::from(CHARGE_MAX) + 1_000);
    assert_eq!(reading.standing(), Standing::Reserve);
    assert!(reading.on_trial());
    for left in (1..=1_000).rev() {
        assert_eq!(meter.release(), left);
    }
    owner.set_standing(Standing::Open);
    owner.set_charge(0);
    assert_eq!(meter.read(), Meter::new().read());
}

/// P6: charges add up and stop at the largest; taking one back leaves the others whole.
#[test]
fn charges_saturate_and_are_not_lost() {
    let meter = Meter::new();
    let (a, b, c) = (meter.owner(), meter.owner(), meter.owner());
    a.set_charge(u32::MAX);
    b.set_charge(u32::MAX);
    c.set_charge(7);
    assert_eq!(meter.read().charge(), CHARGE_MAX);
    assert_eq!(meter.read().standing(), Standing::Open, "no carry");
    drop(a);
    assert_eq!(meter.read().charge(), CHARGE_MAX);
    b.set_charge(3);
    assert_eq!(meter.read().charge(), 10);
}

/// B2, P6: a claim counts only if nothing changed since the reading, so that a burst spreads.
#[test]
fn a_claim_fails_when_the_meter_changed() {
    let meter = Meter::new();
    let owner = meter.owner();
    let seen = meter.read();
    assert_eq!(meter.claim(seen), Ok(()));
    let now = meter.claim(seen).unwrap_err();
    assert_eq!(now.in_flight(), 1, "the failure shows the present");
    owner.set_charge(25);
    assert_eq!(meter.claim(now).unwrap_err().charge(), 25);
    owner.set_standing(Standing::Shut);
    let seen = meter.claim(meter.read()).map(|()| meter.read()).unwrap();
    assert_eq!(
        seen.in_flight(),
        2,
        "whether to claim is the pick's to judge"
    );
}

/// Standings are ordered from best to worst, and a pick sees the worst that any owner says.
#[test]
fn the_worst_standing_counts() {
    use Standing::{Condemned, Open, Reserve, Shut};
    assert!(Open < Reserve && Reserve < Shut && Shut < Condemned);
    for (one, other) in [(Open, Reserve), (Reserve, Shut), (Shut, Condemned)] {
        for (first, second) in [(one, other), (other, one)] {
            let meter = Meter::new();
            let (a, b) = (meter.owner(), meter.owner());
            a.set_standing(first);
            b.set_standing(second);
            assert_eq!(meter.read().standing(), other);
        }
    }
}

/// One layer's restore can't undo another's reserve, nor its charge end another's.
#[test]
fn owners_do_not_disturb_each_other() {
    let meter = Meter::new();
    let (stall, penalty) = (meter.owner(), meter.owner());
    stall.set_standing(Standing::Shut);
    penalty.set_standing(Standing::Reserve);
    penalty.set_charge(25);
    stall.set_charge(5);
    stall.set_standing(Standing::Open);
    assert_eq!(meter.read().standing(), Standing::Reserve);
    stall.set_charge(0);
    assert_eq!(meter.read().charge(), 25);
    drop(stall);
    let reading = meter.read();
    assert_eq!(
        (reading.standing(), reading.charge()),
        (Standing::Reserve, 25)
    );
    drop(penalty);
    assert_eq!(meter.read(), Meter::new().read());
}

/// Requests in flight aren't an owner's: they stay when it goes.
#[test]
fn an_owner_takes_back_only_its_own() {
    let meter = Meter::new();
    let owner = meter.owner();
    owner.set_standing(Standing::Reserve);
    owner.set_charge(9);
    owner.grant_trial();
    meter.enter();
    drop(owner);
    let reading = meter.read();
    assert_eq!((reading.in_flight(), reading.charge()), (1, 0));
    assert_eq!(reading.standing(), Standing::Open);
    assert!(!reading.on_trial());
}

/// B3: a condemned channel stays so, for its first cause, past any restore and its owner's end.
#[test]
fn condemnation_sticks_with_its_first_cause() {
    let meter = Meter::new();
    let (a, b) = (meter.owner(), meter.owner());
    assert_eq!(meter.condemned_for(), None);
    a.set_charge(4);
    a.condemn("closed by the peer");
    a.condemn("again");
    b.condemn("too old");
    a.set_standing(Standing::Open);
    b.set_standing(Standing::Reserve);
    assert_eq!(meter.read().standing(), Standing::Condemned);
    drop(a);
    drop(b);
    let reading = meter.read();
    assert_eq!(reading.standing(), Standing::Condemned);
    assert_eq!(reading.charge(), 0, "the charge goes with its owner");
    assert_eq!(meter.condemned_for().as_deref(), Some("closed by the peer"));
}

/// The same when it is said as a standing: a cause may be given later.
#[test]
fn a_condemned_standing_sticks_too() {
    let meter = Meter::new();
    let owner = meter.owner();
    owner.set_standing(Standing::Condemned);
    owner.set_standing(Standing::Open);
    assert_eq!(meter.read().standing(), Standing::Condemned);
    assert_eq!(meter.condemned_for(), None);
    meter.owner().condemn("a cause");
    assert_eq!(meter.condemned_for().as_deref(), Some("a cause"));
}

/// Clones show the same channel; another meter doesn't.
#[test]
fn clones_are_the_same_channel() {
    let meter = Meter::new();
    let clone = meter.clone();
    clone.enter();
    assert_eq!(meter.read().in_flight(), 1);
    assert!(meter.same_as(&clone));
    assert!(!meter.same_as(&Meter::new()));
    assert!(meter.owner().meter().same_as(&clone));
    let shown = format!("{meter:?} {:?}", meter.owner());
    assert!(shown.contains("in_flight: 1"), "{shown}");
}

fn reserved(meter: &Meter) -> MeterOwner {
    let owner = meter.owner();
    owner.set_standing(Standing::Reserve);
    owner
}

/// P5: a trial lets one request through; the claim uses it up, and the channel stays in reserve.
#[test]
fn a_trial_is_used_by_one_claim() {
    let meter = Meter::new();
    let owner = reserved(&meter);
    assert!(!meter.read().on_trial());
    owner.grant_trial();
    assert!(meter.read().on_trial());
    let seen = meter.read();
    assert_eq!(meter.claim(seen), Ok(()));
    assert!(!meter.read().on_trial());
    assert_eq!(meter.read().standing(), Standing::Reserve);
    // A change of any kind doesn't bring it back.
    owner.set_charge(1);
    meter.owner().set_charge(1);
    assert!(!meter.read().on_trial());
    owner.grant_trial();
    assert!(meter.read().on_trial(), "the next second's");
}

/// P5: only a channel in reserve has trials, and only its own owner's count.
#[test]
fn a_trial_needs_a_reserve_of_its_own() {
    let meter = Meter::new();
    let (a, b) = (meter.owner(), meter.owner());
    a.grant_trial();
    assert!(!meter.read().on_trial(), "open needs none");
    a.set_standing(Standing::Reserve);
    assert!(!meter.read().on_trial(), "not kept from before");
    b.grant_trial();
    assert!(!meter.read().on_trial(), "b holds nothing in reserve");
    a.grant_trial();
    a.set_standing(Standing::Reserve);
    assert!(!meter.read().on_trial(), "a new standing is without one");
    a.grant_trial();
    b.set_standing(Standing::Shut);
    assert!(!meter.read().on_trial(), "never a shut one");
    b.set_standing(Standing::Open);
    assert!(meter.read().on_trial());
    a.condemn("gone");
    a.grant_trial();
    assert!(!meter.read().on_trial());
}

/// P5 with two owners: another's reserve stands, and hides a trial without using it up.
#[test]
fn another_reserve_hides_a_trial() {
    let meter = Meter::new();
    let (a, b) = (reserved(&meter), reserved(&meter));
    a.grant_trial();
    assert!(!meter.read().on_trial());
    // Any change in between.
    b.set_charge(3);
    b.set_standing(Standing::Open);
    assert!(meter.read().on_trial(), "a's trial wasn't used");
}

/// P5 with two owners that both hold it in reserve and both grant: the trickle goes on.
#[test]
fn two_reserves_that_both_grant_let_one_through() {
    let meter = Meter::new();
    let (a, b) = (reserved(&meter), reserved(&meter));
    for _ in 0..3 {
        a.grant_trial();
        b.grant_trial();
        let seen = meter.read();
        assert!(seen.on_trial());
        assert_eq!(meter.claim(seen), Ok(()));
        a.set_charge(1);
        assert!(!meter.read().on_trial(), "one request, not one for each");
    }
}

/// A bell rings when the standing changes, trials included, and not for charges or requests.
#[test]
fn bells_ring_on_a_change_of_standing_only() {
    let meter = Meter::new();
    let bell = Arc::new(Notify::new());
    meter.ring_on_change(Arc::clone(&bell));
    let owner = meter.owner();
    let rings = |act: &dyn Fn()| {
        let wakes = Wakes::new();
        let waker = wakes.waker();
        let mut notified = pin!(bell.notified());
        let pending = notified.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        act();
        wakes.count() == 1
    };
    assert!(!rings(&|| owner.set_charge(9)));
    assert!(!rings(&|| meter.enter()));
    assert!(!rings(&|| drop(meter.owner())));
    assert!(!rings(&|| owner.set_standing(Standing::Open)));
    assert!(!rings(&|| owner.grant_trial()), "open needs no trial");
    assert!(rings(&|| owner.set_standing(Standing::Reserve)));
    assert!(!rings(&|| owner.set_standing(Standing::Reserve)));
    assert!(rings(&|| owner.grant_trial()));
    assert!(!rings(&|| owner.grant_trial()), "it is on trial already");
    assert!(rings(&|| owner.set_standing(Standing::Shut)));
    assert!(rings(&|| owner.condemn("gone")));
    assert!(!rings(&|| owner.condemn("again")));
    let (second, third) = (Meter::new(), Arc::clone(&bell));
    second.ring_on_change(third);
    let shut = second.owner();
    assert!(rings(&|| shut.set_standing(Standing::Shut)), "shared bell");
}

/// X6: bells ring after unlocking: a waker may use the meter.
#[test]
fn bells_ring_outside_the_lock() {
    struct Uses(Meter, mpsc::Sender<Option<Arc<str>>>);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            // Both take the lock.
            self.0.owner().set_charge(1);
            let _ = self.1.send(self.0.condemned_for());
        }
    }
    let meter = Meter::new();
    let bell = Arc::new(Notify::new());
    meter.ring_on_change(Arc::clone(&bell));
    let (tell, told) = mpsc::channel();
    // On a thread of its own: a deadlock is then a failure and not a hang.
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(Uses(meter.clone(), tell)));
        let mut notified = pin!(bell.notified());
        let pending = notified.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        meter.owner().condemn("gone");
    });
    let cause = told.recv_timeout(Duration::from_secs(10));
    assert_eq!(cause.unwrap().as_deref(), Some("gone"));
}

/// B1: counts from many threads add up while owners change their minds.
#[test]
fn counts_add_up_across_threads() {
    let meter = Meter::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let mut seen = meter.read();
                    while let Err(now) = meter.claim(seen) {
                        seen = now;
                    }
                    meter.enter();
                    meter.release();
                    meter.release();
                }
            });
            scope.spawn(|| {
                let owner = meter.owner();
                for turn in 0..1_000 {
                    owner.set_charge(turn);
                    owner.set_standing(Standing::Reserve);
                    owner.grant_trial();
                    owner.set_standing(Standing::Open);
                }
            });
        }
    });
    assert_eq!(meter.read(), Meter::new().read());
}

/// One act on a meter, by the owner with this index.
#[derive(Clone, Debug)]
enum Act {
    Join,
    Leave(usize),
    Stand(usize, Standing),
    Charge(usize, u32),
    Condemn(usize),
    Grant(usize),
    Claim,
    Enter,
    Release,
}

fn act() -> impl Strategy<Value = Act> {
    let who = 0_usize..4;
    let standing = prop_oneof![
        4 => Just(Standing::Open),
        4 => Just(Standing::Reserve),
        2 => Just(Standing::Shut),
        1 => Just(Standing::Condemned),
    ];
    let charge = prop_oneof![4 => 0_u32..100, 1 => any::<u32>()];
    prop_oneof![
        2 => Just(Act::Join),
        1 => who.clone().prop_map(Act::Leave),
        5 => (who.clone(), standing).prop_map(|(who, s)| Act::Stand(who, s)),
        3 => (who.clone(), charge).prop_map(|(who, c)| Act::Charge(who, c)),
        1 => who.clone().prop_map(Act::Condemn),
        4 => who.prop_map(Act::Grant),
        3 => Just(Act::Claim),
        2 => Just(Act::Enter),
        3 => Just(Act::Release),
    ]
}

/// What an owner said, as a model keeps it.
#[derive(Clone, Copy, Default)]
struct Said {
    standing: Standing,
    charge: u32,
    trial: bool,
}

/// The model: what all said, in flight, and those that left condemned.
#[derive(Default)]
struct Model {
    said: Vec<Said>,
    in_flight: u32,
    condemned: bool,
    caused: bool,
}

impl Model {
    fn standing(&self) -> Standing {
        let left = if self.condemned {
            Standing::Condemned
        } else {
            Standing::Open
        };
        self.said
            .iter()
            .map(|s| s.standing)
            .max()
            .unwrap_or(left)
            .max(left)
    }

    fn charge(&self) -> u32 {
        let sum: u64 = self.said.iter().map(|s| u64::from(s.charge)).sum();
        u32::try_from(sum).unwrap_or(CHARGE_MAX).min(CHARGE_MAX)
    }

    fn on_trial(&self) -> bool {
        let mut reserves = self.said.iter().filter(|s| s.standing == Standing::Reserve);
        self.standing() == Standing::Reserve && reserves.all(|s| s.trial)
    }
}

proptest! {
    /// B2, P5, P6: whatever the owners do in whatever order, the word shows the sum of their charges,
    /// the worst of their standings, and a trial when all that hold the channel in reserve grant one.
    #[test]
    fn the_word_shows_what_the_owners_said(acts in prop::collection::vec(act(), 1..60)) {
        let meter = Meter::new();
        let mut owners: Vec<MeterOwner> = Vec::new();
        let mut model = Model::default();
        for act in acts {
            match act {
                Act::Join => {
                    owners.push(meter.owner());
                    model.said.push(Said::default());
                }
                Act::Leave(who) if who < owners.len() => {
                    drop(owners.remove(who));
                    model.condemned |= model.said.remove(who).standing == Standing::Condemned;
                }
                Act::Stand(who, standing) if who < owners.len() => {
                    owners[who].set_standing(standing);
                    let said = &mut model.said[who];
                    said.trial = false;
                    if said.standing != Standing::Condemned {
                        said.standing = standing;
                    }
                }
                Act::Charge(who, charge) if who < owners.len() => {
                    owners[who].set_charge(charge);
                    model.said[who].charge = charge;
                }
                Act::Condemn(who) if who < owners.len() => {
                    owners[who].condemn("gone");
                    model.said[who].standing = Standing::Condemned;
                    model.said[who].trial = false;
                    model.caused = true;
                }
                Act::Grant(who) if who < owners.len() => {
                    owners[who].grant_trial();
                    model.said[who].trial = model.said[who].standing == Standing::Reserve;
                }
                // A pick never takes a shut channel.
                Act::Claim if model.standing() <= Standing::Reserve => {
                    if model.on_trial() {
                        model.said.iter_mut().for_each(|s| s.trial = false);
                    }
                    prop_assert!(meter.claim(meter.read()).is_ok());
                    model.in_flight += 1;
                }
                Act::Enter => {
                    meter.enter();
                    model.in_flight += 1;
                }
                Act::Release if model.in_flight > 0 => {
                    prop_assert_eq!(meter.release(), model.in_flight);
                    model.in_flight -= 1;
                }
                _ => {}
            }
            let reading = meter.read();
            prop_assert_eq!(reading.in_flight(), model.in_flight);
            prop_assert_eq!(reading.charge(), model.charge());
            prop_assert_eq!(reading.standing(), model.standing());
            prop_assert_eq!(reading.on_trial(), model.on_trial());
            prop_assert_eq!(meter.condemned_for().is_some(), model.caused);
        }
    }
}

/// B8: room ends one below the stream limit, so that a probe finds a free stream; at a limit of 1 at it;
/// at 0 there is none. An assumed limit stands in until the peer has said one.
#[test]
fn room_is_what_the_stream_limit_leaves() {
    let meter = Meter::new();
    let enter = |count| (0..count).for_each(|_| meter.enter());
    assert_eq!(meter.read().stream_limit(), None);
    assert!(!meter.read().has_room(0));
    assert!(meter.read().has_room(1));
    enter(9);
    assert!(!meter.read().has_room(10));
    assert!(meter.read().has_room(11));
    meter.set_stream_limit(Some(11));
    assert!(
        meter.read().has_room(1),
        "a known limit is stronger than the assumed one"
    );
    meter.set_stream_limit(Some(10));
    assert!(!meter.read().has_room(100));
    meter.set_stream_limit(Some(0));
    assert!(!meter.read().has_room(100));
    meter.set_stream_limit(Some(u32::MAX));
    assert_eq!(meter.read().stream_limit(), Some(65_534));
    assert!(meter.read().has_room(0));
    meter.set_stream_limit(None);
    assert_eq!(meter.read().stream_limit(), None);
    assert_eq!(meter.read().in_flight(), 9, "the count isn't touched");
}

/// B8: the limit lives in the word that a claim compares, so a claim that saw a higher one fails.
#[test]
fn a_lowered_limit_is_obeyed_at_once() {
    let meter = Meter::new();
    meter.set_stream_limit(Some(10));
    let owner = meter.owner();
    owner.set_charge(7);
    let seen = meter.read();
    meter.set_stream_limit(Some(0));
    assert_eq!(meter.claim(seen), Err(meter.read()));
    owner.set_charge(8);
    owner.set_standing(Standing::Reserve);
    assert_eq!(
        meter.read().stream_limit(),
        Some(0),
        "other owners' changes keep it"
    );
    assert_eq!((meter.read().charge(), meter.read().in_flight()), (8, 0));
}

/// B8: a call that waits for a stream hears of a new limit.
#[tokio::test]
async fn a_new_limit_rings_the_bells() {
    let meter = Meter::new();
    let bell = std::sync::Arc::new(tokio::sync::Notify::new());
    meter.ring_on_change(std::sync::Arc::clone(&bell));
    let mut rung = std::pin::pin!(bell.notified());
    rung.as_mut().enable();
    meter.set_stream_limit(Some(5));
    rung.await;
    let mut again = std::pin::pin!(bell.notified());
    again.as_mut().enable();
    meter.set_stream_limit(Some(5));
    let waited = tokio::time::timeout(std::time::Duration::ZERO, again).await;
    assert!(waited.is_err(), "the same limit is no news");
}
