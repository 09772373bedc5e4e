//! Which call gets the next free place.
//!
//! It is told which calls arrive, of which flow, and which are over, and says who gets a place. A flow that
//! has few calls outstanding when one arrives is sparse and gets credit; calls with credit go to the high
//! lane, the others to the bulk lane. It never takes a place away, and it knows nothing of how long a call
//! will run.
//!
//! ```text
//!             credit left                          4 times, then ┐
//!   arrival ───────────────► high: a ring of flows ──────────────┤
//!      │                       ▲ the flow is found sparse        ├──► a place ──► over
//!      └──────────────────► bulk: a ring of flows ───── once ────┘
//!             no credit                      (not into the reserve)
//! ```

use std::time::Instant;

use crate::{
    CallId, FlowId, FlowReading, Lane, SparseConfig, SparseReading, Watermark,
    lanes::{Flow, Lanes},
};

/// A call that was let in: it waits until [`SparsePolicy::next_grant`] names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Its name.
    pub call: CallId,
    /// Whether it found its flow sparse, which thereby got new credit.
    pub rearmed: bool,
}

/// A call that has a place from now on, until [`SparsePolicy::on_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The call.
    pub call: CallId,
    /// The lane that it waited in.
    pub lane: Lane,
}

/// The bound that a call would have exceeded by waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// [`SparseConfig::max_waiting_per_flow`].
    Flow,
    /// [`SparseConfig::max_waiting`].
    Total,
}

/// What counts as a flow's depth when a call arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Depth {
    /// The flow's other calls, waiting and running: the one that works.
    #[default]
    Outstanding,
    /// The flow's running calls and the new one, and those that wait in bulk stay there: what becomes of a
    /// server that looks for idle connections when one line of it is changed. It is here to compare. Under
    /// load every flow has only a few calls running, so every flow is found sparse and nobody goes first.
    InService,
}

/// The decisions of the layer, without clock, lock and tasks: for the layer, and for simulations.
///
/// Facts go in; after each of them [`SparsePolicy::next_grant`] says until it is `None` who has a place now.
/// Its memory is that of the calls which wait or run.
///
/// ```
/// use steadfast_sparse::{FlowId, SparseConfig, SparsePolicy};
///
/// let mut policy = SparsePolicy::new(SparseConfig { places: 1, ..SparseConfig::default() });
/// let now = steadfast_core::now().into_std();
/// let first = policy.on_arrival(FlowId::of("a"), now).unwrap().call;
/// let second = policy.on_arrival(FlowId::of("b"), now).unwrap().call;
/// assert_eq!(policy.next_grant().map(|grant| grant.call), Some(first));
/// assert_eq!(policy.next_grant(), None, "the place is taken");
/// policy.on_end(first);
/// assert_eq!(policy.next_grant().map(|grant| grant.call), Some(second));
/// ```
#[derive(Debug)]
pub struct SparsePolicy {
    config: SparseConfig,
    watermark: u32,
    depth: Depth,
    lanes: Lanes,
    /// High grants in a row while bulk waited.
    streak: u32,
}

/// What an arrival does to its flow.
struct Verdict {
    rearmed: bool,
    /// How many calls go over from bulk.
    promoted: u32,
    lane: Lane,
    /// What is left after these.
    credit: u32,
}

impl SparsePolicy {
    /// A policy without calls. Settings that are out of range are used as they are: it is the layer that
    /// validates them. With a watermark of 0 no flow is ever sparse, which is one ring of flows.
    #[must_use]
    pub fn new(config: SparseConfig) -> Self {
        Self {
            watermark: match config.watermark {
                Watermark::Calls(calls) => calls,
                Watermark::PlacesOver(divisor) => (config.places / divisor.max(1)).max(1),
            },
            config,
            depth: Depth::default(),
            lanes: Lanes::default(),
            streak: 0,
        }
    }

    /// The same with another definition of depth, to compare.
    #[must_use]
    pub fn with_depth(mut self, depth: Depth) -> Self {
        self.depth = depth;
        self
    }

