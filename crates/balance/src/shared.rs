//! What the clones of a pool and its keeper share.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use http::Request;
use steadfast_core::{Avoid, BoxError, ChannelId, Metered, Place, Prefer, Standing};
use tokio::sync::watch;

use crate::{
    BalanceConfig, Connectivity, Places, Strategy, WarmUp,
    keeper::Keeper,
    member::{Lease, Member, Roster, Signals},
    observe::Metrics,
    pick::{Choice, Rules, scan},
};

pub(crate) type DialFuture<S> = Pin<Box<dyn Future<Output = Result<Metered<S>, BoxError>> + Send>>;

/// What came of a pick.
pub(crate) enum Pick<S> {
    /// A channel was claimed.
    Leased(Lease, S),
    /// None may take the request; `full` if one could but for its stream limit.
    None {
        /// Whether a stream may be free soon.
        full: bool,
    },
}

/// A factory without its type.
pub(crate) type Factory<S> = Box<dyn Fn(ChannelId, &Place) -> DialFuture<S> + Send + Sync>;

pub(crate) struct Shared<S> {
    pub(crate) config: BalanceConfig,
    pub(crate) factory: Factory<S>,
    pub(crate) warm_up: Arc<dyn WarmUp<S>>,
    pub(crate) places: Places,
    pub(crate) roster: ArcSwap<Roster<S>>,
    pub(crate) signals: Arc<Signals>,
    /// The highest number of requests in flight since the last look.
    pub(crate) peak: AtomicU64,
    /// The most channels that `warm` asked for.
    pub(crate) warm: AtomicUsize,
    pub(crate) closed: AtomicBool,
    pub(crate) connectivity: watch::Sender<Connectivity>,
    /// Ready channels.
    pub(crate) ready: watch::Sender<usize>,
    /// Channels that aren't gone: ready or draining.
    pub(crate) alive: watch::Sender<usize>,
    pub(crate) metrics: OnceLock<Metrics>,
    /// Whose turn it is, for round robin.
    turn: AtomicUsize,
    started: AtomicBool,
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
            warm: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            connectivity: watch::Sender::new(Connectivity::Connecting),
            ready: watch::Sender::new(0),
            alive: watch::Sender::new(0),
            metrics: OnceLock::new(),
            turn: AtomicUsize::new(0),
            started: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        self.metrics.get_or_init(|| Metrics::new(&self.config.name))
    }

    /// Claims the best channel for a request, if one may take it. A `queued` call keeps to the
    /// maximum per channel while others still dial; so do all while calls are queued.
    pub(crate) fn pick<Q>(&self, request: &Request<Q>, queued: bool) -> Pick<S>
    where
        S: Clone,
    {
        let roster = self.roster.load();
        let count = roster.meters.len();
        if count == 0 {
            return Pick::None { full: false };
        }
        let queued = queued || self.signals.waiting.load(Ordering::Relaxed) > 0;
        let rules = Rules {
            strategy: self.config.strategy,
            assumed_streams: self.config.assumed_streams,
            cap: (roster.hopeful && queued).then_some(self.config.max_requests),
        };
        let extensions = request.extensions();
        let avoid = extensions.get::<Avoid>().filter(|avoid| !avoid.is_empty());
        let avoided = |index: usize| {
            avoid.is_some_and(|avoid| avoid.contains(roster.members[index].channel.id))
        };
        let read = |index: usize| roster.meters[index].read();
        let preferred = extensions.get::<Prefer>().and_then(|prefer| {
            let is_it = |member: &Arc<Member<S>>| member.channel.id == prefer.0;
            roster.members.iter().position(is_it)
        });
        loop {
            let found = scan(count, self.start_of_scan(count), read, avoided, rules);
            let affine = preferred
                .filter(|index| !avoided(*index))
                .map(|index| Choice {
                    index,
                    seen: read(index),
                });
            let affine = affine.filter(|Choice { seen, .. }| {
                let has_room = seen.has_room(rules.assumed_streams);
                let below = rules.cap.is_none_or(|cap| seen.in_flight() < cap);
                seen.standing() == Standing::Open && has_room && below
            });
            let Some(choice) = affine.or(found.choice) else {
                return Pick::None { full: found.full };
            };
            // Another call may have claimed a place since the scan: then look again.
            if roster.meters[choice.index].claim(choice.seen).is_ok() {
                self.note_peak(found.in_flight + 1);
                self.note_pressure(choice.seen.in_flight());
                let member = &roster.members[choice.index];
                let lease = Lease::claimed(Arc::clone(&member.channel));
                return Pick::Leased(lease, member.service.clone());
            }
        }
    }

    /// Where a scan begins, and where the other one of two choices is: another channel, if there are two.
    fn start_of_scan(&self, count: usize) -> (usize, usize) {
        let start = match self.config.strategy {
            Strategy::RoundRobin => self.turn.fetch_add(1, Ordering::Relaxed) % count,
            _ => fastrand::usize(..count),
        };
        let second = match self.config.strategy {
            Strategy::PowerOfTwo if count > 1 => (start + fastrand::usize(1..count)) % count,
            _ => start,
        };
        (start, second)
    }

    /// A channel at its maximum was the best there was: the keeper is told, once until it has acted.
    fn note_pressure(&self, in_flight: u32) {
        let pressed = self.config.grow_on_demand && in_flight >= self.config.max_requests;
        let signals = &self.signals;
        if pressed
            && !signals.pressed.load(Ordering::Relaxed)
            && !signals.pressed.swap(true, Ordering::Relaxed)
        {
            signals.work.notify_one();
        }
    }

    /// No channel has a free stream: the keeper is told, and grows the pool by what the waiting calls need.
    pub(crate) fn note_starvation(&self) {
        self.signals.starved.store(true, Ordering::Relaxed);
        self.signals.work.notify_one();
    }

    fn note_peak(&self, in_flight: u64) {
        if in_flight > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(in_flight, Ordering::Relaxed);
        }
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
            let running = Running(Arc::downgrade(self));
            let keeper = Keeper::new(self);
            tokio::spawn(async move {
                let _running = running;
                keeper.run().await;
            });
        }
    }
}

impl<S> Drop for Shared<S> {
    fn drop(&mut self) {
        // The last clone is gone: the keeper ends.
        self.signals.work.notify_one();
    }
}

/// Held by the keeper's task: when it ends, for whichever reason, a later call may start another.
struct Running<S>(Weak<Shared<S>>);

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.started.store(false, Ordering::Release);
        }
    }
}
