//! A discrete-event simulation of a pool: virtual time, one seed, no tasks. The penalty is the layer's
//! own policy on real meters; the rest is as simple as it can be.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::{Duration, Instant},
};

use fastrand::Rng;
use steadfast_core::{Meter, MeterOwner, Standing, now};
use steadfast_penalty::{Member, Mode, PenaltyConfig, PenaltyPolicy};

/// How a channel is picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pick {
    /// The best standing first, then the lowest cost; ties at random.
    LeastLoaded,
    RoundRobin,
    Random,
}

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// So many a second, evenly spaced.
    Fixed(u32),
    /// So many a second on average, independent of each other.
    Poisson(u32),
    /// So many callers, each with one request after the other.
    Callers(u32),
}

/// What is done about failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Penalty {
    None,
    /// A charge of this many requests.
    Flat(u32),
    /// The same, and a failed request keeps its place in the count for as long as a success takes.
    Occupancy(u32),
    Reserve,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) pick: Pick,
    pub(crate) load: Load,
    pub(crate) penalty: Penalty,
    /// The chance that a request fails, by channel.
    pub(crate) failing: [f64; 4],
}

/// What was seen after the warm-up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Requests picked, by channel.
    pub(crate) picks: [u64; 4],
    pub(crate) completed: u64,
    /// Requests in flight on the fullest channel: the mean over time, and the most.
    pub(crate) fullest: f64,
    pub(crate) peak: u32,
}

impl Seen {
    /// The share of a channel's picks, in per cent.
    pub(crate) fn share(&self, channel: usize) -> f64 {
        let all: u64 = self.picks.iter().sum();
        100.0 * self.picks[channel] as f64 / all as f64
    }
}

const SUCCESS: Duration = Duration::from_millis(50);
const FAILURE: Duration = Duration::from_millis(2);
const WARM_UP: Duration = Duration::from_secs(6);
const END: Duration = Duration::from_secs(21);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Done { channel: usize, failed: bool },
    PlaceFree { channel: usize },
}

struct Channel {
    meter: Meter,
    owner: MeterOwner,
    member: Member,
    kept_places: u64,
}

struct Sim {
    setting: Setting,
    rng: Rng,
    start: Instant,
    at: Duration,
    channels: Vec<Channel>,
    policy: PenaltyPolicy,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    turn: usize,
    successes: VecDeque<Duration>,
    seen: Seen,
}

/// Runs one setting for 15 s after a warm-up of 6 s.
pub(crate) fn run(setting: Setting, seed: u64) -> Seen {
    let mut sim = Sim::new(setting, seed);
    let first = match setting.load {
        Load::Fixed(_) | Load::Poisson(_) => 1,
        Load::Callers(callers) => callers,
    };
    for _ in 0..first {
        // Callers don't start in step.
        let at = sim.rng.f64() * SUCCESS.as_secs_f64();
        sim.schedule(Duration::from_secs_f64(at), Event::Arrival);
    }
    while let Some(Reverse((at, _, event))) = sim.events.pop() {
        if at > END {
            break;
        }
        sim.advance(at);
        sim.happen(event);
    }
    let measured = END - WARM_UP;
    sim.seen.fullest /= measured.as_secs_f64();
    sim.seen
}

