//! The decisions, one rule after another, without clocks and channels.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use steadfast_core::ChannelId;
use steadfast_stall::{
    Action, Cause, Condition, Fact, Look, ProbeEnd, ProbeResult, Share, Spared, StallConfig,
    StallPolicy,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A policy with some channels, and a clock.
struct Sim {
    policy: StallPolicy,
    ids: Vec<ChannelId>,
    now: Instant,
}

impl Sim {
    fn new(channels: usize) -> Self {
        Self::with(channels, StallConfig::default())
    }

    fn with(channels: usize, config: StallConfig) -> Self {
        let mut sim = Self {
            policy: StallPolicy::new(Arc::new(config), 7),
            ids: (0..channels).map(|_| ChannelId::next()).collect(),
            now: steadfast_core::now().into_std(),
        };
        for id in sim.ids.clone() {
            sim.tell(Fact::Joined(id));
        }
        sim.pass(10 * SECOND);
        sim
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn tell(&mut self, fact: Fact) -> Vec<Action> {
        self.policy.on(fact, self.now);
        std::iter::from_fn(|| self.policy.next_action()).collect()
    }

    /// A look at a channel on which a caller has waited this long, and nothing came either.
    fn look(&mut self, channel: usize, time: Duration) -> Vec<Action> {
        self.look_at(channel, time, time, true)
    }

    fn look_at(
        &mut self,
        channel: usize,
        waited: Duration,
        silent: Duration,
        others: bool,
    ) -> Vec<Action> {
        let look = Look {
            waited,
            silent,
            others,
        };
        let id = self.ids[channel];
        let news = self.policy.is_news(id, look, self.now);
        let before = format!("{:?}", self.policy);
        let actions = self.tell(Fact::Looked(id, look));
        if !news {
            assert!(actions.is_empty(), "no news, but {actions:?}");
            assert_eq!(
                before,
                format!("{:?}", self.policy),
                "no news, but a change"
            );
        }
        actions
    }

    fn ends(&mut self, channel: usize, result: ProbeResult) -> Vec<Action> {
        self.ends_with(channel, result, false, true)
    }

    fn ends_with(
        &mut self,
        channel: usize,
        result: ProbeResult,
        moved: bool,
        others: bool,
    ) -> Vec<Action> {
        let end = ProbeEnd {
            result,
            moved,
            others,
        };
        let id = self.ids[channel];
        self.tell(Fact::ProbeEnded(id, end))
    }

    /// Makes a suspect of it, whose probe gets no answer.
    fn stall(&mut self, channel: usize) -> Vec<Action> {
        let suspect = self.look(channel, 5 * SECOND);
        assert_eq!(suspect, [Action::Suspect(self.ids[channel])]);
        self.pass(SECOND);
        self.ends(channel, ProbeResult::NoAnswer)
    }

    fn condition(&self, channel: usize) -> Condition {
        self.policy.condition(self.ids[channel]).unwrap()
    }

    /// Goes to the next deadline, and says how long that was.
    fn deadline(&mut self) -> (Duration, Vec<Action>) {
        let next = self.policy.next_deadline().expect("a deadline");
        let wait = next.saturating_duration_since(self.now);
        self.now = self.now.max(next);
        (wait, self.tell(Fact::Deadline))
    }

    /// Lets a quarantined channel answer its next probe.
    fn restore(&mut self, channel: usize) {
        while !self
            .deadline()
            .1
            .contains(&Action::Probe(self.ids[channel]))
        {}
        let restored = self.ends(channel, ProbeResult::Answered);
        assert!(restored.contains(&Action::Restore(self.ids[channel])));
    }
}

fn share(silent: usize, pool: usize) -> Share {
    Share { silent, pool }
}

fn near(time: Duration, expected: Duration) {
    let (low, high) = (expected.mul_f64(0.8), expected.mul_f64(1.2));
    assert!((low..=high).contains(&time), "{time:?}, not {expected:?}");
}

/// S1: a suspect is a channel on which a caller has waited for a second, and nothing came.
#[test]
fn a_second_of_waiting_and_silence() {
    let mut sim = Sim::new(4);
    let just_under = SECOND - Duration::from_millis(1);
    assert_eq!(sim.look_at(0, just_under, 9 * SECOND, true), []);
    assert_eq!(sim.look_at(0, 9 * SECOND, just_under, true), []);
    assert_eq!(
        sim.look_at(0, SECOND, SECOND, true),
        [Action::Suspect(sim.ids[0])]
    );
    assert_eq!(sim.condition(0), Condition::Suspect);
    assert_eq!(sim.look(0, 9 * SECOND), [], "one probe at a time");
}

/// S1: nobody who waits, no suspect, however long nothing came.
#[test]
fn nobody_waits() {
    let mut sim = Sim::new(4);
    assert_eq!(sim.look_at(0, Duration::ZERO, 60 * MINUTE, true), []);
}

/// S1: not while no other channel receives; around one channel alone that isn't asked.
#[test]
fn nothing_is_suspect_while_no_other_receives() {
    let mut sim = Sim::new(4);
    assert_eq!(sim.look_at(0, 9 * SECOND, 9 * SECOND, false), []);
    let mut alone = Sim::with(1, StallConfig::alone());
    let suspect = alone.look_at(0, SECOND, SECOND, false);
    assert_eq!(suspect, [Action::Suspect(alone.ids[0])]);
    let ended = alone.ends_with(0, ProbeResult::NoAnswer, false, false);
    assert_eq!(ended, [Action::Quarantine(alone.ids[0], share(1, 1))], "S9");
}

/// S1: another one must have received again before the probe ended.
#[test]
fn others_must_receive_while_the_probe_is_out() {
    let mut sim = Sim::new(4);
    sim.look(0, SECOND);
    let ended = sim.ends_with(0, ProbeResult::NoAnswer, false, false);
    let spared = Action::Spare(sim.ids[0], Spared::NoOthers, share(1, 4));
    assert_eq!(ended, [spared]);
    assert_eq!(sim.condition(0), Condition::Unanswered);
    // It is asked again, and this time others receive.
    sim.pass(2 * SECOND);
    assert_eq!(sim.look(0, 9 * SECOND), [Action::Suspect(sim.ids[0])]);
    let ended = sim.ends(0, ProbeResult::NoAnswer);
    assert_eq!(ended, [Action::Quarantine(sim.ids[0], share(1, 4))]);
}

/// S1: an answer starts the silence anew, so a slow call costs a probe a second and nothing else.
#[test]
fn an_answer_starts_the_silence_anew() {
    let mut sim = Sim::new(4);
    sim.look(0, SECOND);
    sim.pass(Duration::from_millis(20));
    assert_eq!(
        sim.ends(0, ProbeResult::Answered),
        [Action::Clear(sim.ids[0])]
    );
    sim.pass(SECOND - Duration::from_millis(1));
    assert_eq!(sim.look(0, 30 * SECOND), []);
    sim.pass(Duration::from_millis(1));
    assert_eq!(sim.look(0, 30 * SECOND), [Action::Suspect(sim.ids[0])]);
}

/// S3: a probe that wasn't attempted, or was given up, leaves a suspect in service; it is asked again.
#[test]
fn an_unattempted_probe_leaves_a_suspect_open() {
    for result in [ProbeResult::NotAttempted, ProbeResult::Dropped] {
        let mut sim = Sim::new(4);
        sim.look(0, SECOND);
        assert_eq!(sim.ends(0, result), [Action::Clear(sim.ids[0])]);
        assert_eq!(sim.condition(0), Condition::Serving);
        assert_eq!(sim.look(0, 2 * SECOND), [], "S12: not at once");
        sim.pass(SECOND.mul_f64(1.2));
        assert_eq!(sim.look(0, 3 * SECOND), [Action::Suspect(sim.ids[0])]);
        let ended = sim.ends(0, ProbeResult::NoAnswer);
        assert_eq!(ended, [Action::Quarantine(sim.ids[0], share(1, 4))]);
    }
}

/// S3: nor does it restore a channel in quarantine, and the next probe comes no later for it.
#[test]
fn an_unattempted_probe_restores_nothing() {
    let mut sim = Sim::new(4);
    sim.stall(0);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let (wait, actions) = sim.deadline();
        assert_eq!(actions, [Action::Probe(sim.ids[0])]);
        assert_eq!(sim.ends(0, ProbeResult::NotAttempted), []);
        assert_eq!(sim.condition(0), Condition::Quarantined);
        waits.push(wait);
    }
    near(waits[4], 2 * SECOND);
    sim.restore(0);
}

/// S4: no answer, quarantine. What a caller received meanwhile is better than an answer.
#[test]
fn no_answer_is_a_quarantine_unless_something_came() {
    let mut sim = Sim::new(4);
    assert_eq!(sim.stall(0), [Action::Quarantine(sim.ids[0], share(1, 4))]);
    assert_eq!(sim.look(0, 9 * SECOND), [], "it is no suspect now");
    sim.look(1, SECOND);
    let ended = sim.ends_with(1, ProbeResult::NoAnswer, true, true);
    assert_eq!(
        ended,
        [Action::Spare(sim.ids[1], Spared::Moved, share(2, 4))]
    );
    assert_eq!(sim.condition(1), Condition::Serving);
}

/// S5: it is asked again after 1 s, doubling to 10 s, ± 20 %, and restored by an answer. The next
/// quarantine begins with 1 s again.
#[test]
fn a_quarantined_channel_is_asked_again() {
    let mut sim = Sim::new(4);
    for _ in 0..2 {
        sim.stall(0);
        for expected in [1, 2, 4, 8, 10, 10] {
            let (wait, actions) = sim.deadline();
            near(wait, expected * SECOND);
            assert_eq!(actions, [Action::Probe(sim.ids[0])]);
            assert_eq!(sim.tell(Fact::Deadline), [], "one probe at a time");
            assert_eq!(sim.ends(0, ProbeResult::NoAnswer), []);
        }
        sim.restore(0);
        assert_eq!(sim.condition(0), Condition::Serving);
        assert_eq!(sim.look(0, 9 * SECOND), [], "the silence starts anew");
        sim.pass(SECOND);
    }
}

/// S5: three quarantines within ten minutes, and the channel is replaced.
#[test]
fn a_repeat_offender_is_replaced() {
    let mut sim = Sim::new(4);
    for _ in 0..2 {
        assert_eq!(sim.stall(0).len(), 1);
        sim.restore(0);
        sim.pass(2 * MINUTE);
    }
    let third = sim.stall(0);
    let replace = Action::Replace(sim.ids[0], Cause::Strikes(3));
    assert_eq!(
        third,
        [Action::Quarantine(sim.ids[0], share(1, 4)), replace]
    );
}

/// S5: quarantines that are further apart than that don't add up.
#[test]
fn old_quarantines_are_forgotten() {
    let mut sim = Sim::new(4);
    for _ in 0..10 {
        assert_eq!(sim.stall(0).len(), 1);
        sim.restore(0);
        sim.pass(6 * MINUTE);
    }
}

/// S5: a channel that hasn't answered for a minute is replaced.
#[test]
fn a_dead_channel_is_replaced() {
    let mut sim = Sim::new(4);
    sim.stall(0);
    let began = sim.now;
    let replaced = loop {
        let (_, actions) = sim.deadline();
        if actions.contains(&Action::Probe(sim.ids[0])) {
            sim.ends(0, ProbeResult::NoAnswer);
        }
        if actions.contains(&Action::Replace(sim.ids[0], Cause::Dead)) {
            break sim.now - began;
        }
    };
    assert_eq!(replaced, MINUTE);
}

/// S5: one that doesn't stand out isn't replaced: when most had a quarantine lately, it is the server.
#[test]
fn only_one_that_stands_out_is_replaced() {
    let mut sim = Sim::new(4);
    for channel in [1, 2, 3] {
        sim.stall(channel);
        sim.restore(channel);
    }
    for _ in 0..2 {
        sim.stall(0);
        sim.restore(0);
        sim.pass(SECOND);
    }
    let third = sim.stall(0);
    assert_eq!(third, [Action::Quarantine(sim.ids[0], share(1, 4))]);
    // Once the others' quarantines are forgotten, it does.
    let began = sim.now;
    let replaced = loop {
        let (_, actions) = sim.deadline();
        if actions.contains(&Action::Probe(sim.ids[0])) {
            sim.ends(0, ProbeResult::NoAnswer);
        }
        if let Some(Action::Replace(id, _)) = actions.last() {
            assert_eq!(*id, sim.ids[0]);
            break sim.now - began;
        }
    };
    assert!(
        replaced > 9 * MINUTE && replaced < 10 * MINUTE,
        "{replaced:?}"
    );
}

/// S5: at most one replacement a minute; one that failed uses up its minute, and they take turns.
#[test]
fn one_replacement_a_minute_in_turn() {
    let mut sim = Sim::new(6);
    sim.stall(0);
    sim.stall(1);
    let mut asked = Vec::new();
    while asked.len() < 4 {
        let (_, actions) = sim.deadline();
        for action in actions {
            match action {
                Action::Probe(id) => {
                    let channel = sim.ids.iter().position(|it| *it == id).unwrap();
                    assert_eq!(sim.ends(channel, ProbeResult::NoAnswer), []);
                }
                Action::Replace(id, Cause::Dead) => asked.push((sim.now, id)),
                other => panic!("{other:?}"),
            }
        }
    }
    let who: Vec<ChannelId> = asked.iter().map(|(_, id)| *id).collect();
    assert_eq!(who, [sim.ids[0], sim.ids[1], sim.ids[0], sim.ids[1]]);
    for pair in asked.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, MINUTE);
    }
}

