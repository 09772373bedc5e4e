//! The two lanes: rings of flows with calls that wait, and what is known of each flow and call.
//!
//! It keeps the order and the counts, and decides nothing.

use std::{num::NonZeroU64, time::Instant};

use crate::{
    FlowId,
    list::{Link, List, Map, shrink},
};

/// One call's name within a [`SparsePolicy`](crate::SparsePolicy); never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(NonZeroU64);

/// The two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Of flows that had credit.
    High,
    /// Of the others.
    Bulk,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SparseReading {
    /// Calls that have a place, from the high and from the bulk lane.
    pub running: [u32; 2],
    /// Calls that wait, in the high and in the bulk lane.
    pub waiting: [u32; 2],
    /// Flows that have a call.
    pub flows: usize,
}

/// One flow at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowReading {
    /// Which one.
    pub flow: FlowId,
    /// Its calls that have a place.
    pub running: u32,
    /// Its calls that wait, in the high and in the bulk lane.
    pub waiting: [u32; 2],
    /// How many more of its calls go first.
    pub credit: u32,
}

/// The calls that wait or run, and their flows. A flow is kept while it has one.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    flows: Map<FlowId, Flow>,
    calls: Map<CallId, Call>,
    rings: [List<FlowId>; 2],
    running: [u32; 2],
    waiting: [u32; 2],
    calls_so_far: u64,
}

#[derive(Debug)]
pub(crate) struct Flow {
    lanes: [FlowLane; 2],
    pub(crate) running: u32,
    pub(crate) credit: u32,
    /// When it was found sparse the last time.
    pub(crate) armed: Instant,
}

#[derive(Debug, Default)]
struct FlowLane {
    calls: List<CallId>,
    waiting: u32,
    turn: Link<FlowId>,
}

#[derive(Debug)]
struct Call {
    flow: FlowId,
    lane: Lane,
    running: bool,
    neighbours: Link<CallId>,
}

impl Lanes {
    pub(crate) fn flow(&self, flow: FlowId) -> Option<&Flow> {
        self.flows.get(&flow)
    }

    /// The flow, known or new.
    pub(crate) fn flow_mut(&mut self, flow: FlowId, now: Instant) -> &mut Flow {
        self.flows.entry(flow).or_insert_with(|| Flow {
            lanes: Default::default(),
            running: 0,
            credit: 0,
            armed: now,
        })
    }

    pub(crate) fn running(&self) -> [u32; 2] {
        self.running
    }

    pub(crate) fn waiting(&self) -> [u32; 2] {
        self.waiting
    }

    /// A new call of a known flow waits, behind the flow's others.
    pub(crate) fn push(&mut self, flow: FlowId, lane: Lane) -> CallId {
        self.calls_so_far += 1;
        let number = NonZeroU64::new(self.calls_so_far).unwrap_or(NonZeroU64::MIN);
        let call = CallId(number);
        let entry = Call {
            flow,
            lane,
            running: false,
            neighbours: Link::default(),
        };
        self.calls.insert(call, entry);
        self.enqueue(call, flow, lane);
        call
    }

    /// The oldest call of the flow whose turn it is gets a place.
    pub(crate) fn pop(&mut self, lane: Lane) -> Option<CallId> {
        let at = lane as usize;
        let flow = self.rings[at].first()?;
        let call = self.flows.get(&flow)?.lanes[at].calls.first()?;
        self.dequeue(call, flow, lane);
        self.running[at] += 1;
        self.calls.get_mut(&call)?.running = true;
        let entry = self.flows.get_mut(&flow)?;
        entry.running += 1;
        if entry.lanes[at].waiting > 0 {
            // The flow had its turn: the others come first.
            let (ring, flows) = (&mut self.rings[at], &mut self.flows);
            ring.remove(flow, flows, |flow| &mut flow.lanes[at].turn);
            ring.push(flow, flows, |flow| &mut flow.lanes[at].turn);
        }
        Some(call)
    }

    /// The call is gone, wherever it was, and its flow with it if that was the last one.
    pub(crate) fn remove(&mut self, call: CallId) {
        let Some(entry) = self.calls.get(&call) else {
            return;
        };
        let (flow, lane) = (entry.flow, entry.lane);
        if entry.running {
            self.running[lane as usize] -= 1;
            if let Some(entry) = self.flows.get_mut(&flow) {
                entry.running -= 1;
            }
        } else {
            self.dequeue(call, flow, lane);
        }
        self.calls.remove(&call);
        shrink(&mut self.calls);
        if self.flow(flow).is_some_and(|flow| flow.outstanding() == 0) {
            self.flows.remove(&flow);
            shrink(&mut self.flows);
        }
    }

    /// The oldest of the flow's calls in the bulk lane goes over to the end of its high lane.
    pub(crate) fn promote(&mut self, flow: FlowId) {
        let entry = self.flow(flow);
        let oldest = entry.and_then(|entry| entry.lanes[Lane::Bulk as usize].calls.first());
        let Some(call) = oldest else { return };
        self.dequeue(call, flow, Lane::Bulk);
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.lane = Lane::High;
        }
        self.enqueue(call, flow, Lane::High);
    }

    pub(crate) fn reading(&self) -> SparseReading {
        SparseReading {
            running: self.running,
            waiting: self.waiting,
            flows: self.flows.len(),
        }
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowReading> {
        self.flows.iter().map(|(flow, entry)| FlowReading {
            flow: *flow,
            running: entry.running,
            waiting: [entry.lanes[0].waiting, entry.lanes[1].waiting],
            credit: entry.credit,
        })
    }

    fn enqueue(&mut self, call: CallId, flow: FlowId, lane: Lane) {
        let at = lane as usize;
        let Some(entry) = self.flows.get_mut(&flow) else {
            return;
        };
        let own = &mut entry.lanes[at];
        own.calls
            .push(call, &mut self.calls, |call| &mut call.neighbours);
        own.waiting += 1;
        self.waiting[at] += 1;
        if own.waiting == 1 {
            self.rings[at].push(flow, &mut self.flows, |flow| &mut flow.lanes[at].turn);
        }
    }

    fn dequeue(&mut self, call: CallId, flow: FlowId, lane: Lane) {
        let at = lane as usize;
        let Some(entry) = self.flows.get_mut(&flow) else {
            return;
        };
        let own = &mut entry.lanes[at];
        own.calls
            .remove(call, &mut self.calls, |call| &mut call.neighbours);
        own.waiting -= 1;
        self.waiting[at] -= 1;
        if own.waiting == 0 {
            self.rings[at].remove(flow, &mut self.flows, |flow| &mut flow.lanes[at].turn);
        }
    }
}

impl Flow {
    pub(crate) fn waiting_in(&self, lane: Lane) -> u32 {
        self.lanes[lane as usize].waiting
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.waiting).sum()
    }

    pub(crate) fn outstanding(&self) -> u32 {
        self.waiting() + self.running
    }
}
