//! What the policy was told and what it decided, of late: to be read, and to be gone through again.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{Action, Fact, StallPolicy};

/// What an entry of a [`Ring`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The policy was told this.
    Fact(Fact),
    /// The policy decided this.
    Decision(Action),
}

/// One entry of a [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, counted from when the layer was made.
    pub at: Duration,
    /// What.
    pub note: Note,
}

/// The last facts and decisions of a layer, as plain data: each suspicion, probe, quarantine (also one
/// that was spared, and why), restore and replacement, and what led to it.
///
/// It has a fixed size; when it is full the older half goes. As it keeps the policy's state from before
/// its first entry, the policy can be told the same facts again: see [`Ring::replay`].
#[derive(Clone, Debug)]
pub struct Ring {
    size: usize,
    start: Instant,
    older: Half,
    newer: Half,
}

#[derive(Clone, Debug)]
struct Half {
    /// The policy before the first entry.
    before: StallPolicy,
    entries: Vec<Entry>,
}

impl Half {
    fn new(before: StallPolicy, size: usize) -> Self {
        Self {
            before,
            entries: Vec::with_capacity(size),
        }
    }
}

impl Ring {
    pub(crate) fn new(policy: &StallPolicy, size: usize, start: Instant) -> Self {
        let half = Half::new(policy.clone(), 0);
        Self {
            size,
            start,
            older: half.clone(),
            newer: half,
        }
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.older.entries.iter().chain(&self.newer.entries)
    }

    /// The decisions among them.
    pub fn decisions(&self) -> impl Iterator<Item = (Duration, Action)> {
        self.entries().filter_map(|entry| match entry.note {
            Note::Decision(action) => Some((entry.at, action)),
            Note::Fact(_) => None,
        })
    }

    /// What the policy decides when it is told the same facts at the same times. It is what
    /// [`decisions`](Self::decisions) says; if it ever isn't, the policy has changed, or has a fault.
    #[must_use]
    pub fn replay(&self) -> Vec<(Duration, Action)> {
        let mut policy = self.older.before.clone();
        let mut decided = Vec::new();
        for entry in self.entries() {
            let Note::Fact(fact) = entry.note else {
                continue;
            };
            policy.on(fact, self.start + entry.at);
            decided.extend(
                std::iter::from_fn(|| policy.next_action()).map(|action| (entry.at, action)),
            );
        }
        decided
    }

    /// `policy` as it is before `facts` and what follows from it, which belong into one half.
    fn make_room(&mut self, policy: &StallPolicy) {
        if self.newer.entries.len() >= self.size / 2 {
            let fresh = Half::new(policy.clone(), self.size / 2);
            self.older = std::mem::replace(&mut self.newer, fresh);
        }
    }

    fn push(&mut self, note: Note, now: Instant) {
        let at = now.saturating_duration_since(self.start);
        self.newer.entries.push(Entry { at, note });
    }
}

impl fmt::Display for Ring {
    /// One line for each entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { at, note } in self.entries() {
            let at = at.as_secs_f64();
            match note {
                Note::Fact(fact) => writeln!(f, "{at:12.3} told    {fact:?}")?,
                Note::Decision(action) => writeln!(f, "{at:12.3} decided {action:?}")?,
            }
        }
        Ok(())
    }
}

/// A policy with its ring.
#[derive(Debug)]
pub(crate) struct Recorder {
    policy: StallPolicy,
    ring: Ring,
}

impl Recorder {
    pub(crate) fn new(policy: StallPolicy, size: usize, start: Instant) -> Self {
        let ring = Ring::new(&policy, size, start);
        Self { policy, ring }
    }

    pub(crate) fn policy(&self) -> &StallPolicy {
        &self.policy
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Tells the policy, and notes that and what it decides.
    pub(crate) fn tell(&mut self, fact: Fact, now: Instant) -> Vec<Action> {
        self.ring.make_room(&self.policy);
        self.ring.push(Note::Fact(fact), now);
        self.policy.on(fact, now);
        let actions: Vec<Action> = std::iter::from_fn(|| self.policy.next_action()).collect();
        for action in &actions {
            self.ring.push(Note::Decision(*action), now);
        }
        actions
    }
}