/// S6: three of four at once: no quarantine, and why is said.
#[test]
fn three_of_four_are_spared() {
    let mut sim = Sim::new(4);
    for channel in 0..3 {
        sim.look(channel, SECOND);
    }
    for channel in 0..3 {
        let ended = sim.ends(channel, ProbeResult::NoAnswer);
        let spared = Action::Spare(sim.ids[channel], Spared::TooMany, share(3, 4));
        assert_eq!(
            ended,
            [spared],
            "the suspects whose probe is still out count"
        );
        assert_eq!(sim.condition(channel), Condition::Unanswered);
    }
}

/// S6: two of four are put in quarantine, and with one of them there, the next two aren't.
#[test]
fn half_of_the_pool_and_no_more() {
    let mut sim = Sim::new(4);
    sim.look(0, SECOND);
    sim.look(1, SECOND);
    for channel in [0, 1] {
        let ended = sim.ends(channel, ProbeResult::NoAnswer);
        assert_eq!(ended, [Action::Quarantine(sim.ids[channel], share(2, 4))]);
    }
    let ended = sim.stall(2);
    assert_eq!(
        ended,
        [Action::Spare(sim.ids[2], Spared::TooMany, share(3, 4))]
    );
}

/// S6: half is rounded down: in a pool of one nothing is put in quarantine, in one of three one channel.
#[test]
fn half_is_rounded_down() {
    let mut sim = Sim::new(1);
    let ended = sim.stall(0);
    assert_eq!(
        ended,
        [Action::Spare(sim.ids[0], Spared::TooMany, share(1, 1))]
    );
    let mut sim = Sim::new(3);
    assert_eq!(sim.stall(0), [Action::Quarantine(sim.ids[0], share(1, 3))]);
    assert_eq!(
        sim.stall(1),
        [Action::Spare(sim.ids[1], Spared::TooMany, share(2, 3))]
    );
}

