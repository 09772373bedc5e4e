//! The model: channels that share their capacity among their calls, and calls that arrive at random.
//!
//! A channel is processor sharing: with k calls on it each gets 1/k of its capacity. So it keeps one number, the
//! work that a call which was there all the time would have got; a call's headers come and a call ends when that has
//! grown by the work that they take.

use std::{cmp::Ordering, collections::BinaryHeap};

use fastrand::Rng;

use super::{
    Case, Counted,
    policy::{Claim, Policy},
};

/// The work until a call's headers come; it is part of the call's size.
const HEADERS: f64 = 0.05;

/// What a channel works towards.
struct Goal {
    /// The channel's work at which it is reached.
    at: f64,
    /// The call's arrival, for its end; none for its headers.
    ends: Option<f64>,
    /// Dropped with the goal: up to here the policy counts the call.
    _claim: Option<Claim>,
}

#[derive(Default)]
struct Channel {
    /// The next to be reached on top.
    goals: BinaryHeap<Goal>,
    calls: u32,
    work: f64,
    /// The time up to which `work` is right.
    now: f64,
}

impl Channel {
    fn advance(&mut self, now: f64) {
        if self.calls > 0 {
            self.work += (now - self.now) / f64::from(self.calls);
        }
        self.now = now;
    }

    /// When its next goal is reached, if no other call comes.
    fn next(&self) -> f64 {
        self.goals.peek().map_or(f64::INFINITY, |goal| {
            self.now + (goal.at - self.work) * f64::from(self.calls)
        })
    }

    fn begin(&mut self, now: f64, size: f64, claim: Claim, counted: Counted) {
        self.advance(now);
        let goal = |work: f64, ends, claim| Goal {
            at: self.work + work,
            ends,
            _claim: claim,
        };
        match counted {
            Counted::Body => self.goals.push(goal(size, Some(now), Some(claim))),
            Counted::Headers => {
                let (headers, end) = (
                    goal(size.min(HEADERS), None, Some(claim)),
                    goal(size, Some(now), None),
                );
                self.goals.extend([headers, end]);
            }
        }
        self.calls += 1;
    }

    /// Reaches the next goal. If that is a call's end: how long the call took.
    fn reach(&mut self, now: f64) -> Option<f64> {
        let goal = self.goals.pop()?;
        self.work = goal.at;
        self.now = now;
        let arrived = goal.ends?;
        self.calls -= 1;
        Some(now - arrived)
    }
}

/// The times that calls took, in the order in which they ended; without those that ended among the first tenth.
pub(super) fn latencies(case: Case, calls: u32, seed: u64) -> Vec<f64> {
    // Our pool breaks ties with the thread's generator.
    fastrand::seed(seed);
    let mut random = Rng::with_seed(seed);
    let mut policy = Policy::new(case.picker, case.channels);
    let mut channels: Vec<_> = (0..case.channels).map(|_| Channel::default()).collect();
    let rate = case.rho * case.channels as f64;
    let mut arrives = exponential(&mut random) / rate;
    let mut latencies = Vec::new();
    let mut arrived = 0;
    while latencies.len() < calls as usize {
        let (at, channel) = first(&mut channels);
        if at < arrives {
            latencies.extend(channel.reach(at));
            continue;
        }
        let (index, claim) = policy.pick(&mut random);
        channels[index].begin(arrives, exponential(&mut random), claim, case.counted);
        arrived += 1;
        arrives = if arrived < calls {
            arrives + exponential(&mut random) / rate
        } else {
            f64::INFINITY
        };
    }
    latencies.split_off(calls as usize / 10)
}

/// The channel that reaches its next goal first, and when.
fn first(channels: &mut [Channel]) -> (f64, &mut Channel) {
    let next = channels.iter_mut().map(|channel| (channel.next(), channel));
    next.min_by(|(a, _), (b, _)| a.total_cmp(b))
        .expect("there are channels")
}

/// Exponentially distributed with mean 1.
fn exponential(random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

impl Ord for Goal {
    /// The one that is reached first is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at)
    }
}

impl PartialOrd for Goal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Goal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Goal {}
