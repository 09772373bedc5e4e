//! The model: places, flows that send calls by a pattern, and the layer's own policy in between. Time is a
//! number that jumps from event to event.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::{Duration, Instant},
};

use fastrand::Rng;
use steadfast_sparse::{CallId, FlowId, SparsePolicy};

use super::measured::Measured;

/// How long a caller takes at most from an answer to its next call; uniform. Not nothing, so that what happens at one
/// instant doesn't decide.
const TURN: Duration = Duration::from_micros(20);

/// When a flow sends its calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pattern {
    /// Keeps this many outstanding: one ends, the next is sent.
    Keeps(u32),
    /// Sends this many at once, waits for all, and pauses.
    Bursts(u32, Duration),
    /// Keeps a number outstanding that walks at random between 0 and this, a step about every so often: each of the
    /// numbers holds for the same share of the time.
    Walks(u32, Duration),
    /// So many callers, each of which thinks for an exponential time after its answer.
    Thinks(u32, Duration),
    /// Keeps this many outstanding, but after so many calls lets all but a few end, and begins anew: a caller that plays
    /// the watermark.
    Shapes {
        window: u32,
        credits: u32,
        watermark: u32,
    },
}

/// Flows of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) flows: u32,
    pub(super) pattern: Pattern,
    /// The mean time that a call holds its place.
    pub(super) service: Duration,
    /// How far it is off at most, as a share of the mean; uniform.
    pub(super) jitter: f64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A call that had its place is over.
    Ends(CallId),
    /// The flow has its answer and goes on.
    GoesOn(usize),
    /// A pause of this flow is over, or its walk makes a step.
    Wakes(usize),
}

struct Flow {
    id: FlowId,
    group: usize,
    outstanding: u32,
    /// How many it wants outstanding now: for a walk.
    target: u32,
    /// Calls since it began anew: for one that shapes.
    sent: u32,
    /// Whether it pauses, or lets its calls run out.
    resting: bool,
}

/// A run of the model.
pub(super) struct Model {
    policy: SparsePolicy,
    groups: Vec<Group>,
    measured: Vec<Measured>,
    flows: Vec<Flow>,
    calls: HashMap<CallId, (usize, u64)>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_so_far: u64,
    random: Rng,
    began: Instant,
    now: u64,
    warm: bool,
}

impl Model {
    pub(super) fn new(policy: SparsePolicy, groups: Vec<Group>, seed: u64) -> Self {
        let kinds = groups.iter().enumerate();
        let flows = kinds.flat_map(|(group, kind)| {
            (0..kind.flows).map(move |number| Flow {
                id: FlowId::of((group, number)),
                group,
                outstanding: 0,
                target: 0,
                sent: 0,
                resting: false,
            })
        });
        Self {
            policy,
            flows: flows.collect(),
            measured: groups.iter().map(|_| Measured::new()).collect(),
            groups,
            calls: HashMap::new(),
            events: BinaryHeap::new(),
            events_so_far: 0,
            random: Rng::with_seed(seed),
            began: crate::clock::now().into_std(),
            now: 0,
            warm: false,
        }
    }

    /// Lets the flows begin one after another within `stagger`, forgets what came before `warm_up`, and measures until
    /// `end`.
    pub(super) fn run(&mut self, stagger: Duration, warm_up: Duration, end: Duration) {
        for flow in 0..self.flows.len() {
            let begins = self.random.u64(0..=nanos(stagger));
            self.at(begins, Event::Wakes(flow));
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > nanos(end) {
                break;
            }
            self.now = at;
            if !self.warm && at >= nanos(warm_up) {
                self.warm = true;
            }
            match event {
                Event::Ends(call) => self.ends(call),
                Event::GoesOn(flow) => {
                    self.goes_on(flow);
                    self.grant();
                }
                Event::Wakes(flow) => self.wakes(flow),
            }
        }
    }

    pub(super) fn measured(&self, group: usize) -> &Measured {
        &self.measured[group]
    }

    /// The credit of a group's first flow, while it has calls.
    pub(super) fn credit(&self, group: usize) -> u32 {
        let first = self.flows.iter().find(|flow| flow.group == group);
        let mut readings = self.policy.flows();
        let own = readings.find(|reading| first.is_some_and(|flow| flow.id == reading.flow));
        own.map_or(0, |reading| reading.credit)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events_so_far += 1;
        self.events.push(Reverse((time, self.events_so_far, event)));
    }