/// S6: it is decided again for every unanswered suspect when another probe ends.
#[test]
fn it_is_decided_again_when_another_probe_ends() {
    let mut sim = Sim::new(4);
    for channel in 0..3 {
        sim.look(channel, SECOND);
    }
    sim.ends(0, ProbeResult::NoAnswer);
    sim.ends(1, ProbeResult::NoAnswer);
    let ended = sim.ends(2, ProbeResult::Answered);
    let expected = [
        Action::Clear(sim.ids[2]),
        Action::Quarantine(sim.ids[0], share(2, 4)),
        Action::Quarantine(sim.ids[1], share(2, 4)),
    ];
    assert_eq!(ended, expected);
}

/// S6: an unanswered suspect on which something comes, or whom nobody waits for any more, is none.
#[test]
fn an_unanswered_suspect_is_cleared() {
    for waited in [9 * SECOND, Duration::ZERO] {
        let mut sim = Sim::new(4);
        for channel in 0..3 {
            sim.look(channel, SECOND);
        }
        sim.ends(0, ProbeResult::NoAnswer);
        sim.pass(2 * SECOND);
        let silent = if waited.is_zero() { 9 * SECOND } else { SECOND };
        sim.look_at(0, waited, silent, true);
        assert_eq!(sim.condition(0), Condition::Serving);
        assert_eq!(sim.ends(1, ProbeResult::NoAnswer).len(), 1);
        assert_eq!(sim.condition(0), Condition::Serving);
    }
}

