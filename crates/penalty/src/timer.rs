//! The task that ends windows and lets channels in reserve have their trial.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use tokio::{
    sync::Notify,
    time::{Instant as TimerInstant, timeout_at},
};

use crate::fleet::Fleet;

/// What the task holds while it sleeps: nothing that keeps the fleet.
pub(crate) struct Timer {
    fleet: Weak<Fleet>,
    bell: Arc<Notify>,
    number: u64,
}

impl Timer {
    pub(crate) fn new(fleet: &Arc<Fleet>, bell: &Arc<Notify>, number: u64) -> Self {
        Self {
            fleet: Arc::downgrade(fleet),
            bell: Arc::clone(bell),
            number,
        }
    }

    /// Runs until no channel is penalised, or there is no fleet.
    pub(crate) async fn run(self) {
        while let Some(next) = self.turn() {
            // Rung or not, it looks at the policy again.
            let _ = timeout_at(TimerInstant::from_std(next), self.bell.notified()).await;
        }
    }

    fn turn(&self) -> Option<Instant> {
        self.fleet.upgrade()?.turn()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // Its runtime may end before the fleet does; then the next failure starts another one.
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.timer_gone(self.number);
        }
    }
}
