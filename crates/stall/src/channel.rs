//! One channel, as its service, its open exchanges and the fleet share it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use steadfast_core::{
    BoxError, ChannelId, LocalKind, MeterOwner, Place, Standing, Verdict, WarmUp, now,
};
use tokio::{
    runtime::Handle,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use crate::{Fact, ProbeResult, fleet::Fleet, seats::Seats};

/// A channel that got the layer. Its exchanges keep it when its service has gone.
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    pub(crate) place: Place,
    pub(crate) owner: MeterOwner,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) seats: Seats,
    /// The tick in which something last came for a caller.
    moved: AtomicU64,
    /// The first of the ticks, up to now, at each of which somebody waited; 0 if nobody does.
    awaited: AtomicU64,
    /// The tick in which the last probe began.
    probed: AtomicU64,
    left: AtomicBool,
    prober: WarmUp,
    probe: Mutex<Option<AbortHandle>>,
}

/// No tick: nothing came yet.
const NEVER: u64 = u64::MAX;

impl Channel {
    pub(crate) fn new(
        id: ChannelId,
        place: Place,
        owner: MeterOwner,
        prober: WarmUp,
        fleet: &Arc<Fleet>,
    ) -> Self {
        Self {
            id,
            place,
            owner,
            seats: Seats::new(),
            moved: AtomicU64::new(NEVER),
            awaited: AtomicU64::new(0),
            probed: AtomicU64::new(0),
            left: AtomicBool::new(false),
            prober,
            probe: Mutex::new(None),
            fleet: Arc::clone(fleet),
        }
    }

    /// Something came for a caller.
    #[inline]
    pub(crate) fn note_arrival(&self, tick: u64) {
        // All frames of one tick after the first find the line as it is to be, and don't write to it.
        if self.moved.load(Ordering::Relaxed) != tick {
            self.moved.store(tick, Ordering::Relaxed);
        }
    }

    /// When something came last. A channel that joined and brought nobody anything yet shows nothing.
    pub(crate) fn moved(&self) -> Option<u64> {
        Some(self.moved.load(Ordering::Relaxed)).filter(|tick| *tick != NEVER)
    }

    /// Whether something came at this tick or later.
    pub(crate) fn moved_since(&self, tick: u64) -> bool {
        self.moved().is_some_and(|moved| moved >= tick)
    }

    /// For the pacemaker at this tick: notes whether somebody waits, and says for how many ticks somebody has
    /// without a break: one caller, or one after the other, as those with short deadlines do.
    pub(crate) fn awaited(&self, somebody: bool, tick: u64) -> u64 {
        let since = match self.awaited.load(Ordering::Relaxed) {
            _ if !somebody => 0,
            0 => tick,
            since => since,
        };
        self.awaited.store(since, Ordering::Relaxed);
        if somebody { tick - since } else { 0 }
    }

    pub(crate) fn probed(&self) -> u64 {
        self.probed.load(Ordering::Relaxed)
    }

    /// Whether it is among those that serve, as far as others say.
    pub(crate) fn is_in_pool(&self) -> bool {
        !self.left.load(Ordering::Acquire) && self.owner.others() < Standing::Shut
    }

    /// Sends a probe, which tells the fleet how it ended, whichever way.
    pub(crate) fn probe(self: &Arc<Self>, runtime: Option<&Handle>) {
        self.probed.store(self.fleet.tick(), Ordering::Relaxed);
        let report = Report {
            channel: Arc::downgrade(self),
            result: ProbeResult::Dropped,
        };
        let Some(runtime) = runtime else {
            return;
        };
        let asking = (self.prober)(self.fleet.config().answer);
        let task = runtime.spawn(report.when(asking));
        let task = Some(task.abort_handle());
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = task;
    }

    /// The error of a request that the quarantine ends, or keeps out.
    pub(crate) fn quarantined(&self) -> BoxError {
        let (id, place) = (self.id, &self.place);
        let text = format!(
            "channel {id} to {place} is in quarantine: it fell silent and didn't answer its probe"
        );
        steadfast_classify::local_error(LocalKind::Quarantine, text, None)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let probe = self.probe.get_mut();
        if let Some(probe) = probe.unwrap_or_else(PoisonError::into_inner).take() {
            probe.abort();
        }
        self.fleet.gone(self.id);
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.id)
            .field("gate", &self.seats.gate())
            .finish_non_exhaustive()
    }
}

/// A channel's membership of the fleet, which its service holds: it ends with the last clone.
#[derive(Debug)]
pub(crate) struct Enrolment(pub(crate) Arc<Channel>);

impl Drop for Enrolment {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Release);
        self.0.fleet.tell(Fact::Left(self.0.id));
    }
}

/// Tells the fleet of a probe's end, on drop at the latest. It doesn't keep the channel.
struct Report {
    channel: Weak<Channel>,
    result: ProbeResult,
}

impl Report {
    async fn when(mut self, asking: Pin<Box<dyn Future<Output = Verdict> + Send>>) {
        let began = now();
        let verdict = asking.await;
        // One that ended early, with its connection, leaves no time to see whether others receive.
        if let (Verdict::NoAnswer(_), Some(rest)) = (&verdict, self.until_others_are_known(began)) {
            sleep_until(rest).await;
        }
        self.result = match &verdict {
            Verdict::Answered(_) => ProbeResult::Answered,
            Verdict::NoAnswer(_) => ProbeResult::NoAnswer,
            _ => ProbeResult::NotAttempted,
        };
        if let Some(channel) = self.channel.upgrade() {
            channel.fleet.metrics().probed(began);
            tracing::debug!(pool = channel.fleet.config().name, channel = %channel.id, %verdict, "a probe ended");
        }
    }

    /// Until when the probe is held to be out, unless another channel has received since it began.
    fn until_others_are_known(&self, began: Instant) -> Option<Instant> {
        let channel = self.channel.upgrade()?;
        let fleet = &channel.fleet;
        let known = fleet.config().alone || fleet.others_moved(&channel);
        (!known).then(|| began + fleet.config().answer)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.upgrade() {
            channel.fleet.probe_ended(&channel, self.result);
        }
    }
}