/// S6: channels that drain or connect aren't in the pool: neither in its size nor among the silent.
#[test]
fn draining_and_connecting_channels_are_not_in_the_pool() {
    let mut sim = Sim::new(6);
    sim.tell(Fact::InPool(sim.ids[4], false));
    sim.tell(Fact::InPool(sim.ids[5], false));
    assert_eq!(sim.policy.share(), share(0, 4));
    for channel in [0, 1, 4] {
        sim.look(channel, SECOND);
    }
    assert_eq!(sim.policy.share(), share(2, 4));
    for channel in [0, 1] {
        let ended = sim.ends(channel, ProbeResult::NoAnswer);
        assert_eq!(ended, [Action::Quarantine(sim.ids[channel], share(2, 4))]);
    }
}

/// S6: one that leaves during its probe takes neither cap nor slot, but its requests are ended.
#[test]
fn one_that_leaves_during_its_probe() {
    let mut sim = Sim::new(4);
    // The third strike, so that it would be replaced.
    for _ in 0..2 {
        sim.stall(0);
        sim.restore(0);
        sim.pass(SECOND);
    }
    for channel in [0, 1, 2] {
        sim.look(channel, 5 * SECOND);
    }
    sim.tell(Fact::Left(sim.ids[0]));
    let ended = sim.ends(0, ProbeResult::NoAnswer);
    assert_eq!(ended[0], Action::Quarantine(sim.ids[0], share(2, 3)));
    assert_eq!(ended.len(), 1, "no replacement");
    // Two of the three that are left are too many still.
    let ended = sim.ends(1, ProbeResult::NoAnswer);
    assert_eq!(
        ended,
        [Action::Spare(sim.ids[1], Spared::TooMany, share(2, 3))]
    );
    sim.tell(Fact::Gone(sim.ids[0]));
    assert_eq!(sim.policy.condition(sim.ids[0]), None);
    assert_eq!(sim.policy.next_deadline(), None, "it isn't asked any more");
}

