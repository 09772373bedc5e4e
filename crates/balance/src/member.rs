//! The channels that are in the pool now, and the lease that a request holds on one of them.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

use steadfast_core::{ChannelId, CutSwitch, Meter, MeterOwner, Metered, Place, Standing};
use tokio::{sync::Notify, time::Instant};

/// What calls, channels and the keeper tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// A waiting call may find a channel now. `notify_one` for a place that was given back,
    /// `notify_waiters` for all else.
    pub(crate) changed: Arc<Notify>,
    /// A channel's standing changed. Only `notify_waiters`.
    pub(crate) standing: Arc<Notify>,
    /// The keeper has to act.
    pub(crate) work: Notify,
    /// Calls that wait for a channel.
    pub(crate) waiting: AtomicUsize,
    /// A request went to a channel that was at its maximum. Stays set until the keeper may grow again.
    pub(crate) pressed: AtomicBool,
    /// A call found no free stream.
    pub(crate) starved: AtomicBool,
}

impl Signals {
    /// Counts a call that waits, before it looks for a channel once more.
    pub(crate) fn wait_begins(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Either this call sees the place that a lease gives back, or the lease sees this call.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn wait_ends(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn anyone_waits(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

/// One channel of the pool, without its service.
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    pub(crate) place: Place,
    pub(crate) meter: Meter,
    pub(crate) owner: MeterOwner,
    /// Ends what is still open when the time to drain is over.
    pub(crate) cut: CutSwitch,
    pub(crate) since: Instant,
    pub(crate) picks: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Whether a server answered a call on it, so that it was more than a connection.
    pub(crate) answered: AtomicBool,
    pub(crate) draining: AtomicBool,
    /// Whether what is cut is cut because the pool was closed.
    pub(crate) closed: AtomicBool,
    signals: Arc<Signals>,
}

/// One channel of the pool with its service.
pub(crate) struct Member<S> {
    pub(crate) channel: Arc<Channel>,
    service: S,
    /// Clones of the service that have done a call, for later ones: a clone of a tonic channel and its drop
    /// cost two allocations and half a dozen locked instructions.
    spare: Mutex<Vec<S>>,
}

/// How many clones are kept: as many threads as may be between a pick and its call at the same time.
const SPARES: usize = 8;

impl<S> Member<S> {
    pub(crate) fn new(
        id: ChannelId,
        place: Place,
        (made, owner): (Metered<S>, MeterOwner),
        signals: &Arc<Signals>,
        now: Instant,
    ) -> Self {
        let meter = made.meter().clone();
        meter.ring_on_change(Arc::clone(&signals.standing));
        owner.set_standing(Standing::Open);
        let channel = Channel {
            id,
            place,
            owner,
            meter,
            cut: CutSwitch::new(),
            since: now,
            picks: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            signals: Arc::clone(signals),
        };
        Self {
            channel: Arc::new(channel),
            service: made.into_service(),
            spare: Mutex::new(Vec::with_capacity(SPARES)),
        }
    }

    /// A service to call. It may hold no reservation: readiness is polled anew.
    pub(crate) fn take(&self) -> S
    where
        S: Clone,
    {
        // Where another thread has the lock for an instant, a clone is cheaper than a wait.
        let spare = self.spare.try_lock().ok().and_then(|mut spare| spare.pop());
        spare.unwrap_or_else(|| self.service.clone())
    }

    /// Keeps a service that was called, and so is unready, for another call.
    pub(crate) fn give_back(&self, service: S) {
        let mut service = Some(service);
        if let Ok(mut spare) = self.spare.try_lock()
            && spare.len() < SPARES
        {
            spare.extend(service.take());
        }
        // One too many is dropped here, with the lock given back: its drop may run anything.
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id)
            .field("place", &self.place)
            .field("meter", &self.meter.read())
            .finish_non_exhaustive()
    }
}

/// A request's claim on a channel: one in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Channel>);

/// A claim whose request hasn't been given to the channel yet.
pub(crate) struct Claim<S>(Option<Arc<Member<S>>>);

impl<S> Claim<S> {
    /// Takes over a claim that was made on the channel's meter.
    pub(crate) fn made(member: Arc<Member<S>>) -> Self {
        member.channel.picks.fetch_add(1, Ordering::Relaxed);
        Self(Some(member))
    }

    pub(crate) fn member(&self) -> &Member<S> {
        self.0.as_deref().expect("taken only where the claim ends")
    }

    /// The same for as long as the exchange lasts, without the service: an open response keeps no channel.
    pub(crate) fn into_lease(mut self) -> Lease {
        let member = self.0.take().expect("taken only here");
        Lease(Arc::clone(&member.channel))
    }
}

impl<S> Drop for Claim<S> {
    fn drop(&mut self) {
        if let Some(member) = &self.0 {
            member.channel.release();
        }
    }
}

impl Lease {
    pub(crate) fn channel(&self) -> &Channel {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Channel {
    /// One request less.
    fn release(&self) {
        let before = self.meter.release();
        if self.signals.anyone_waits() {
            self.signals.changed.notify_one();
        }
        // Either this sees that the channel drains, or the keeper sees that its last request has ended.
        if before == 1 && self.draining.load(Ordering::SeqCst) {
            self.signals.work.notify_one();
        }
    }
}

/// The channels that may be picked, as the keeper last published them.
pub(crate) struct Roster<S> {
    pub(crate) members: Vec<Arc<Member<S>>>,
    /// The members' meters in the same order: a pick reads these and nothing else.
    pub(crate) meters: Vec<Meter>,
    /// Channels on their way out that still have open responses.
    pub(crate) draining: Vec<Arc<Member<S>>>,
    /// Slots without a channel: their place, and failed dials in a row.
    pub(crate) connecting: Vec<(Place, u32)>,
    /// Whether a call may wait for a dial: one is under way whose slot's last dial didn't fail.
    pub(crate) hopeful: bool,
    /// The last dial that failed, or channel that was lost, since one was ready.
    pub(crate) last_failure: Option<Arc<crate::error::Failure>>,
}

impl<S> Roster<S> {
    /// Whether a call may wait: a dial is under way, or about to be because a channel was just lost.
    pub(crate) fn is_hopeful(&self) -> bool {
        let lost = |meter: &Meter| meter.read().standing() == Standing::Condemned;
        self.hopeful || self.meters.iter().any(lost)
    }
}

impl<S> Default for Roster<S> {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            meters: Vec::new(),
            draining: Vec::new(),
            connecting: Vec::new(),
            hopeful: true,
            last_failure: None,
        }
    }
}
