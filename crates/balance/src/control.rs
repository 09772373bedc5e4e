//! What a pool's owner can ask of it besides calls.

use std::{sync::atomic::Ordering, time::Duration};

use steadfast_core::{BoxError, ConfigError};
use tokio::{sync::watch, time::timeout};

use crate::{Balance, Connectivity, Snapshot, error};

/// What [`Balance::close`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Responses that were open when the pool was closed and ended by themselves.
    pub finished: u64,
    /// Responses that were still open after the grace period, and were ended.
    pub cut: u64,
}

impl<S> Balance<S> {
    /// The pool as plain data, at any time and without a lock.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let waiting = self.shared.signals.waiting.load(Ordering::Relaxed);
        Snapshot::new(&self.shared.roster.load(), waiting)
    }

    /// Follows whether the pool can take requests.
    #[must_use]
    pub fn connectivity(&self) -> watch::Receiver<Connectivity> {
        self.shared.connectivity.subscribe()
    }
}

impl<S: Clone + Send + Sync + 'static> Balance<S> {
    /// Starts the pool if no call has, and resolves once `channels` channels are ready. A larger
    /// number than the pool has now makes it grow to that. It waits as long as it takes: bound it with
    /// a time-out. Cancel safe.
    ///
    /// # Errors
    /// When `channels` is more than the pool's maximum, or the pool is closed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn warm(&self, channels: usize) -> Result<(), BoxError> {
        let shared = &self.shared;
        if channels > shared.config.max {
            let range = format!("0 to {} (balance.max)", shared.config.max);
            return Err(ConfigError::new("warm", channels, range).into());
        }
        let mut ready = shared.ready.subscribe();
        let mut connectivity = shared.connectivity.subscribe();
        shared.warm.fetch_max(channels, Ordering::Relaxed);
        shared.start();
        shared.signals.work.notify_one();
        tokio::select! {
            biased;
            _ = connectivity.wait_for(|now| *now == Connectivity::Closed) => {
                Err(error::closed(&shared.config.name))
            }
            // The sender lives as long as the pool, which `self` keeps alive.
            _ = ready.wait_for(|now| *now >= channels) => Ok(()),
        }
    }

    /// Closes the pool for all clones: new calls and calls that wait for a channel fail at once, open
    /// responses may end by themselves for `grace`, and what is open then is ended with an error that
    /// is marked as local. If it is cancelled the pool stays closed, and nothing is cut.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn close(&self, grace: Duration) -> CloseReport {
        let shared = &self.shared;
        let mut alive = shared.alive.subscribe();
        let open = self.snapshot().in_flight();
        shared.closed.store(true, Ordering::Release);
        shared.signals.work.notify_one();
        let none = |alive: &usize| *alive == 0;
        let mut cut = 0;
        if !shared.is_started() {
            // There is no keeper to say it: the pool was never used, or its runtime is gone.
            shared.connectivity.send_replace(Connectivity::Closed);
            cut = self.cut_all();
        } else if timeout(grace, alive.wait_for(none)).await.is_err() {
            cut = self.cut_all();
            // The sender lives as long as the pool, which `self` keeps alive.
            drop(alive.wait_for(none).await);
        }
        CloseReport {
            finished: open.saturating_sub(cut),
            cut,
        }
    }

    /// Ends all open responses. Says how many there were.
    fn cut_all(&self) -> u64 {
        let cut = self.snapshot().in_flight();
        self.shared.metrics().failed_locally(cut);
        let roster = self.shared.roster.load();
        for member in roster.members.iter().chain(&roster.draining) {
            member.channel.cut.throw();
        }
        self.shared.signals.work.notify_one();
        cut
    }
}