    fn ends(&mut self, call: CallId) {
        let Some((flow, arrived)) = self.calls.remove(&call) else {
            return;
        };
        self.policy.on_end(call);
        let own = &mut self.flows[flow];
        own.outstanding -= 1;
        if self.warm {
            self.measured[own.group].ended(self.now - arrived);
        }
        // The place goes to who waits for it; what the caller sends next comes later.
        self.grant();
        let turn = self.random.u64(0..nanos(TURN));
        self.at(self.now + turn, Event::GoesOn(flow));
    }

    /// One of the flow's calls is over.
    fn goes_on(&mut self, flow: usize) {
        let own = &mut self.flows[flow];
        match self.groups[own.group].pattern {
            Pattern::Keeps(_) => self.send(flow, 1),
            Pattern::Bursts(_, pause) => {
                if own.outstanding == 0 && !own.resting {
                    own.resting = true;
                    self.at(self.now + nanos(pause), Event::Wakes(flow));
                }
            }
            Pattern::Walks(..) => {
                if own.outstanding < own.target {
                    self.send(flow, 1);
                }
            }
            Pattern::Thinks(_, mean) => {
                let pause = self.exponential(mean);
                self.at(self.now + pause, Event::Wakes(flow));
            }
            Pattern::Shapes {
                window,
                credits,
                watermark,
            } => {
                own.resting |= own.sent >= credits;
                if own.resting && own.outstanding < watermark {
                    (own.resting, own.sent) = (false, 0);
                }
                let missing = window - own.outstanding;
                if !own.resting {
                    let calls = missing.min(credits - own.sent);
                    self.send(flow, calls);
                }
            }
        }
    }

    fn wakes(&mut self, flow: usize) {
        match self.groups[self.flows[flow].group].pattern {
            Pattern::Keeps(calls) | Pattern::Bursts(calls, _) => {
                self.flows[flow].resting = false;
                self.send(flow, calls);
            }
            Pattern::Shapes { window, .. } => self.send(flow, window),
            Pattern::Walks(most, step) => {
                let down = self.random.bool();
                let own = &mut self.flows[flow];
                own.target = if down {
                    own.target.saturating_sub(1)
                } else {
                    (own.target + 1).min(most)
                };
                let missing = own.target.saturating_sub(own.outstanding);
                self.send(flow, missing);
                let next = self.exponential(step);
                self.at(self.now + next, Event::Wakes(flow));
            }
            Pattern::Thinks(callers, mean) => {
                // The first wake is for all of them: each begins with a pause of its own.
                if self.flows[flow].sent == 0 {
                    self.flows[flow].sent = 1;
                    for _ in 0..callers {
                        let pause = self.exponential(mean);
                        self.at(self.now + pause, Event::Wakes(flow));
                    }
                } else {
                    self.send(flow, 1);
                }
            }
        }
        self.grant();
    }

    fn send(&mut self, flow: usize, calls: u32) {
        let now = self.began + Duration::from_nanos(self.now);
        for _ in 0..calls {
            let own = &mut self.flows[flow];
            let Ok(arrival) = self.policy.on_arrival(own.id, now) else {
                continue;
            };
            own.outstanding += 1;
            if !matches!(self.groups[own.group].pattern, Pattern::Thinks(..)) {
                own.sent = own.sent.saturating_add(1);
            }
            self.calls.insert(arrival.call, (flow, self.now));
            if self.warm {
                let measured = &mut self.measured[own.group];
                measured.arrivals += 1;
                measured.rearmed += u64::from(arrival.rearmed);
            }
            self.grant();
        }
    }

    fn grant(&mut self) {
        while let Some(grant) = self.policy.next_grant() {
            let Some(&(flow, _)) = self.calls.get(&grant.call) else {
                continue;
            };
            let group = &self.groups[self.flows[flow].group];
            let off = group.jitter * (2.0 * self.random.f64() - 1.0);
            let service = group.service.mul_f64(1.0 + off);
            self.at(self.now + nanos(service), Event::Ends(grant.call));
        }
    }

    fn exponential(&mut self, mean: Duration) -> u64 {
        nanos(mean.mul_f64(-(1.0 - self.random.f64()).ln()))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