/// S7: a quarantine that ended more streams than the transport may remember gives the channel up; around
/// one channel alone, nobody comes on it before the peer has had its say.
#[test]
fn too_many_resets() {
    let mut sim = Sim::new(4);
    sim.stall(0);
    assert_eq!(sim.tell(Fact::Ended(sim.ids[0], 1_000)), []);
    sim.stall(1);
    let given_up = sim.tell(Fact::Ended(sim.ids[1], 1_001));
    assert_eq!(given_up, [Action::GiveUp(sim.ids[1], 1_001)]);
    assert_eq!(sim.condition(1), Condition::GivenUp);
    assert_eq!(sim.policy.share(), share(1, 3));
    let mut alone = Sim::with(1, StallConfig::alone());
    alone.stall(0);
    assert_eq!(alone.tell(Fact::Ended(alone.ids[0], 1_500)), []);
    let began = alone.now;
    let mut probes = 0;
    while alone.condition(0) == Condition::Quarantined {
        let (_, actions) = alone.deadline();
        assert_eq!(actions, [Action::Probe(alone.ids[0])]);
        probes += 1;
        alone.ends(0, ProbeResult::Answered);
    }
    assert_eq!((alone.now - began, probes), (10 * SECOND, 2));
    let no_bound = StallConfig {
        resets: None,
        ..StallConfig::default()
    };
    let mut sim = Sim::with(4, no_bound);
    sim.stall(0);
    assert_eq!(sim.tell(Fact::Ended(sim.ids[0], 1_000_000)), []);
}

