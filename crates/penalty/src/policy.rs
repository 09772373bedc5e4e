//! Which channels are held back, how much and until when.
//!
//! It is told the failures, the time, and which channels could take requests at all, and says what each
//! channel's meter has to show. Only time ends a window: requests that succeed tell it no more than how
//! long they take.
//!
//! ```text
//!            failure                    more than half of the pool fails
//!   free ───────────────► in reserve ◄───────────────────────────────────► open, charged
//!    ▲                        │                  (flat mode: always)             │
//!    └──────── window over ───┴───────────────────── window over ────────────────┘
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use crate::{
    Mode, PenaltyConfig,
    entry::{Entry, Window, charge},
    typical::Typical,
};

/// One channel's name within a [`PenaltyPolicy`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u64);

/// What the meter of a channel has to show from now on. What isn't there stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Action {
    /// The channel.
    pub member: Member,
    /// Whether it is in reserve.
    pub reserve: Option<bool>,
    /// How many requests busier it counts.
    pub charge: Option<u32>,
    /// Whether it gets one request on trial.
    pub trial: bool,
    /// Whether it has left; then this is its last action.
    pub gone: bool,
}

/// A channel in its penalty window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Penalised {
    /// Its failures since the window began.
    pub failures: u32,
    /// When the window ends, if no other failure renews it.
    pub until: Instant,
    /// How many requests busier it counts: 0 in reserve.
    pub charge: u32,
    /// Whether it is in reserve.
    pub reserve: bool,
}

/// The decisions of the penalty layer, without clocks, meters and locks: for the layer, for
/// simulations, and to replay what happened.
///
/// Facts go in with the time, and then [`PenaltyPolicy::next_action`] says until it is `None` what the
/// meters have to show. When [`PenaltyPolicy::next_deadline`] has come, tell it.
#[derive(Debug)]
pub struct PenaltyPolicy {
    config: PenaltyConfig,
    entries: BTreeMap<Member, Entry>,
    typical: Typical,
    left: VecDeque<Member>,
    dirty: VecDeque<Member>,
    next_member: u64,
    next_deadline: Option<Instant>,
}

impl PenaltyPolicy {
    /// A policy without channels. Settings that are out of range are used as they are: it is the layer
    /// that validates them.
    #[must_use]
    pub fn new(config: PenaltyConfig) -> Self {
        Self {
            config,
            entries: BTreeMap::new(),
            typical: Typical::default(),
            left: VecDeque::new(),
            dirty: VecDeque::new(),
            next_member: 0,
            next_deadline: None,
        }
    }

    /// A channel joins the pool.
    pub fn join(&mut self, now: Instant) -> Member {
        let member = Member(self.next_member);
        self.next_member += 1;
        self.entries.insert(member, Entry::new());
        self.settle(now);
        member
    }

    /// A channel leaves the pool; what it still fails counts no more.
    pub fn leave(&mut self, member: Member, now: Instant) {
        if self.entries.remove(&member).is_some() {
            self.left.push_back(member);
            self.settle(now);
        }
    }

