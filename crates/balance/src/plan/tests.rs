//! Scenarios of the plan, and properties over random ones.

use std::{cell::RefCell, collections::HashMap};

use proptest::prelude::*;
use steadfast_core::now;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A plan with the dials and channels that its actions led to.
struct Pool {
    plan: Plan,
    now: Instant,
    dialling: Vec<(ChannelId, Place)>,
    live: Vec<(ChannelId, Place)>,
    drained: Vec<(ChannelId, Why)>,
    aborted: Vec<ChannelId>,
    facts: RefCell<HashMap<ChannelId, Fact>>,
}

impl Pool {
    fn new(config: BalanceConfig, places: &[&str]) -> Self {
        config.validate().unwrap();
        let now = now();
        let mut pool = Self {
            plan: Plan::new(&config, 1, now),
            now,
            dialling: Vec::new(),
            live: Vec::new(),
            drained: Vec::new(),
            aborted: Vec::new(),
            facts: RefCell::default(),
        };
        pool.places(places);
        pool
    }

    fn places(&mut self, places: &[&str]) {
        self.plan
            .on_places(places.iter().map(|name| Place::new(*name)).collect());
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.plan.next_action() {
            match action {
                Action::Dial { id, place } => self.dialling.push((id, place)),
                Action::Abort { id } => {
                    self.dialling.retain(|(dial, _)| *dial != id);
                    self.aborted.push(id);
                }
                Action::Drain { id, why } => {
                    self.live.retain(|(live, _)| *live != id);
                    self.drained.push((id, why));
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.plan.on_deadline(self.now);
        self.act();
    }

    fn dialled(&mut self, index: usize) -> ChannelId {
        let (id, place) = self.dialling.remove(index);
        if self.plan.on_dialled(id, self.now) {
            self.live.push((id, place));
        }
        self.act();
        id
    }

    fn all_dialled(&mut self) {
        while !self.dialling.is_empty() {
            self.dialled(0);
        }
    }

    fn dial_fails(&mut self, index: usize) {
        let (id, _) = self.dialling.remove(index);
        self.plan.on_dial_failed(id, self.now);
        self.act();
    }

    fn condemn(&mut self, id: ChannelId) {
        self.plan.on_condemned(id, false, self.now);
        self.act();
    }

    fn interval(&mut self, peak: u64) -> isize {
        self.now = self.now.max(self.plan.next_interval());
        let facts = self.facts.borrow().clone();
        let fact = |id| Some(facts.get(&id).copied().unwrap_or_default());
        let change = self.plan.on_interval(peak, fact, self.now);
        self.act();
        change
    }

    fn live_at(&self, place: &str) -> usize {
        self.live
            .iter()
            .filter(|(_, at)| at.as_str() == place)
            .count()
    }

    fn dialling_at(&self, place: &str) -> usize {
        self.dialling
            .iter()
            .filter(|(_, at)| at.as_str() == place)
            .count()
    }
}

/// B3, B6: the initial channels are dialled at once, side by side.
#[test]
fn starts_with_the_initial_size() {
    let pool = Pool::new(BalanceConfig::bigtable(), &["a"]);
    assert_eq!(pool.dialling.len(), 10);
    assert!(pool.plan.is_hopeful());
}

/// B12: each place gets at least one channel, growth goes to the place with the fewest, doubles count
/// once.
#[test]
fn places_share_the_channels() {
    let pool = Pool::new(BalanceConfig::fixed(10), &["a", "b", "c", "a"]);
    let counts = ["a", "b", "c"].map(|place| pool.dialling_at(place));
    assert_eq!(counts, [4, 3, 3]);
    let more_places_than_channels = Pool::new(BalanceConfig::fixed(2), &["a", "b", "c"]);
    assert_eq!(more_places_than_channels.dialling.len(), 3);
}

/// B12: a removed place stops dialling at once, its channels drain, and the others take its share.
#[test]
fn a_removed_place_goes() {
    let mut pool = Pool::new(BalanceConfig::fixed(4), &["a", "b"]);
    let kept = pool.dialled(0);
    let gone = pool.dialled(0);
    let dialling_b: Vec<_> = pool
        .dialling
        .iter()
        .filter(|(_, at)| at.as_str() == "b")
        .cloned()
        .collect();
    pool.places(&["a"]);
    assert!(pool.live.iter().any(|(id, _)| *id == kept));
    assert_eq!(pool.drained, [(gone, Why::PlaceRemoved)]);
    assert_eq!(
        pool.aborted,
        dialling_b.iter().map(|(id, _)| *id).collect::<Vec<_>>()
    );
    assert_eq!(pool.dialling_at("b"), 0);
    assert_eq!(pool.live.len() + pool.dialling.len(), 4);
    pool.pass(MINUTE);
    assert_eq!(pool.dialling_at("b"), 0, "dialled no more");
}

/// B12: a dial that ends after its place was removed makes no channel.
#[test]
fn a_late_dial_is_turned_away() {
    let mut pool = Pool::new(BalanceConfig::fixed(1), &["a"]);
    let (late, _) = pool.dialling[0].clone();
    pool.places(&["b"]);
    assert!(!pool.plan.on_dialled(late, pool.now));
    pool.plan.on_dial_failed(late, pool.now);
    assert_eq!(pool.live_at("a"), 0);
    assert_eq!(pool.dialling_at("b"), 1);
}

/// B12: no places, no slots; when places come back the pool has its size again.
#[test]
fn no_places_and_back() {
    let mut pool = Pool::new(BalanceConfig::fixed(3), &[]);
    assert_eq!(pool.plan.size(), 0);
    assert!(!pool.plan.is_hopeful());
    pool.places(&["a"]);
    assert_eq!(pool.dialling.len(), 3);
}

/// B3, B12: intervals without places change nothing: when places come back the size is what it was.
#[test]
fn no_places_for_minutes_and_back() {
    let mut pool = Pool::new(BalanceConfig::fixed(6), &["a"]);
    pool.all_dialled();
    pool.places(&[]);
    for _ in 0..3 {
        assert_eq!(pool.interval(100), 0);
        // Told late of a request that met a channel at its maximum, or waited for a stream.
        assert_eq!(pool.plan.on_pressed(pool.now), 0);
        assert_eq!(pool.plan.on_starved(1, 99), 0);
    }
    pool.places(&["a"]);
    assert_eq!(pool.plan.size(), 6);
}

/// B12: a channel that was moving to a place which is gone stays at its own, and may move again.
#[test]
fn a_moving_channel_stays_when_its_new_place_goes() {
    let config = BalanceConfig {
        initial: 6,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a"]);
    pool.all_dialled();
    pool.places(&["a", "b"]);
    pool.all_dialled();
    pool.interval(50);
    assert_eq!(pool.dialling_at("b"), 1);
    pool.dial_fails(0);
    pool.pass(MINUTE);
    let (moving, _) = pool.dialling[0].clone();
    pool.places(&["a"]);
    assert_eq!(pool.aborted, [moving]);
    assert_eq!(pool.live_at("a"), 6);
    assert_eq!(pool.drained.len(), 1, "only the one that had moved");
    pool.all_dialled();
    pool.places(&["a", "b"]);
    pool.all_dialled();
    pool.interval(50);
    assert_eq!(pool.dialling_at("b"), 1);
}

/// B3: what is said to have changed is what did: the last channels of places stay.
#[test]
fn what_cannot_shrink_is_no_change() {
    let config = BalanceConfig {
        initial: 1,
        min: 1,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a", "b", "c"]);
    pool.all_dialled();
    assert_eq!(pool.interval(0), 0);
    assert_eq!(pool.live.len(), 3);
}

/// B6: a failed dial is tried again after its backoff, not before; the waits grow; a success resets
/// nothing until the channel has lived.
#[test]
fn dials_back_off() {
    let mut pool = Pool::new(BalanceConfig::fixed(1), &["a"]);
    let mut dials = 1;
    let (end, began) = (pool.now + MINUTE, pool.now);
    while pool.now < end {
        pool.dial_fails(0);
        let until = pool.plan.next_deadline().unwrap();
        assert!(until >= pool.now + SECOND.mul_f64(0.8));
        let just_before = until - pool.now - Duration::from_millis(1);
        pool.pass(just_before);
        assert!(pool.dialling.is_empty(), "not before its time");
        pool.pass(Duration::from_millis(1));
        dials += 1;
    }
    assert!(dials <= 10, "{dials} in {:?}", pool.now - began);
}

/// B6: a channel that is lost as soon as it is ready counts as a failed dial; one that lived is
/// replaced at once.
#[test]
fn a_channel_lost_at_once_backs_off() {
    let mut pool = Pool::new(BalanceConfig::fixed(1), &["a"]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let id = pool.dialled(0);
        pool.condemn(id);
        assert!(pool.dialling.is_empty());
        assert!(!pool.plan.is_hopeful());
        waits.push(pool.plan.next_deadline().unwrap() - pool.now);
        pool.pass(MINUTE);
    }
    assert!(waits[5] > waits[0] * 4, "{waits:?}");
    let id = pool.dialled(0);
    pool.pass(SETTLED);
    pool.condemn(id);
    assert_eq!(pool.dialling.len(), 1, "dialled at once");
    assert!(pool.plan.is_hopeful());
    assert_eq!(pool.drained.last(), Some(&(id, Why::Condemned)));
}

/// B6, B7: a channel that has answered a call is dialled anew at once, however soon it was lost: a server that
/// tells its clients to go away is there, and calls may wait for the next connection.
#[test]
fn a_channel_that_answered_is_replaced_at_once() {
    let mut pool = Pool::new(BalanceConfig::fixed(1), &["a"]);
    let id = pool.dialled(0);
    pool.plan.on_condemned(id, true, pool.now);
    pool.act();
    assert_eq!(pool.dialling.len(), 1);
    assert!(pool.plan.is_hopeful());
}

/// B7: there is hope while a slot dials whose last dial didn't fail; a re-dial after a failure is none.
#[test]
fn hope_ends_when_every_dial_has_failed() {
    let mut pool = Pool::new(
        BalanceConfig {
            min: 2,
            ..BalanceConfig::fixed(2)
        },
        &["a"],
    );
    pool.dial_fails(0);
    assert!(pool.plan.is_hopeful(), "the other one still dials");
    pool.dial_fails(0);
    assert!(!pool.plan.is_hopeful());
    pool.pass(MINUTE);
    assert_eq!(pool.dialling.len(), 2);
    assert!(!pool.plan.is_hopeful(), "they dial again, but failed last");
    pool.dialled(0);
    assert!(!pool.plan.is_hopeful());
}

/// B3: removed first are slots without a channel, then quarantined channels, then those with the
/// fewest in flight, then the youngest.
#[test]
fn the_order_of_removal() {
    let config = BalanceConfig {
        initial: 6,
        min: 1,
        resize_step: 1,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a"]);
    let mut ids = Vec::new();
    for _ in 0..5 {
        pool.now += SECOND;
        ids.push(pool.dialled(0));
    }
    let facts = [
        (9, Standing::Shut),
        (3, Standing::Open),
        (1, Standing::Reserve),
        (1, Standing::Open),
        (2, Standing::Open),
    ];
    pool.facts = RefCell::new(ids.iter().copied().zip(facts).collect());
    pool.interval(0);
    assert_eq!(pool.aborted.len(), 1, "the one that never came");
    for _ in 0..4 {
        pool.interval(0);
    }
    let order: Vec<_> = pool.drained.iter().map(|(id, _)| *id).collect();
    // In quarantine; then one in flight, the younger one first; then two in flight.
    assert_eq!(order, [ids[0], ids[3], ids[2], ids[4]]);
    assert!(pool.drained.iter().all(|(_, why)| *why == Why::Shrunk));
}

/// B12: shrinking leaves each place one channel.
#[test]
fn shrinking_spares_the_last_of_a_place() {
    let config = BalanceConfig {
        initial: 5,
        min: 1,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a", "b", "c"]);
    pool.all_dialled();
    for _ in 0..5 {
        pool.interval(0);
    }
    assert_eq!(["a", "b", "c"].map(|place| pool.live_at(place)), [1, 1, 1]);
}

/// B3: growth follows the peak, two at a time.
#[test]
fn growth_follows_the_peak() {
    let mut pool = Pool::new(BalanceConfig::default(), &["a"]);
    pool.all_dialled();
    assert_eq!(pool.interval(1_000), 2);
    assert_eq!(pool.dialling.len(), 2);
    pool.all_dialled();
    assert_eq!(pool.interval(100), 0, "inside the band");
}

/// B5: an aged channel is dialled anew first and drained when its replacement is there; at most two
/// per cycle; the replacement keeps its place.
#[test]
fn aged_channels_are_replaced_two_at_a_time() {
    let age = 45 * MINUTE;
    let config = BalanceConfig {
        max_age: Some(age),
        ..BalanceConfig::fixed(6)
    };
    let mut pool = Pool::new(config, &["a", "b", "c"]);
    pool.all_dialled();
    let first: Vec<_> = pool.live.clone();
    pool.now += age - MINUTE;
    pool.interval(50);
    assert!(pool.dialling.is_empty(), "none has its age");
    pool.now += 6 * MINUTE;
    pool.interval(50);
    assert_eq!(pool.dialling.len(), 2);
    assert_eq!(pool.live.len(), 6, "the old ones serve on");
    assert!(pool.plan.size() == 6);
    pool.all_dialled();
    assert_eq!(pool.drained.len(), 2);
    assert!(pool.drained.iter().all(|(_, why)| *why == Why::Replaced));
    assert_eq!(["a", "b", "c"].map(|place| pool.live_at(place)), [2, 2, 2]);
    for _ in 0..2 {
        pool.interval(50);
        pool.all_dialled();
    }
    assert!(first.iter().all(|old| !pool.live.contains(old)));
}

/// B5: the age has jitter, so that channels that were born together don't go together.
#[test]
fn ages_are_jittered() {
    let config = BalanceConfig {
        max_age: Some(45 * MINUTE),
        age_jitter: 5 * MINUTE,
        refresh_step: 100,
        ..BalanceConfig::fixed(50)
    };
    let mut pool = Pool::new(config, &["a"]);
    pool.all_dialled();
    pool.now += 45 * MINUTE;
    let mut per_cycle = Vec::new();
    for _ in 0..7 {
        pool.interval(100);
        per_cycle.push(pool.dialling.len());
        pool.all_dialled();
    }
    assert_eq!(per_cycle.iter().sum::<usize>(), 50);
    assert!(per_cycle.iter().all(|count| *count < 25), "{per_cycle:?}");
}

/// B5, B12: a channel that moves to another place counts among those that are replaced in a cycle.
#[test]
fn a_move_counts_as_a_replacement() {
    let config = BalanceConfig {
        max_age: Some(MINUTE),
        age_jitter: Duration::ZERO,
        initial: 8,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a"]);
    pool.all_dialled();
    pool.places(&["a", "b"]);
    pool.all_dialled();
    pool.interval(100);
    assert_eq!((pool.dialling_at("a"), pool.dialling_at("b")), (1, 1));
}

/// B12: places that differ by one channel are even: nothing moves to and fro.
#[test]
fn an_odd_channel_stays_where_it_is() {
    // Two against one, and three against two.
    for size in [3, 5] {
        let mut pool = Pool::new(BalanceConfig::fixed(size), &["a", "b"]);
        pool.all_dialled();
        for _ in 0..5 {
            pool.interval(50);
            assert!(pool.dialling.is_empty(), "{size} channels");
        }
    }
}

/// B6: failures are forgotten when a channel has lived: the next one is dialled soon after it fails.
#[test]
fn failures_are_forgotten_by_a_channel_that_lived() {
    let mut pool = Pool::new(BalanceConfig::fixed(1), &["a"]);
    for _ in 0..8 {
        pool.dial_fails(0);
        pool.pass(MINUTE);
    }
    let id = pool.dialled(0);
    pool.pass(MINUTE);
    pool.condemn(id);
    pool.dial_fails(0);
    let wait = pool.plan.next_deadline().unwrap() - pool.now;
    assert!(wait <= SECOND.mul_f64(1.2), "{wait:?}");
}

/// B5, B6: when the replacement can't connect the old channel stays, and the dial is tried again.
#[test]
fn a_failed_replacement_leaves_the_old_one() {
    let config = BalanceConfig {
        max_age: Some(MINUTE),
        age_jitter: Duration::ZERO,
        ..BalanceConfig::fixed(1)
    };
    let mut pool = Pool::new(config, &["a"]);
    let old = pool.dialled(0);
    pool.interval(10);
    pool.dial_fails(0);
    assert_eq!(pool.live.len(), 1);
    assert!(pool.drained.is_empty());
    pool.pass(2 * SECOND);
    pool.dialled(0);
    assert_eq!(pool.drained, [(old, Why::Replaced)]);
}

/// B6, S5: a replacement that a layer asks for is dialled once; after a failure the layer asks again.
#[test]
fn a_replacement_that_was_asked_for() {
    let mut pool = Pool::new(BalanceConfig::fixed(2), &["a"]);
    let (old, other) = (pool.dialled(0), pool.dialled(0));
    assert!(pool.plan.on_replacement_asked(old));
    assert!(!pool.plan.on_replacement_asked(old), "a dial is under way");
    pool.act();
    assert_eq!((pool.dialling.len(), pool.plan.is_hopeful()), (1, true));
    pool.dial_fails(0);
    assert_eq!(pool.plan.next_deadline(), None, "not by itself");
    pool.pass(10 * MINUTE);
    assert!(pool.dialling.is_empty() && pool.drained.is_empty());
    assert!(pool.plan.on_replacement_asked(old));
    pool.act();
    pool.dialled(0);
    assert_eq!(pool.drained, [(old, Why::Replaced)]);
    assert!(!pool.plan.on_replacement_asked(old), "it has left");
    // A channel that is lost while its replacement is dialled: the dial is the slot's own now.
    assert!(pool.plan.on_replacement_asked(other));
    pool.act();
    pool.condemn(other);
    pool.dial_fails(0);
    assert!(pool.plan.next_deadline().is_some());
    pool.pass(2 * SECOND);
    assert_eq!(pool.dialling.len(), 1);
}

/// B12: when a place comes to a running pool, channels move to it one at a time, the new one first.
#[test]
fn channels_move_to_a_new_place() {
    let config = BalanceConfig {
        initial: 6,
        ..BalanceConfig::default()
    };
    let mut pool = Pool::new(config, &["a"]);
    pool.all_dialled();
    pool.places(&["a", "b"]);
    pool.all_dialled();
    for _ in 0..10 {
        let before = pool.live.len();
        pool.interval(50);
        assert!(pool.dialling.len() <= 1);
        assert_eq!(
            pool.live.len(),
            before,
            "the old one serves until the new one is there"
        );
        pool.all_dialled();
    }
    assert!(pool.live_at("a").abs_diff(pool.live_at("b")) <= 1);
    pool.places(&["b"]);
    assert_eq!(pool.live_at("a"), 0);
}

/// B12: a channel on the move whose old place is removed drains at once.
#[test]
fn a_moving_channel_drains_with_its_old_place() {
    let mut pool = Pool::new(BalanceConfig::fixed(4), &["a"]);
    pool.all_dialled();
    pool.places(&["a", "b"]);
    pool.all_dialled();
    pool.interval(50);
    assert_eq!(pool.dialling_at("b"), 1);
    pool.places(&["b"]);
    assert_eq!(pool.live_at("a"), 0);
    assert_eq!(pool.dialling_at("a"), 0);
    pool.all_dialled();
    assert_eq!(pool.live_at("b"), pool.plan.size());
}

/// B6: `warm` makes the pool grow to the number asked for, never over its maximum.
#[test]
fn warm_grows_the_pool() {
    let mut pool = Pool::new(BalanceConfig::default(), &["a"]);
    pool.plan.on_warm(9);
    pool.act();
    assert_eq!(pool.dialling.len(), 9);
    pool.plan.on_warm(10_000);
    pool.act();
    assert_eq!(pool.dialling.len(), 64);
}

/// B4: pressure grows the pool at once by 30 %, at least 2, once in 10 s, up to its maximum.
#[test]
fn pressure_grows_the_pool() {
    let mut pool = Pool::new(BalanceConfig::default(), &["a"]);
    pool.all_dialled();
    let mut grown = Vec::new();
    for _ in 0..12 {
        grown.push(pool.plan.on_pressed(pool.now));
        assert_eq!(
            pool.plan.on_pressed(pool.now + 9 * SECOND),
            0,
            "not twice in 10 s"
        );
        pool.act();
        pool.now += 10 * SECOND;
    }
    assert_eq!(grown, [2, 2, 3, 4, 5, 6, 8, 11, 14, 5, 0, 0]);
    assert_eq!(pool.plan.size(), 64);
}

/// B8: calls that wait for a stream make the pool grow by as many channels as they need beyond the dials
/// under way, at once and as often as it takes.
#[test]
fn starvation_grows_the_pool_by_what_is_needed() {
    let mut pool = Pool::new(BalanceConfig::fixed(4), &["a"]);
    assert_eq!(pool.plan.on_starved(1_000, 99), 0, "the maximum holds");
    let mut pool = Pool::new(BalanceConfig::default(), &["a"]);
    pool.all_dialled();
    assert_eq!(pool.plan.on_starved(100, 99), 2);
    assert_eq!(pool.plan.on_starved(100, 99), 0, "two dials are under way");
    assert_eq!(pool.plan.on_starved(300, 99), 2);
    pool.act();
    pool.all_dialled();
    assert_eq!(
        pool.plan.on_starved(1, 0),
        1,
        "a limit of 0 divides nothing"
    );
    assert_eq!(pool.plan.on_starved(usize::MAX, 99), 55);
    assert_eq!(pool.plan.size(), 64);
}

/// B10: closing leaves no slot: dials are given up, channels drain.
#[test]
fn closing_ends_everything() {
    let mut pool = Pool::new(BalanceConfig::fixed(3), &["a"]);
    pool.dialled(0);
    pool.plan.on_close();
    pool.act();
    assert!(pool.live.is_empty() && pool.dialling.is_empty());
    assert!(pool.drained.iter().all(|(_, why)| *why == Why::Closed));
    assert_eq!(pool.aborted.len(), 2);
    assert_eq!(pool.plan.size(), 0);
}

#[derive(Clone, Debug)]
enum Event {
    Dialled(usize),
    Fails(usize),
    Condemned(usize),
    Passes(u64),
    Interval(u64),
    Places(Vec<usize>),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<usize>().prop_map(Event::Dialled),
        any::<usize>().prop_map(Event::Fails),
        any::<usize>().prop_map(Event::Condemned),
        (1_u64..200).prop_map(Event::Passes),
        (0_u64..3_000).prop_map(Event::Interval),
        proptest::collection::vec(0_usize..4, 1..4).prop_map(Event::Places),
    ]
}

proptest! {
    /// B3, B6, B12: whatever happens, the size stays within its bounds (one channel for each place
    /// excepted), each place has a channel or a dial, and no dial is for a place that is gone.
    #[test]
    fn invariants_hold(events in proptest::collection::vec(event(), 1..80)) {
        let names = ["a", "b", "c", "d"];
        let config = BalanceConfig {
            initial: 5,
            min: 2,
            max: 12,
            max_age: Some(5 * MINUTE),
            ..BalanceConfig::default()
        };
        let mut pool = Pool::new(config.clone(), &names[..2]);
        let mut places = vec!["a", "b"];
        for event in events {
            match event {
                Event::Dialled(i) if !pool.dialling.is_empty() => {
                    let index = i % pool.dialling.len();
                    pool.dialled(index);
                }
                Event::Fails(i) if !pool.dialling.is_empty() => {
                    let index = i % pool.dialling.len();
                    pool.dial_fails(index);
                }
                Event::Condemned(i) if !pool.live.is_empty() => {
                    let id = pool.live[i % pool.live.len()].0;
                    pool.condemn(id);
                }
                Event::Passes(seconds) => pool.pass(SECOND * u32::try_from(seconds).unwrap()),
                Event::Interval(peak) => {
                    let change = pool.interval(peak);
                    prop_assert!(change.unsigned_abs() <= config.resize_step);
                }
                Event::Places(chosen) => {
                    places = chosen.into_iter().map(|i| names[i]).collect();
                    places.dedup();
                    pool.places(&places);
                }
                _ => {}
            }
            let size = pool.plan.size();
            // A place that came to a full pool gets its channel all the same.
            prop_assert!(size <= config.max + names.len());
            prop_assert!(size >= config.min);
            prop_assert!(pool.live.len() <= size);
            for (_, place) in pool.dialling.iter().chain(&pool.live) {
                prop_assert!(places.contains(&place.as_str()), "{} is gone", place);
            }
            for place in &places {
                let waits = pool.plan.connecting().any(|(at, _)| at.as_str() == *place);
                prop_assert!(pool.live_at(place) + pool.dialling_at(place) > 0 || waits);
            }
        }
    }
}
