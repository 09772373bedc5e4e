//! When the keeper looks at the pool's size, and what it goes by.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::Keeper;
use crate::shared::Shared;

impl<S: Clone + Send + Sync + 'static> Keeper<S> {
    /// Grows when a request met a channel at its maximum, or calls wait for a free stream.
    pub(super) fn grow_on_demand(&mut self, shared: &Shared<S>, now: Instant) {
        let signals = Arc::clone(&self.signals);
        if self.pausing && self.plan.next_growth() <= now {
            // Pressure from here on counts, not what there was during the pause.
            self.pausing = false;
            signals.pressed.store(false, Ordering::Relaxed);
        }
        if !self.pausing && signals.pressed.load(Ordering::Relaxed) {
            self.pausing = true;
            let before = self.plan.size();
            self.plan.on_pressed(now);
            self.resized(shared, before, "demand");
        }
        if signals.starved.swap(false, Ordering::Relaxed) {
            let waiting = signals.waiting.load(Ordering::Relaxed);
            let before = self.plan.size();
            self.plan.on_starved(waiting, self.room_per_channel(shared));
            self.resized(shared, before, "streams");
        }
    }

    fn resized(&self, shared: &Shared<S>, before: usize, reason: &'static str) {
        let after = self.plan.size();
        if after != before {
            tracing::info!(pool = self.pool, before, after, reason, "pool resized");
            let change = after.cast_signed() - before.cast_signed();
            shared.metrics().resized(change, reason);
        }
    }

    /// Requests that a new channel will take: as the best of those that are known, else as assumed.
    fn room_per_channel(&self, shared: &Shared<S>) -> u32 {
        let limits = self
            .members
            .iter()
            .filter_map(|m| m.channel.meter.read().stream_limit());
        let limit = limits.max().unwrap_or(shared.config.assumed_streams);
        limit.saturating_sub(1)
    }

    pub(super) fn on_interval(&mut self, shared: &Shared<S>, now: Instant) {
        let open: u64 = self
            .members
            .iter()
            .map(|m| u64::from(m.channel.meter.read().in_flight()))
            .sum();
        let peak = shared.peak.swap(open, Ordering::Relaxed).max(open);
        let members = &self.members;
        let fact = |id| {
            let member = members.iter().find(|member| member.channel.id == id)?;
            let reading = member.channel.meter.read();
            Some((reading.in_flight(), reading.standing()))
        };
        let before = self.plan.size();
        self.plan.on_interval(peak, fact, now);
        self.resized(shared, before, "load");
        self.dirty = true;
    }
}
