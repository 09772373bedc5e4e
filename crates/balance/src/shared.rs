//! What the clones of a pool and its keeper share.

mod picking;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use steadfast_core::{BoxError, ChannelId, Metered, Place};
use tokio::sync::{Notify, watch};

use crate::{
    BalanceConfig, Connectivity, Places, WarmUp,
    keeper::Keeper,
    member::{Claim, Roster, Signals},
    observe::Metrics,
};

pub(crate) type DialFuture<S> = Pin<Box<dyn Future<Output = Result<Metered<S>, BoxError>> + Send>>;

/// No channel could be claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPick {
    /// Whether one could be but for its stream limit: a stream may be free soon.
    pub(crate) full: bool,
}

/// A factory without its type.
pub(crate) type Factory<S> = Box<dyn Fn(ChannelId, &Place) -> DialFuture<S> + Send + Sync>;

/// A channel that was claimed for a request, with its service.
pub(crate) struct Picked<S> {
    pub(crate) claim: Claim<S>,
    pub(crate) service: S,
}

pub(crate) struct Shared<S> {
    pub(crate) config: BalanceConfig,
    pub(crate) factory: Factory<S>,
    pub(crate) warm_up: Arc<dyn WarmUp<S>>,
    pub(crate) places: Places,
    pub(crate) roster: ArcSwap<Roster<S>>,
    pub(crate) signals: Arc<Signals>,
    /// The highest number of requests in flight since the last look.
    pub(crate) peak: AtomicU64,
    /// The channels that each `warm` which waits has asked for.
    warm: Mutex<Vec<usize>>,
    pub(crate) closed: AtomicBool,
    /// Responses that were ended because the pool was closed.
    pub(crate) cut: AtomicU64,
    pub(crate) connectivity: watch::Sender<Connectivity>,
    /// Ready channels.
    pub(crate) ready: watch::Sender<usize>,
    /// Channels that aren't gone: ready or draining.
    pub(crate) alive: watch::Sender<usize>,
    pub(crate) metrics: OnceLock<Metrics>,
    /// Whose turn it is, for round robin.
    turn: AtomicUsize,
    started: AtomicBool,
    /// Rung when the keeper ends, for whichever reason.
    stopped: Notify,
}

impl<S> Shared<S> {
    pub(crate) fn new(
        config: BalanceConfig,
        factory: Factory<S>,
        warm_up: Arc<dyn WarmUp<S>>,
        places: Places,
    ) -> Self {
        Self {
            config,
            factory,
            warm_up,
            places,
            roster: ArcSwap::default(),
            signals: Arc::default(),
            peak: AtomicU64::new(0),
            warm: Mutex::default(),
            closed: AtomicBool::new(false),
            cut: AtomicU64::new(0),
            connectivity: watch::Sender::new(Connectivity::Connecting),
            ready: watch::Sender::new(0),
            alive: watch::Sender::new(0),
            metrics: OnceLock::new(),
            turn: AtomicUsize::new(0),
            started: AtomicBool::new(false),
            stopped: Notify::new(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Resolves when no keeper runs: it has ended, or its runtime has. Cancel safe.
    pub(crate) async fn stopped(&self) {
        loop {
            let stopped = self.stopped.notified();
            tokio::pin!(stopped);
            // Armed before the look, so that an end in between isn't missed.
            stopped.as_mut().enable();
            if !self.is_started() {
                return;
            }
            stopped.await;
        }
    }

    /// Asks for a size until the answer is dropped.
    pub(crate) fn ask(&self, channels: usize) -> Asked<'_, S> {
        self.asked().push(channels);
        Asked {
            shared: self,
            channels,
        }
    }

    /// The most channels that a waiting `warm` has asked for.
    pub(crate) fn most_asked(&self) -> usize {
        self.asked().iter().copied().max().unwrap_or(0)
    }

    fn asked(&self) -> MutexGuard<'_, Vec<usize>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        self.metrics.get_or_init(|| Metrics::new(&self.config.name))
    }
}

impl<S: Clone + Send + Sync + 'static> Shared<S> {
    /// Starts the keeper if it isn't running: at the first call or `warm`, and again if the runtime
    /// that it ran on is gone.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        if self.started.load(Ordering::Relaxed) || self.is_closed() {
            return;
        }
        if !self.started.swap(true, Ordering::AcqRel) {
            self.forget();
            let running = Running(Arc::downgrade(self));
            let keeper = Keeper::new(self);
            tokio::spawn(async move {
                let _running = running;
                keeper.run().await;
            });
        }
    }
}

impl<S> Shared<S> {
    /// What an earlier keeper said holds no more: its channels went with its runtime.
    fn forget(&self) {
        self.roster.store(Arc::default());
        self.ready.send_replace(0);
        self.alive.send_replace(0);
        self.connectivity.send_if_modified(|last| {
            let stale = !matches!(last, Connectivity::Connecting | Connectivity::Closed);
            if stale {
                *last = Connectivity::Connecting;
            }
            stale
        });
    }
}

impl<S> Drop for Shared<S> {
    fn drop(&mut self) {
        // The last clone is gone: the keeper ends.
        self.signals.work.notify_one();
    }
}

/// A size that was asked for.
pub(crate) struct Asked<'a, S> {
    shared: &'a Shared<S>,
    channels: usize,
}

impl<S> Drop for Asked<'_, S> {
    fn drop(&mut self) {
        let mut asked = self.shared.asked();
        if let Some(index) = asked.iter().position(|asked| *asked == self.channels) {
            asked.swap_remove(index);
        }
        drop(asked);
        self.shared.signals.work.notify_one();
    }
}

/// Held by the keeper's task: when it ends, for whichever reason, a later call may start another.
struct Running<S>(Weak<Shared<S>>);

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.started.store(false, Ordering::Release);
            shared.stopped.notify_waiters();
            // Calls that wait start another keeper, where they are.
            shared.signals.changed.notify_waiters();
        }
    }
}