    /// Whether a channel could take requests if it weren't for its penalty. One that can't, because it
    /// is in quarantine or to be replaced, is no part of the pool whose half may be in reserve.
    pub fn on_usable(&mut self, member: Member, usable: bool, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&member)
            && entry.usable != usable
        {
            entry.usable = usable;
            self.settle(now);
        }
    }

    /// A channel failed: its window begins, or begins anew.
    pub fn on_failure(&mut self, member: Member, now: Instant) {
        let Some(entry) = self.entries.get_mut(&member) else {
            return;
        };
        let running = entry.window.take().filter(|window| window.until > now);
        let before = running.as_ref().map(|window| window.charge);
        let failures = running
            .as_ref()
            .map_or(0, |window| window.failures)
            .saturating_add(1);
        let ends = now + self.config.window;
        let charge = charge(&self.config, failures);
        entry.window = Some(Window {
            failures,
            // Two threads may bring their failures in the wrong order.
            until: running
                .as_ref()
                .map_or(ends, |window| window.until.max(ends)),
            charge,
            next_trial: running.and_then(|window| window.next_trial),
        });
        let kept = self.typical.median().filter(|_| self.config.occupancy);
        if let Some(kept) = kept {
            let ends = now + kept;
            // The median may have fallen since, and threads bring their failures in any order.
            let after = entry.occupied.partition_point(|known| *known <= ends);
            entry.occupied.insert(after, ends);
        }
        // In a storm of failures most only move the end of a window, which needs nothing else: the old
        // deadline comes early and finds nothing to do.
        if before != Some(charge) || kept.is_some() || self.config.linear_decay {
            self.settle(now);
        }
    }

    /// A request succeeded in this time, its body included. It matters only with
    /// [`PenaltyConfig::occupancy`].
    pub fn on_success(&mut self, time: Duration) {
        self.typical.add(time);
    }

    /// Whether a channel's window runs, as far as it was told the time.
    #[must_use]
    pub fn is_penalised(&self, member: Member) -> bool {
        let entry = self.entries.get(&member);
        entry.is_some_and(|entry| entry.window.is_some())
    }

    /// When it has to be told the time next: never later than that, and earlier does no harm. `None`
    /// while no channel is in its window.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    /// The time has come: windows end, and channels in reserve get their trial.
    pub fn on_deadline(&mut self, now: Instant) {
        self.settle(now);
    }

    /// What a meter has to show, or `None` when all show it.
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(member) = self.left.pop_front() {
            return Some(Action {
                member,
                reserve: Some(false),
                charge: Some(0),
                trial: false,
                gone: true,
            });
        }
        while let Some(member) = self.dirty.pop_front() {
            let Some(entry) = self.entries.get_mut(&member) else {
                continue;
            };
            entry.dirty = false;
            let due = entry.due;
            let action = Action {
                member,
                reserve: (due.reserve != entry.shown.reserve).then_some(due.reserve),
                charge: (due.charge != entry.shown.charge).then_some(due.charge),
                trial: std::mem::take(&mut entry.trial) && due.reserve,
                gone: false,
            };
            entry.shown = due;
            return Some(action);
        }
        None
    }

    /// The channels that are in their window now.
    pub fn penalised(&self) -> impl Iterator<Item = (Member, Penalised)> {
        self.entries.iter().filter_map(|(member, entry)| {
            let window = entry.window.as_ref()?;
            let due = entry.due;
            let penalised = Penalised {
                failures: window.failures,
                until: window.until,
                charge: due.charge,
                reserve: due.reserve,
            };
            Some((*member, penalised))
        })
    }

    /// Whether penalised channels are in reserve: at most half of the usable ones.
    fn reserve_on(&self) -> bool {
        let usable = self.entries.values().filter(|entry| entry.usable);
        let penalised = usable.clone().filter(|entry| entry.window.is_some());
        self.config.mode == Mode::Reserve && penalised.count() <= usable.count() / 2
    }

    /// Ends windows, grants trials, and notes whose meter has to change and when to look again.
    fn settle(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            if entry
                .window
                .as_ref()
                .is_some_and(|window| window.until <= now)
            {
                entry.window = None;
            }
            let over = entry.occupied.partition_point(|ends| *ends <= now);
            entry.occupied.drain(..over);
        }
        let reserve_on = self.reserve_on();
        self.next_deadline = None;
        for (&member, entry) in &mut self.entries {
            let (due, changes) = entry.judge(&self.config, reserve_on, now);
            entry.due = due;
            let deadlines = [changes, self.next_deadline];
            self.next_deadline = deadlines.into_iter().flatten().min();
            if let Some(window) = &mut entry.window {
                window.next_trial = if due.reserve {
                    let due_at = *window.next_trial.get_or_insert(now + self.config.trickle);
                    if due_at <= now {
                        entry.trial = true;
                        Some(now + self.config.trickle)
                    } else {
                        Some(due_at)
                    }
                } else {
                    None
                };
                let deadlines = [Some(window.until), window.next_trial, self.next_deadline];
                self.next_deadline = deadlines.into_iter().flatten().min();
            }
            if !entry.dirty && (due != entry.shown || entry.trial) {
                entry.dirty = true;
                self.dirty.push_back(member);
            }
        }
    }
}