/// S10: after this process stood still no silence from before counts.
#[test]
fn silence_begins_anew_after_a_local_stall() {
    let mut sim = Sim::new(4);
    let late = 5 * SECOND;
    assert_eq!(sim.tell(Fact::LocalStall(late)), [Action::LocalStall(late)]);
    assert_eq!(sim.look(0, 6 * SECOND), []);
    sim.pass(SECOND - Duration::from_millis(1));
    assert_eq!(sim.look(0, 7 * SECOND), []);
    sim.pass(Duration::from_millis(1));
    assert_eq!(sim.look(0, 7 * SECOND), [Action::Suspect(sim.ids[0])]);
}

/// S10: a probe during which it stood still says nothing when it got no answer, and an answer says what
/// it always says.
#[test]
fn a_probe_during_a_local_stall() {
    let mut sim = Sim::new(4);
    sim.look(0, SECOND);
    sim.tell(Fact::LocalStall(5 * SECOND));
    assert_eq!(
        sim.ends(0, ProbeResult::NoAnswer),
        [Action::Clear(sim.ids[0])]
    );
    assert_eq!(sim.condition(0), Condition::Serving);
    sim.pass(2 * SECOND);
    sim.stall(0);
    sim.deadline();
    sim.tell(Fact::LocalStall(5 * SECOND));
    assert_eq!(sim.ends(0, ProbeResult::NoAnswer), []);
    sim.deadline();
    sim.tell(Fact::LocalStall(5 * SECOND));
    assert_eq!(
        sim.ends(0, ProbeResult::Answered),
        [Action::Restore(sim.ids[0])]
    );
}

/// S12: with the probes off a suspicion is said, once in a second, and nothing follows.
#[test]
fn probes_can_be_switched_off() {
    let off = StallConfig {
        probes: false,
        ..StallConfig::default()
    };
    let mut sim = Sim::with(4, off);
    let spared = Action::Spare(sim.ids[0], Spared::ProbesOff, share(0, 4));
    assert_eq!(sim.look(0, SECOND), [spared]);
    assert_eq!(sim.look(0, SECOND), []);
    sim.pass(SECOND);
    assert_eq!(sim.look(0, 2 * SECOND), [spared]);
}

/// What happens in a random run.
#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Look(usize, u64, u64, bool),
    End(usize, ProbeResult, bool, bool),
    InPool(usize, bool),
    Leave(usize),
    Join(usize),
    Ended(usize, usize),
    Late,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let result = prop_oneof![
        3 => Just(ProbeResult::NoAnswer),
        1 => Just(ProbeResult::Answered),
        1 => Just(ProbeResult::NotAttempted),
        1 => Just(ProbeResult::Dropped),
    ];
    let channel = 0..6_usize;
    let event = prop_oneof![
        4 => (0..70_000_u64).prop_map(Event::Pass),
        8 => (channel.clone(), 0..4_000_u64, 0..4_000_u64, any::<bool>())
            .prop_map(|(c, w, s, o)| Event::Look(c, w, s, o)),
        8 => (channel.clone(), result, any::<bool>(), any::<bool>())
            .prop_map(|(c, r, m, o)| Event::End(c, r, m, o)),
        1 => (channel.clone(), any::<bool>()).prop_map(|(c, p)| Event::InPool(c, p)),
        1 => channel.clone().prop_map(Event::Leave),
        2 => channel.clone().prop_map(Event::Join),
        1 => (channel, 0..2_000_usize).prop_map(|(c, n)| Event::Ended(c, n)),
        1 => Just(Event::Late),
    ];
    prop::collection::vec(event, 0..400)
}

