//! What channels the pool should have, and what to do about it.
//!
//! A plain state machine: facts go in with the time, actions come out. Each *slot* is one channel's
//! worth of the pool's size:
//!
//! ```text
//!            dialled                    condemned (lived, or answered)
//!  dialling ─────────► live ─────────────────────────────► dialling
//!     │  ▲              │ aged                 condemned at once
//!     │  │ time         ▼                              │
//!     │  └────────── waiting ◄─────────────────────────┘
//!     └─ failed ───────►            (a live slot can dial its replacement meanwhile)
//! ```

mod growth;
mod slots;

use std::{collections::VecDeque, time::Duration};

use steadfast_core::{ChannelId, Place, Standing};
use tokio::time::Instant;

use crate::{BalanceConfig, sizer::Sizer};

/// A channel that is lost sooner than this after it was ready, and without having answered a call, counts
/// as a failed dial.
const SETTLED: Duration = Duration::from_secs(1);

/// What the pool is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Dial this place for a channel with this id.
    Dial { id: ChannelId, place: Place },
    /// Give up the dial for this channel.
    Abort { id: ChannelId },
    /// Give this channel no new request, and let it go when its last response has ended.
    Drain { id: ChannelId, why: Why },
}

/// Why a channel leaves the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Condemned,
    Replaced,
    Shrunk,
    PlaceRemoved,
    Closed,
}

/// What a channel's meter says, for the choice of which to remove.
pub(crate) type Fact = (u32, Standing);

#[derive(Debug)]
struct Slot {
    place: Place,
    live: Option<Live>,
    dial: Dial,
    /// Failed dials in a row; a channel that was lost at once is one.
    failures: u32,
    /// Whether the last result of a dial was a failure.
    failed_last: bool,
    /// Whether a layer asked for the dial: it asks again if that fails.
    asked: bool,
}

#[derive(Clone, Debug)]
struct Live {
    id: ChannelId,
    /// Another than the slot's while the channel is being moved.
    place: Place,
    since: Instant,
    expires: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Dial {
    Idle,
    Running(ChannelId),
    Waiting(Instant),
}

#[derive(Debug)]
pub(crate) struct Plan {
    config: BalanceConfig,
    sizer: Sizer,
    places: Vec<Place>,
    slots: Vec<Slot>,
    /// How many slots it wants; fewer are there only while it has no place.
    wanted: usize,
    /// No fewer while a `warm` waits for them.
    floor: usize,
    next_interval: Instant,
    /// When the pool may grow on demand again.
    next_growth: Instant,
    random: fastrand::Rng,
    actions: VecDeque<Action>,
}

impl Plan {
    pub(crate) fn new(config: &BalanceConfig, seed: u64, now: Instant) -> Self {
        Self {
            config: config.clone(),
            sizer: Sizer::new(config),
            places: Vec::new(),
            slots: Vec::new(),
            wanted: config.initial,
            floor: 0,
            next_interval: now + config.resize_interval,
            next_growth: now,
            random: fastrand::Rng::with_seed(seed),
            actions: VecDeque::new(),
        }
    }