    /// A call arrives.
    ///
    /// # Errors
    /// It would have to wait, and a bound on waiting calls is reached. Then nothing has changed.
    pub fn on_arrival(&mut self, flow: FlowId, now: Instant) -> Result<Arrival, Bound> {
        let known = self.lanes.flow(flow);
        let verdict = self.judge(known, now);
        if !self.has_place_for(verdict.lane)
            && let Some(bound) = self.bound_reached(known)
        {
            return Err(bound);
        }
        let entry = self.lanes.flow_mut(flow, now);
        entry.credit = verdict.credit;
        if verdict.rearmed {
            entry.armed = now;
        }
        for _ in 0..verdict.promoted {
            self.lanes.promote(flow);
        }
        Ok(Arrival {
            call: self.lanes.push(flow, verdict.lane),
            rearmed: verdict.rearmed,
        })
    }

    /// A call is over, or isn't wanted any more, whether it has a place or still waits. A call that isn't
    /// known is over already.
    pub fn on_end(&mut self, call: CallId) {
        self.lanes.remove(call);
    }

    /// Who has a place now: one call at a time, until there is no place or nobody who may take it.
    pub fn next_grant(&mut self) -> Option<Grant> {
        let lane = self.next_lane()?;
        let [_, bulk_waits] = self.lanes.waiting();
        let call = self.lanes.pop(lane)?;
        self.streak = match lane {
            Lane::High if bulk_waits > 0 => self.streak.saturating_add(1),
            _ => 0,
        };
        Some(Grant { call, lane })
    }

    /// The counts.
    #[must_use]
    pub fn reading(&self) -> SparseReading {
        self.lanes.reading()
    }

    /// The flows that have a call, in no order.
    pub fn flows(&self) -> impl Iterator<Item = FlowReading> {
        self.lanes.flows()
    }

    fn judge(&self, flow: Option<&Flow>, now: Instant) -> Verdict {
        let depth = match self.depth {
            Depth::Outstanding => flow.map_or(0, Flow::outstanding),
            Depth::InService => flow.map_or(0, |flow| flow.running) + 1,
        };
        let rearmed = depth < self.watermark;
        let credit = if rearmed {
            self.config.credits
        } else {
            flow.map_or(0, |flow| self.credit_left(flow, now))
        };
        let promotes = rearmed && self.depth == Depth::Outstanding;
        let behind = flow.filter(|_| promotes);
        let behind = behind.map_or(0, |flow| flow.waiting_in(Lane::Bulk));
        let promoted = behind.min(credit);
        let credit = credit - promoted;
        Verdict {
            rearmed,
            promoted,
            lane: if credit > 0 { Lane::High } else { Lane::Bulk },
            credit: credit.saturating_sub(1),
        }
    }

    fn credit_left(&self, flow: &Flow, now: Instant) -> u32 {
        let Some(decay) = self.config.credit_decay else {
            return flow.credit;
        };
        let left = decay.saturating_sub(now.saturating_duration_since(flow.armed));
        let worth = u128::from(self.config.credits) * left.as_nanos() / decay.as_nanos().max(1);
        flow.credit.min(u32::try_from(worth).unwrap_or(u32::MAX))
    }

    /// Whether a call that arrives in this lane need not wait. No call waits that could have the place: it
    /// would have been granted.
    fn has_place_for(&self, lane: Lane) -> bool {
        self.has_place() && (lane == Lane::High || self.bulk_may_run())
    }

    fn has_place(&self) -> bool {
        self.lanes.running().iter().sum::<u32>() < self.config.places
    }

    fn bulk_may_run(&self) -> bool {
        let [_, bulk] = self.lanes.running();
        bulk < self.config.places.saturating_sub(self.config.reserve)
    }

    fn bound_reached(&self, flow: Option<&Flow>) -> Option<Bound> {
        if flow.map_or(0, Flow::waiting) >= self.config.max_waiting_per_flow {
            return Some(Bound::Flow);
        }
        let all = self.lanes.waiting().iter().sum::<u32>();
        (all >= self.config.max_waiting).then_some(Bound::Total)
    }

    fn next_lane(&self) -> Option<Lane> {
        if !self.has_place() {
            return None;
        }
        let [high, bulk] = self.lanes.waiting();
        let bulk = bulk > 0 && self.bulk_may_run();
        let turn_of_bulk = self.config.guard.is_some_and(|guard| self.streak >= guard);
        match (high > 0, bulk) {
            (true, true) if turn_of_bulk => Some(Lane::Bulk),
            (true, _) => Some(Lane::High),
            (false, true) => Some(Lane::Bulk),
            (false, false) => None,
        }
    }
}
