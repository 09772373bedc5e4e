//! The task that looks at the channels while somebody waits, and whose own lateness shows that this
//! process stood still.

use std::sync::{Arc, Weak};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::fleet::Fleet;

/// What the pacemaker does until it looks again.
pub(crate) enum Next {
    /// Sleeps until then.
    At(Instant),
    /// Rests until it is rung.
    Rest,
    /// Ends: no channel is left.
    End,
}

/// What the task holds while it sleeps: nothing that keeps the fleet.
pub(crate) struct Pacemaker {
    fleet: Weak<Fleet>,
    bell: Arc<Notify>,
    number: u64,
}

impl Pacemaker {
    pub(crate) fn new(fleet: &Arc<Fleet>, bell: &Arc<Notify>, number: u64) -> Self {
        Self {
            fleet: Arc::downgrade(fleet),
            bell: Arc::clone(bell),
            number,
        }
    }

    /// Runs until no channel is left.
    pub(crate) async fn run(self) {
        loop {
            match self.turn() {
                Next::At(next) => sleep_until(next).await,
                Next::Rest => self.bell.notified().await,
                Next::End => return,
            }
        }
    }

    fn turn(&self) -> Next {
        let fleet = self.fleet.upgrade();
        fleet.map_or(Next::End, |fleet| fleet.beat())
    }
}

impl Drop for Pacemaker {
    fn drop(&mut self) {
        // Its runtime may end before the fleet does; then the next caller starts another one.
        if let Some(fleet) = self.fleet.upgrade() {
            fleet.pacemaker_gone(self.number);
        }
    }
}
