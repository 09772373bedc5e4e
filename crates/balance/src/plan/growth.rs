//! Growth between the intervals: when calls meet channels at their maximum, or at their stream limit.

use std::time::Duration;

use tokio::time::Instant;

use super::Plan;

/// Growth on demand happens at most once in this time, so that new channels show their effect first.
const GROWTH_PAUSE: Duration = Duration::from_secs(10);

impl Plan {
    /// A request went to a channel that was at its maximum: grows by 30 %, at least 2, if that is allowed
    /// again. Says by how much.
    pub(crate) fn on_pressed(&mut self, now: Instant) -> usize {
        if now < self.next_growth {
            return 0;
        }
        self.next_growth = now + GROWTH_PAUSE;
        let share = (self.slots.len() * 3).div_ceil(10);
        self.grow(share.max(2))
    }

    /// When [`Plan::on_pressed`] may do something again.
    pub(crate) fn next_growth(&self) -> Instant {
        self.next_growth
    }

    /// Calls wait because no channel has a free stream, of which a channel has `room`: grows by what
    /// they need beyond the dials under way, at once. Says by how much.
    pub(crate) fn on_starved(&mut self, waiting: usize, room: u32) -> usize {
        let needed = waiting.div_ceil(room.max(1) as usize);
        let dialling = self.slots.iter().filter(|slot| slot.live.is_none()).count();
        self.grow(needed.saturating_sub(dialling))
    }

    fn grow(&mut self, channels: usize) -> usize {
        let before = self.slots.len();
        // Never fewer than before: without places there are no slots, but the size is kept.
        self.wanted = self.wanted.max((before + channels).min(self.config.max));
        self.fill();
        self.slots.len() - before
    }
}