impl Sim {
    fn new(setting: Setting, seed: u64) -> Self {
        let start = now().into_std();
        let (mode, weight) = match setting.penalty {
            Penalty::None => (Mode::Flat, 25),
            Penalty::Flat(weight) | Penalty::Occupancy(weight) => (Mode::Flat, weight),
            Penalty::Reserve => (Mode::Reserve, 25),
        };
        let mut policy = PenaltyPolicy::new(PenaltyConfig {
            mode,
            weight: Some(weight),
            ..PenaltyConfig::default()
        });
        let channels = setting.failing.iter().map(|_| {
            let meter = Meter::new();
            Channel {
                owner: meter.owner(),
                meter,
                member: policy.join(start),
                kept_places: 0,
            }
        });
        Self {
            channels: channels.collect(),
            rng: Rng::with_seed(seed),
            setting,
            start,
            at: Duration::ZERO,
            policy,
            events: BinaryHeap::new(),
            order: 0,
            turn: 0,
            successes: VecDeque::new(),
            seen: Seen::default(),
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.order += 1;
        let entry = (self.at + after, self.order, event);
        self.events.push(Reverse(entry));
    }

    /// Moves the time on, and the policy's timer with it.
    fn advance(&mut self, to: Duration) {
        if to > WARM_UP {
            let in_flight = |c: &Channel| c.meter.read().in_flight();
            let fullest = self.channels.iter().map(in_flight).max().unwrap();
            let span = to - self.at.max(WARM_UP);
            self.seen.fullest += f64::from(fullest) * span.as_secs_f64();
            self.seen.peak = self.seen.peak.max(fullest);
        }
        self.at = to;
        let end = self.start + to;
        while let Some(next) = self.policy.next_deadline().filter(|next| *next <= end) {
            self.policy.on_deadline(next);
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.policy.next_action() {
            let channel = self.channels.iter().find(|c| c.member == action.member);
            let owner = &channel.unwrap().owner;
            if let Some(reserve) = action.reserve {
                owner.set_standing(if reserve {
                    Standing::Reserve
                } else {
                    Standing::Open
                });
            }
            if let Some(charge) = action.charge {
                owner.set_charge(charge);
            }
            if action.trial {
                owner.grant_trial();
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival => {
                self.begin();
                match self.setting.load {
                    Load::Fixed(rate) => {
                        self.schedule(Duration::from_secs(1) / rate, Event::Arrival);
                    }
                    Load::Poisson(rate) => {
                        let gap = -(1.0 - self.rng.f64()).ln() / f64::from(rate);
                        self.schedule(Duration::from_secs_f64(gap), Event::Arrival);
                    }
                    Load::Callers(_) => {}
                }
            }
            Event::Done { channel, failed } => {
                self.done(channel, failed);
                if matches!(self.setting.load, Load::Callers(_)) {
                    self.begin();
                }
            }
            Event::PlaceFree { channel } => self.channels[channel].kept_places -= 1,
        }
    }

    fn begin(&mut self) {
        let channel = self.pick();
        let meter = &self.channels[channel].meter;
        meter.claim(meter.read()).unwrap();
        let failed = self.rng.f64() < self.setting.failing[channel];
        let takes = if failed { FAILURE } else { SUCCESS };
        self.schedule(takes, Event::Done { channel, failed });
        if self.at > WARM_UP {
            self.seen.picks[channel] += 1;
        }
    }

    fn done(&mut self, channel: usize, failed: bool) {
        self.channels[channel].meter.release();
        if self.at > WARM_UP {
            self.seen.completed += 1;
        }
        if !failed {
            self.successes.push_back(SUCCESS);
            if self.successes.len() > 100 {
                self.successes.pop_front();
            }
            return;
        }
        if self.setting.penalty != Penalty::None {
            let member = self.channels[channel].member;
            self.policy.on_failure(member, self.start + self.at);
            self.act();
        }
        if !matches!(self.setting.penalty, Penalty::Occupancy(_)) {
            return;
        }
        if let Some(typical) = self.typical() {
            self.channels[channel].kept_places += 1;
            self.schedule(typical, Event::PlaceFree { channel });
        }
    }

    /// The median time of the last 100 successes.
    fn typical(&self) -> Option<Duration> {
        let mut times: Vec<_> = self.successes.iter().copied().collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    fn pick(&mut self) -> usize {
        let count = self.channels.len();
        match self.setting.pick {
            Pick::RoundRobin => {
                self.turn = (self.turn + 1) % count;
                self.turn
            }
            Pick::Random => self.rng.usize(..count),
            Pick::LeastLoaded => {
                let rank = |channel: &Channel| {
                    let reading = channel.meter.read();
                    let reserve = reading.standing() == Standing::Reserve && !reading.on_trial();
                    (reserve, reading.cost() + channel.kept_places)
                };
                let best = self.channels.iter().map(rank).min().unwrap();
                let ties: Vec<_> = (0..count)
                    .filter(|&i| rank(&self.channels[i]) == best)
                    .collect();
                ties[self.rng.usize(..ties.len())]
            }
        }
    }
}
