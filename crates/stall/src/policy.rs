//! Which channels are suspect, in quarantine, and to be replaced.
//!
//! It is told what was seen and the time, and says what to do. It sends nothing and ends nothing itself;
//! and only a probe without an answer puts a channel in quarantine, never silence alone.
//!
//! ```text
//!              silent            no answer
//!   serving ───────────► suspect ─────────► quarantined ◄──┐ no answer
//!      ▲                 │     │               │   └───────┘
//!      ├── an answer ────┘     │ spared        │
//!      ├── something came ── unanswered        │
//!      └────────────────────── an answer ──────┘
//! ```
//!
//! A probe that wasn't attempted changes nothing; nor does one without an answer during which this
//! process stood still.

mod replace;
mod verdict;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use steadfast_core::ChannelId;

use crate::{
    Action, Fact, Look, Share, Spared, StallConfig,
    entry::{Entry, State, Step},
};

/// How a channel stands with its [`StallPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// In service.
    Serving,
    /// In service, held in reserve: its probe is out.
    Suspect,
    /// In service: its probe went unanswered, but it was spared.
    Unanswered,
    /// Out of service until it answers.
    Quarantined,
    /// Out of service for good.
    GivenUp,
}

/// The decisions of stall detection, without clocks, meters and locks: for the layer, for simulations,
/// and to replay what happened.
///
/// Facts go in with the time, and then [`StallPolicy::next_action`] says until it is `None` what is to be
/// done. When [`StallPolicy::next_deadline`] has come, tell it [`Fact::Deadline`].
#[derive(Clone, Debug)]
pub struct StallPolicy {
    config: Arc<StallConfig>,
    seed: u64,
    channels: BTreeMap<ChannelId, Entry>,
    actions: VecDeque<Action>,
    last_replacement: Option<Instant>,
    deadline: Option<Instant>,
}

impl StallPolicy {
    /// A policy without channels, whose jitter is drawn from `seed`. Settings that are out of range are
    /// used as they are: it is the layer that validates them.
    #[must_use]
    pub fn new(config: Arc<StallConfig>, seed: u64) -> Self {
        Self {
            config,
            seed,
            channels: BTreeMap::new(),
            actions: VecDeque::new(),
            last_replacement: None,
            deadline: None,
        }
    }

    /// Tells it one fact. A channel that it doesn't know is passed over.
    pub fn on(&mut self, fact: Fact, now: Instant) {
        match fact {
            Fact::Joined(id) => {
                let entry = Entry::new(&self.config, now);
                self.channels.entry(id).or_insert(entry);
            }
            Fact::InPool(id, in_pool) => self.edit(id, |entry| entry.in_pool = in_pool),
            Fact::Left(id) => self.edit(id, |entry| entry.left = true),
            Fact::Gone(id) => drop(self.channels.remove(&id)),
            Fact::Looked(id, look) if !self.is_news(id, look, now) => return,
            Fact::Looked(id, look) => self.looked(id, look, now),
            Fact::ProbeEnded(id, end) => self.probe_ended(id, end, now),
            Fact::Ended(id, open) => self.ended(id, open, now),
            Fact::LocalStall(late) => self.stood_still(late, now),
            Fact::Deadline => self.probe_again(now),
        }
        self.settle(now);
    }

    /// Whether a look would change anything. If not, it needn't be told.
    #[must_use]
    pub fn is_news(&self, id: ChannelId, look: Look, now: Instant) -> bool {
        let entry = self.channels.get(&id);
        entry.is_some_and(|entry| entry.step(&self.config, look, now).is_some())
    }

    /// When it has to be told [`Fact::Deadline`]; none while no channel is in quarantine.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What is to be done, or `None` when all is.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// How each channel stands.
    pub fn conditions(&self) -> impl Iterator<Item = (ChannelId, Condition)> {
        let channels = self.channels.iter();
        channels.map(|(id, entry)| (*id, entry.condition()))
    }

    /// How a channel stands, if it is known.
    #[must_use]
    pub fn condition(&self, id: ChannelId) -> Option<Condition> {
        self.channels.get(&id).map(Entry::condition)
    }

    /// How many quarantines of a channel began within the window.
    #[must_use]
    pub fn strikes(&self, id: ChannelId) -> usize {
        self.channels
            .get(&id)
            .map_or(0, |entry| entry.strikes.len())
    }

    /// Whether any channel is other than simply in service, so that it has to be told the time.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let calm =
            |entry: &Entry| matches!(entry.condition(), Condition::Serving | Condition::GivenUp);
        !self.channels.values().all(calm)
    }

    /// How much of the pool is silent: channels that drain, connect or have left aren't counted.
    #[must_use]
    pub fn share(&self) -> Share {
        let members = self.channels.values().filter(|entry| entry.is_member());
        let silent = members.clone().filter(|entry| entry.is_silent());
        Share {
            silent: silent.count(),
            pool: members.count(),
        }
    }

    fn edit(&mut self, id: ChannelId, edit: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.channels.get_mut(&id) {
            edit(entry);
        }
    }

    fn looked(&mut self, id: ChannelId, look: Look, now: Instant) {
        let share = self.share();
        let Some(entry) = self.channels.get_mut(&id) else {
            return;
        };
        match entry.step(&self.config, look, now) {
            Some(Step::Suspect) if self.config.probes => {
                entry.state = State::Suspect;
                entry.spoiled = false;
                entry.probes += 1;
                self.actions.push_back(Action::Suspect(id));
            }
            Some(Step::Suspect) => {
                entry.heard = now;
                let spare = Action::Spare(id, Spared::ProbesOff, share);
                self.actions.push_back(spare);
            }
            Some(Step::Clear) => {
                entry.unanswered = None;
                entry.delay = self.config.reprobe;
            }
            None => {}
        }
    }

    fn stood_still(&mut self, late: Duration, now: Instant) {
        for entry in self.channels.values_mut() {
            entry.heard = now;
            entry.spoiled = true;
        }
        self.actions.push_back(Action::LocalStall(late));
    }

    fn probe_again(&mut self, now: Instant) {
        for (id, entry) in &mut self.channels {
            if let State::Quarantined(quarantine) = &mut entry.state
                && !entry.left
                && quarantine.next.is_some_and(|next| next <= now)
            {
                quarantine.next = None;
                entry.spoiled = false;
                entry.probes += 1;
                self.actions.push_back(Action::Probe(*id));
            }
        }
    }
}
