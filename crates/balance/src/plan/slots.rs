//! Which slots come and go, and where: places evenly, the least useful first to go.

use std::collections::{HashMap, VecDeque};

use steadfast_core::{ChannelId, Place, Standing};
use tokio::time::Instant;

use super::{Action, Dial, Fact, Plan, Slot, Why};
use crate::backoff::backoff;

impl Plan {
    pub(super) fn fill(&mut self) {
        while self.slots.len() < self.wanted {
            let Some(place) = self.emptiest() else {
                return;
            };
            self.add_slot(place);
        }
    }

    /// The place with the fewest slots; the first of equals.
    pub(super) fn emptiest(&self) -> Option<Place> {
        self.places
            .iter()
            .min_by_key(|place| self.slots_of(place))
            .cloned()
    }

    pub(super) fn slots_of(&self, place: &Place) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.place == *place)
            .count()
    }

    pub(super) fn add_slot(&mut self, place: Place) {
        let mut slot = Slot {
            place,
            live: None,
            dial: Dial::Idle,
            failures: 0,
            failed_last: false,
            asked: false,
        };
        slot.dial_now(&mut self.actions);
        self.slots.push(slot);
    }

    /// Removes slots: those without a channel first (theirs was condemned or never came), then
    /// quarantined ones, then those with the fewest in flight, then the youngest. The last one of a
    /// place stays.
    pub(super) fn shrink(&mut self, count: usize, fact: impl Fn(ChannelId) -> Option<Fact>) {
        for _ in 0..count {
            let worth = |slot: &Slot| {
                let live = slot.live.as_ref()?;
                let (in_flight, standing) = fact(live.id).unwrap_or_default();
                let sound = standing < Standing::Shut;
                Some((sound, in_flight, std::cmp::Reverse(live.since)))
            };
            let mut of: HashMap<&Place, usize> = HashMap::new();
            for slot in &self.slots {
                *of.entry(&slot.place).or_default() += 1;
            }
            let spare = |index: &usize| of[&self.slots[*index].place] > 1;
            let candidates = (0..self.slots.len()).filter(spare);
            let Some(index) = candidates.min_by_key(|index| worth(&self.slots[*index])) else {
                return;
            };
            let slot = self.slots.remove(index);
            self.discard(slot, Why::Shrunk);
        }
    }

    /// Moves a channel from the fullest place to the emptiest one, if they differ by two or more: the
    /// new one is dialled first. Says how many it moved.
    pub(super) fn even_out(&mut self, now: Instant) -> usize {
        let Some(emptiest) = self.emptiest() else {
            return 0;
        };
        let fullest = self.places.iter().max_by_key(|place| self.slots_of(place));
        let uneven = fullest.filter(|full| self.slots_of(full) >= self.slots_of(&emptiest) + 2);
        let Some(fullest) = uneven.cloned() else {
            return 0;
        };
        let settled = |slot: &&mut Slot| slot.place == fullest && slot.dial == Dial::Idle;
        let Some(slot) = self.slots.iter_mut().find(settled) else {
            return 0;
        };
        slot.place = emptiest;
        slot.dial = Dial::Waiting(now);
        self.on_deadline(now);
        1
    }

    /// Dials replacements for the oldest channels that have reached their age.
    pub(super) fn refresh(&mut self, count: usize, now: Instant) {
        for _ in 0..count {
            let due = |slot: &&mut Slot| {
                let expired = slot
                    .live
                    .as_ref()
                    .and_then(|live| live.expires)
                    .is_some_and(|at| at <= now);
                expired && slot.dial == Dial::Idle
            };
            let age = |slot: &&mut Slot| slot.live.as_ref().map(|live| live.since);
            match self.slots.iter_mut().filter(due).min_by_key(age) {
                Some(slot) => slot.dial_now(&mut self.actions),
                None => return,
            }
        }
    }
}

impl Slot {
    pub(super) fn dial_now(&mut self, actions: &mut VecDeque<Action>) {
        let id = ChannelId::next();
        self.dial = Dial::Running(id);
        let place = self.place.clone();
        actions.push_back(Action::Dial { id, place });
    }

    pub(super) fn fail(&mut self, random: f64, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.failed_last = true;
        self.dial = Dial::Waiting(now + backoff(self.failures, random));
    }
}
