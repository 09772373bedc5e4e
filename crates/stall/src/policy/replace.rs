//! Which channel is to be replaced, and when the policy has to look again.

use std::time::Instant;

use steadfast_core::ChannelId;

use super::StallPolicy;
use crate::{
    Action, Cause,
    entry::{Entry, State},
};

impl StallPolicy {
    /// Forgets old strikes, has a channel replaced if one may be, and notes when to look again.
    pub(super) fn settle(&mut self, now: Instant) {
        let window = self.config.strike_window;
        for entry in self.channels.values_mut() {
            let old = |at: &Instant| now.saturating_duration_since(*at) >= window;
            let gone = entry.strikes.iter().take_while(|at| old(at)).count();
            entry.strikes.drain(..gone);
        }
        let free = self
            .last_replacement
            .map(|at| at + self.config.replace_every);
        if free.is_none_or(|free| free <= now) && self.stands_out() {
            self.replace(now);
        }
        self.deadline = self.find_deadline(now);
    }

    /// Whether the pool's median channel had no quarantine lately, so that one that had is to blame.
    fn stands_out(&self) -> bool {
        let members = self.channels.values().filter(|entry| entry.is_member());
        let mut strikes: Vec<usize> = members.map(|entry| entry.strikes.len()).collect();
        strikes.sort_unstable();
        let median = strikes.get(strikes.len().saturating_sub(1) / 2);
        self.config.alone || median == Some(&0)
    }

    fn replace(&mut self, now: Instant) {
        let due =
            |(id, entry): (&ChannelId, &Entry)| -> Option<(Option<Instant>, ChannelId, Cause)> {
                let (at, cause) = entry.replaceable(&self.config)?;
                (at <= now).then_some((entry.asked, *id, cause))
            };
        // The one whose turn is longest ago, so that one that can't be replaced doesn't keep the others.
        let next = self.channels.iter().filter_map(due);
        if let Some((_, id, cause)) = next.min_by_key(|(asked, id, _)| (*asked, *id)) {
            self.last_replacement = Some(now);
            self.edit(id, |entry| entry.asked = Some(now));
            self.actions.push_back(Action::Replace(id, cause));
        }
    }

    fn find_deadline(&self, now: Instant) -> Option<Instant> {
        let free = self
            .last_replacement
            .map(|at| at + self.config.replace_every);
        let entries = self.channels.values();
        let probes = entries
            .clone()
            .filter(|entry| !entry.left)
            .filter_map(|entry| match &entry.state {
                State::Quarantined(quarantine) => quarantine.next,
                _ => None,
            });
        let replaced = entries.clone().filter_map(|entry| {
            let (at, _) = entry.replaceable(&self.config)?;
            Some(free.map_or(at, |free| free.max(at)))
        });
        // One that is due already doesn't stand out: it may, when the others' strikes are forgotten.
        let replaced: Vec<Instant> = replaced.collect();
        let forgotten = entries
            .filter(|_| replaced.iter().any(|at| *at <= now))
            .filter_map(|entry| Some(*entry.strikes.front()? + self.config.strike_window));
        let later = replaced.iter().copied().filter(|at| *at > now);
        probes.chain(later).chain(forgotten).min()
    }
}
