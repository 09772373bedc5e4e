//! What a pool's owner can ask of it besides calls.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use steadfast_core::{BoxError, ConfigError};
use tokio::{sync::watch, time::timeout};

use crate::{Balance, Connectivity, Snapshot, error, member::Roster};

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
    /// number than the pool has now makes it grow to that; once it is reached, or given up, the size
    /// follows the load again. It waits as long as it takes: bound it with a time-out. Cancel safe.
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
        let _asked = shared.ask(channels);
        while !shared.is_closed() {
            shared.start();
            shared.signals.work.notify_one();
            let is_ready = tokio::select! {
                biased;
                // The senders live as long as the pool, which `self` keeps alive.
                _ = connectivity.wait_for(|now| *now == Connectivity::Closed) => false,
                _ = ready.wait_for(|now| *now >= channels) => true,
                () = shared.stopped() => false,
            };
            if is_ready {
                return Ok(());
            }
            // The keeper's runtime is gone: it starts again here, unless this one is going too.
            tokio::task::yield_now().await;
        }
        Err(error::closed(&shared.config.name))
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
        shared.connectivity.send_replace(Connectivity::Closed);
        shared.signals.work.notify_one();
        let mut empty = async || {
            tokio::select! {
                // The sender lives as long as the pool, which `self` keeps alive.
                _ = alive.wait_for(|alive| *alive == 0) => {}
                () = shared.stopped() => {}
            }
        };
        if timeout(grace, empty()).await.is_err() {
            self.cut_all();
            empty().await;
        }
        if !shared.is_started() {
            // No keeper lets go of the channels: the pool was never used, or its runtime is gone. One that
            // has done it left none.
            self.cut_all();
            shared.roster.store(Arc::new(Roster {
                hopeful: false,
                ..Roster::default()
            }));
        }
        let cut = shared.cut.load(Ordering::Relaxed);
        CloseReport {
            finished: open.saturating_sub(cut),
            cut,
        }
    }

    /// Ends all open responses.
    fn cut_all(&self) {
        let roster = self.shared.roster.load();
        let mut channels = Vec::new();
        let mut cut = 0;
        for member in roster.members.iter().chain(&roster.draining) {
            let channel = &member.channel;
            if !channel.closed.swap(true, Ordering::AcqRel) && !channel.cut.is_thrown() {
                cut += u64::from(channel.meter.read().in_flight());
                channels.push(channel);
            }
        }
        // Counted before it is seen.
        self.shared.cut.fetch_add(cut, Ordering::Relaxed);
        self.shared.metrics().failed_locally(cut);
        for channel in channels {
            channel.cut.throw();
        }
        self.shared.signals.work.notify_one();
    }
}
