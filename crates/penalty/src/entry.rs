//! One channel as the policy knows it, and what its meter has to show.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::PenaltyConfig;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) usable: bool,
    pub(crate) window: Option<Window>,
    /// When the places end that failed requests keep in the count, soonest first.
    pub(crate) occupied: VecDeque<Instant>,
    pub(crate) trial: bool,
    /// What the meter has to show, as of the last time that was told.
    pub(crate) due: Shown,
    pub(crate) shown: Shown,
    pub(crate) dirty: bool,
}

#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) failures: u32,
    pub(crate) until: Instant,
    pub(crate) charge: u32,
    pub(crate) next_trial: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) reserve: bool,
    pub(crate) charge: u32,
}

impl Entry {
    pub(crate) fn new() -> Self {
        Self {
            usable: true,
            window: None,
            occupied: VecDeque::new(),
            trial: false,
            due: Shown::default(),
            shown: Shown::default(),
            dirty: false,
        }
    }

    /// What the meter has to show now, and when that changes by itself before the window ends.
    pub(crate) fn judge(
        &self,
        config: &PenaltyConfig,
        reserve_on: bool,
        now: Instant,
    ) -> (Shown, Option<Instant>) {
        let (charge, falls) = match &self.window {
            // A trial must find the channel as cheap as it is.
            Some(_) if reserve_on => {
                let shown = Shown {
                    reserve: true,
                    charge: 0,
                };
                return (shown, None);
            }
            Some(window) if config.linear_decay => window.decayed(config.window, now),
            Some(window) => (window.charge, None),
            None => (0, None),
        };
        let occupied = u32::try_from(self.occupied.len()).unwrap_or(u32::MAX);
        let shown = Shown {
            reserve: false,
            charge: charge.saturating_add(occupied),
        };
        let changes = [falls, self.occupied.front().copied()];
        (shown, changes.into_iter().flatten().min())
    }
}

impl Window {
    /// The charge on its way down to 0 at the window's end, rounded up, and when it is one less.
    fn decayed(&self, whole: Duration, now: Instant) -> (u32, Option<Instant>) {
        let left = self.until.saturating_duration_since(now);
        let share = (left.as_secs_f64() / whole.as_secs_f64()).min(1.0);
        let charge = (f64::from(self.charge) * share).ceil() as u32;
        let less = f64::from(charge.saturating_sub(1)) / f64::from(self.charge.max(1));
        // A millisecond later, the timer's own step, so that the rounding can't say the same again.
        let falls = self.until - whole.mul_f64(less) + Duration::from_millis(1);
        (charge, (charge > 1).then_some(falls))
    }
}

/// The charge after so many failures within a window.
pub(crate) fn charge(config: &PenaltyConfig, failures: u32) -> u32 {
    let weight = config.base_charge();
    let more = config.step.saturating_mul(failures.saturating_sub(1));
    let most = config.cap.max(weight);
    weight.saturating_add(more).min(most)
}