/// Says what each action may be about, and that the policy keeps its promises.
struct Check {
    out: Vec<bool>,
    shut: Vec<bool>,
    replaced: Option<Instant>,
}

impl Check {
    fn action(&mut self, sim: &Sim, action: Action) {
        let channel = |id: ChannelId| sim.ids.iter().position(|it| *it == id).unwrap();
        match action {
            Action::Suspect(id) | Action::Probe(id) => {
                let out = &mut self.out[channel(id)];
                assert!(!*out, "two probes of a channel at once");
                *out = true;
            }
            Action::Quarantine(id, share) => {
                let shut = &mut self.shut[channel(id)];
                assert!(!*shut, "in quarantine already");
                *shut = true;
                let _ = share;
            }
            Action::Restore(id) => {
                assert!(
                    std::mem::take(&mut self.shut[channel(id)]),
                    "not in quarantine"
                );
            }
            Action::Replace(id, _) => {
                assert!(self.shut[channel(id)]);
                if let Some(last) = self.replaced {
                    assert!(sim.now - last >= MINUTE, "two replacements in a minute");
                }
                self.replaced = Some(sim.now);
            }
            _ => {}
        }
    }
}

proptest! {
    /// S5, S6, X6: whatever happens, at most one probe of a channel is out, at most half of the pool is put
    /// in quarantine, one replacement a minute is asked for, and no deadline stays in the past.
    #[test]
    fn promises_hold_whatever_happens(events in events()) {
        let mut sim = Sim::new(6);
        let mut check = Check { out: vec![false; 6], shut: vec![false; 6], replaced: None };
        let (mut in_pool, mut left) = ([true; 6], [false; 6]);
        for event in events {
            let before = sim.policy.share();
            let mut actions = match event {
                Event::Pass(millis) => {
                    sim.pass(Duration::from_millis(millis));
                    Vec::new()
                }
                Event::Look(channel, waited, silent, others) => {
                    let millis = Duration::from_millis;
                    sim.look_at(channel, millis(waited), millis(silent), others)
                }
                Event::End(channel, result, moved, others) if check.out[channel] => {
                    check.out[channel] = false;
                    sim.ends_with(channel, result, moved, others)
                }
                Event::End(..) => Vec::new(),
                Event::InPool(channel, is) => {
                    in_pool[channel] = is && !left[channel];
                    sim.tell(Fact::InPool(sim.ids[channel], is))
                }
                Event::Leave(channel) => {
                    (in_pool[channel], left[channel]) = (false, true);
                    sim.tell(Fact::Left(sim.ids[channel]))
                }
                Event::Join(channel) => {
                    // The old one goes for good, and its successor has another name.
                    let mut told = sim.tell(Fact::Gone(sim.ids[channel]));
                    sim.ids[channel] = ChannelId::next();
                    (check.out[channel], check.shut[channel]) = (false, false);
                    (in_pool[channel], left[channel]) = (true, false);
                    told.extend(sim.tell(Fact::Joined(sim.ids[channel])));
                    told
                }
                Event::Ended(channel, open) if check.shut[channel] => {
                    sim.tell(Fact::Ended(sim.ids[channel], open))
                }
                Event::Ended(..) => Vec::new(),
                Event::Late => sim.tell(Fact::LocalStall(SECOND)),
            };
            if sim.policy.next_deadline().is_some_and(|next| next <= sim.now) {
                actions.extend(sim.tell(Fact::Deadline));
            }
            let after = sim.policy.share();
            for action in actions {
                if let Action::Quarantine(id, share) = action {
                    let channel = sim.ids.iter().position(|it| *it == id).unwrap();
                    prop_assert!(!in_pool[channel] || share.silent <= share.pool / 2, "{share:?} {before:?}");
                }
                check.action(&sim, action);
            }
            prop_assert!(after.silent <= after.pool);
            let next = sim.policy.next_deadline();
            prop_assert!(next.is_none_or(|next| next > sim.now), "a deadline in the past");
        }
    }
}