    /// What to do next, until there is nothing.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Plan::on_deadline`] has something to do next. Intervals are apart.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let waits = self.slots.iter().filter_map(|slot| match slot.dial {
            Dial::Waiting(until) => Some(until),
            _ => None,
        });
        waits.min()
    }

    /// When [`Plan::on_interval`] is due.
    pub(crate) fn next_interval(&self) -> Instant {
        self.next_interval
    }

    /// Channels that the pool counts in its size.
    pub(crate) fn size(&self) -> usize {
        self.slots.len()
    }

    /// Whether a dial is under way whose slot's last dial didn't fail: a call may wait for it.
    pub(crate) fn is_hopeful(&self) -> bool {
        let hopeful = |slot: &Slot| matches!(slot.dial, Dial::Running(_)) && !slot.failed_last;
        self.slots.iter().any(hopeful)
    }

    /// The places of the slots that have no live channel.
    pub(crate) fn connecting(&self) -> impl Iterator<Item = (&Place, u32)> {
        let idle = self.slots.iter().filter(|slot| slot.live.is_none());
        idle.map(|slot| (&slot.place, slot.failures))
    }

    /// The pool's places are these now.
    pub(crate) fn on_places(&mut self, places: Vec<Place>) {
        self.places.clear();
        for place in places {
            if !self.places.contains(&place) {
                self.places.push(place);
            }
        }
        for slot in &mut self.slots {
            // A channel that was being moved to a place that is gone now stays where it is.
            if !self.places.contains(&slot.place)
                && let Some(live) = &slot.live
                && self.places.contains(&live.place)
            {
                slot.place = live.place.clone();
                if let Dial::Running(id) = std::mem::replace(&mut slot.dial, Dial::Idle) {
                    self.actions.push_back(Action::Abort { id });
                }
            }
        }
        let (kept, removed): (Vec<_>, _) = std::mem::take(&mut self.slots)
            .into_iter()
            .partition(|slot| self.places.contains(&slot.place));
        self.slots = kept;
        for slot in &mut self.slots {
            // A channel that was being moved away from a place that is gone now.
            if let Some(live) = slot.live.take_if(|live| !self.places.contains(&live.place)) {
                let id = live.id;
                let why = Why::PlaceRemoved;
                self.actions.push_back(Action::Drain { id, why });
            }
        }
        removed
            .into_iter()
            .for_each(|slot| self.discard(slot, Why::PlaceRemoved));
        for place in self.places.clone() {
            if !self.slots.iter().any(|slot| slot.place == place) {
                self.add_slot(place);
            }
        }
        self.fill();
    }

    /// At least this many channels are asked for until it is told another number; the maximum holds.
    pub(crate) fn on_warm(&mut self, channels: usize) {
        self.floor = channels.min(self.config.max);
        if self.floor > self.wanted {
            self.wanted = self.floor;
            self.fill();
        }
    }

    /// A dial led to a ready channel. Says whether the pool takes it.
    pub(crate) fn on_dialled(&mut self, id: ChannelId, now: Instant) -> bool {
        let expires = self.config.max_age.map(|age| {
            let jitter = self.config.age_jitter.mul_f64(self.random.f64());
            now + age + jitter
        });
        let Some(slot) = self.dialling(id) else {
            return false;
        };
        slot.dial = Dial::Idle;
        slot.failed_last = false;
        slot.asked = false;
        let place = slot.place.clone();
        let live = Live {
            id,
            place,
            since: now,
            expires,
        };
        let old = slot.live.replace(live);
        if let Some(old) = old {
            self.drain(old.id, Why::Replaced);
        }
        true
    }

    /// A dial failed. Says whether it was for the replacement of a channel, which stays.
    pub(crate) fn on_dial_failed(&mut self, id: ChannelId, now: Instant) -> bool {
        let random = self.random.f64();
        let Some(slot) = self.dialling(id) else {
            return false;
        };
        if std::mem::take(&mut slot.asked) && slot.live.is_some() {
            slot.dial = Dial::Idle;
        } else {
            slot.fail(random, now);
        }
        slot.live.is_some()
    }

    /// A layer asks for another channel in this one's place. It is dialled once, unless one is already;
    /// if that fails this one stays, and the layer may ask again. Says whether a dial began.
    pub(crate) fn on_replacement_asked(&mut self, id: ChannelId) -> bool {
        let is_it = |slot: &&mut Slot| slot.live.as_ref().is_some_and(|live| live.id == id);
        let idle = |slot: &&mut Slot| slot.dial == Dial::Idle;
        let Some(slot) = self.slots.iter_mut().filter(is_it).find(idle) else {
            return false;
        };
        slot.asked = true;
        slot.dial_now(&mut self.actions);
        true
    }

    /// A channel can't be used any more. `answered` says whether it had served a call by then.
    pub(crate) fn on_condemned(&mut self, id: ChannelId, answered: bool, now: Instant) {
        let random = self.random.f64();
        let mut slots = self.slots.iter_mut();
        let is_it = |slot: &&mut Slot| slot.live.as_ref().is_some_and(|live| live.id == id);
        let Some(slot) = slots.find(is_it) else {
            return;
        };
        let lived = slot
            .live
            .take()
            .map_or(Duration::ZERO, |live| now - live.since);
        if slot.dial == Dial::Idle {
            if lived < SETTLED && !answered {
                slot.fail(random, now);
            } else {
                slot.failures = 0;
                slot.dial_now(&mut self.actions);
            }
        }
        self.drain(id, Why::Condemned);
    }

    /// The time that [`Plan::next_deadline`] named has come.
    pub(crate) fn on_deadline(&mut self, now: Instant) {
        for slot in &mut self.slots {
            if matches!(slot.dial, Dial::Waiting(until) if until <= now) {
                slot.dial_now(&mut self.actions);
            }
        }
    }

    /// An interval is over, with this peak of requests in flight. Says by how much the size changed.
    pub(crate) fn on_interval(
        &mut self,
        peak: u64,
        fact: impl Fn(ChannelId) -> Option<Fact>,
        now: Instant,
    ) -> isize {
        self.next_interval = now + self.config.resize_interval;
        if self.places.is_empty() {
            // Nothing can be made or removed; the size is kept for when a place comes.
            return 0;
        }
        let before = self.slots.len();
        let change = self.sizer.change(before, peak);
        self.wanted = before.saturating_add_signed(change).max(self.floor);
        self.shrink(before.saturating_sub(self.wanted), fact);
        self.fill();
        let moved = self.even_out(now);
        self.refresh(self.config.refresh_step.saturating_sub(moved), now);
        // Not `change`: the last channel of a place stays.
        self.slots.len().cast_signed() - before.cast_signed()
    }

    /// Ends everything: no slot is left.
    pub(crate) fn on_close(&mut self) {
        self.places.clear();
        for slot in std::mem::take(&mut self.slots) {
            self.discard(slot, Why::Closed);
        }
    }

    fn dialling(&mut self, id: ChannelId) -> Option<&mut Slot> {
        self.slots
            .iter_mut()
            .find(|slot| slot.dial == Dial::Running(id))
    }

    fn discard(&mut self, slot: Slot, why: Why) {
        if let Dial::Running(id) = slot.dial {
            self.actions.push_back(Action::Abort { id });
        }
        if let Some(live) = slot.live {
            self.drain(live.id, why);
        }
    }

    fn drain(&mut self, id: ChannelId, why: Why) {
        self.actions.push_back(Action::Drain { id, why });
    }
}

#[cfg(test)]
mod tests;
