//! What all channels of one layer share: the policy, and the timer that ends its windows.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use metrics::SharedString;
use steadfast_core::{ChannelId, Meter, MeterOwner, Outcome, Standing, now};
use tokio::{runtime::Handle, sync::Notify};

use crate::{Member, Penalised, PenaltyConfig, PenaltyPolicy, failure, observe, timer::Timer};

type Failures = dyn Fn(&Outcome) -> bool + Send + Sync;

/// The channels of one layer.
pub(crate) struct Fleet {
    config: PenaltyConfig,
    pool: SharedString,
    failures: Box<Failures>,
    state: Mutex<State>,
    /// Rung when the timer has to look again; at the latest when the last penalised channel leaves.
    bell: Arc<Notify>,
}

struct State {
    policy: PenaltyPolicy,
    voices: HashMap<Member, Arc<Voice>>,
    /// Whether a thread is carrying out actions: one at a time, so that they reach the meters in order
    /// though no lock is held meanwhile.
    acting: bool,
    /// The number of the timer task, while there is one.
    timer: Option<u64>,
    timers: u64,
}

struct Voice {
    id: ChannelId,
    owner: MeterOwner,
}

/// One channel of a fleet, as its open exchanges know it: they may outlive its enrolment.
pub(crate) struct Channel {
    fleet: Arc<Fleet>,
    voice: Arc<Voice>,
    member: Member,
}

/// A channel's membership of the fleet, which its service holds: it ends with the last clone.
#[derive(Debug)]
pub(crate) struct Enrolment(Arc<Channel>);

impl Fleet {
    pub(crate) fn new(config: PenaltyConfig, failures: Box<Failures>) -> Arc<Self> {
        observe::describe();
        Arc::new(Self {
            pool: config.name.clone().into(),
            failures,
            state: Mutex::new(State {
                policy: PenaltyPolicy::new(config.clone()),
                voices: HashMap::new(),
                acting: false,
                timer: None,
                timers: 0,
            }),
            bell: Arc::new(Notify::new()),
            config,
        })
    }

    pub(crate) fn config(&self) -> &PenaltyConfig {
        &self.config
    }

    pub(crate) fn enrol(self: &Arc<Self>, id: ChannelId, meter: &Meter) -> Enrolment {
        let voice = Arc::new(Voice {
            id,
            owner: meter.owner(),
        });
        let member = self.change(|state| {
            let member = state.policy.join(now().into_std());
            state.voices.insert(member, Arc::clone(&voice));
            member
        });
        Enrolment(Arc::new(Channel {
            fleet: Arc::clone(self),
            voice,
            member,
        }))
    }

    pub(crate) fn penalised(&self) -> Vec<(ChannelId, Penalised)> {
        let state = self.state();
        let name = |(member, penalised)| Some((state.voices.get(&member)?.id, penalised));
        state.policy.penalised().filter_map(name).collect()
    }

    /// A failure of one channel. Says whether it counts: outside a runtime there is no timer that could
    /// end the window, so it doesn't.
    fn fail(self: &Arc<Self>, member: Member) -> bool {
        let runtime = Handle::try_current().ok();
        let (counts, spawn) = self.change(|state| {
            if state.timer.is_none() && runtime.is_none() {
                return (false, None);
            }
            let now = now().into_std();
            if !state.policy.is_penalised(member) {
                state.look_around(now);
            }
            state.policy.on_failure(member, now);
            let needed = state.timer.is_none() && state.policy.next_deadline().is_some();
            if needed {
                state.timers += 1;
                state.timer = Some(state.timers);
            }
            (true, state.timer.filter(|_| needed))
        });
        if let (Some(number), Some(runtime)) = (spawn, runtime) {
            runtime.spawn(Timer::new(self, &self.bell, number).run());
        }
        counts
    }

    /// Tells the policy something, carries out what it decides, and wakes the timer if it sleeps too
    /// long for it.
    fn change<R>(&self, tell: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let before = state.policy.next_deadline();
        let result = tell(&mut state);
        let sooner = state.timer.is_some() && state.policy.next_deadline() < before;
        drop(state);
        self.act();
        if sooner {
            self.bell.notify_one();
        }
        result
    }

    /// The timer's turn: says when its next one is. With `None`, the timer is no more.
    pub(crate) fn turn(&self) -> Option<Instant> {
        let mut state = self.state();
        let now = now().into_std();
        state.look_around(now);
        state.policy.on_deadline(now);
        let next = state.policy.next_deadline();
        if next.is_none() {
            state.timer = None;
        }
        drop(state);
        self.act();
        next
    }

    /// The timer of this number is gone, and if it is the present one there is none now.
    pub(crate) fn timer_gone(&self, number: u64) {
        let mut state = self.state();
        if state.timer == Some(number) {
            state.timer = None;
        }
    }

    /// Carries out what the policy decided, unless another thread is at it and will find it.
    fn act(&self) {
        // Before the lock, so that it is dropped after it.
        let mut acting = Acting {
            fleet: self,
            armed: false,
        };
        let mut state = self.state();
        if std::mem::replace(&mut state.acting, true) {
            return;
        }
        acting.armed = true;
        while let Some(action) = state.policy.next_action() {
            let voice = if action.gone {
                state.voices.remove(&action.member)
            } else {
                state.voices.get(&action.member).cloned()
            };
            // A change of standing wakes waiting calls: never under the lock.
            drop(state);
            if let Some(voice) = voice {
                voice.say(action.reserve, action.charge, action.trial);
            }
            state = self.state();
        }
        state.acting = false;
        acting.armed = false;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets another thread act if this one panics in somebody's waker.
struct Acting<'a> {
    fleet: &'a Fleet,
    armed: bool,
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.fleet.state().acting = false;
        }
    }
}

impl State {
    /// Tells the policy which channels other layers hold back.
    fn look_around(&mut self, now: Instant) {
        for (&member, voice) in &self.voices {
            let usable = voice.owner.meter().read().standing() < Standing::Shut;
            self.policy.on_usable(member, usable, now);
        }
    }
}

impl Voice {
    fn say(&self, reserve: Option<bool>, charge: Option<u32>, trial: bool) {
        // In this order it never looks better than it is in between.
        if reserve == Some(true) {
            self.owner.set_standing(Standing::Reserve);
        }
        if let Some(charge) = charge {
            self.owner.set_charge(charge);
        }
        if reserve == Some(false) {
            self.owner.set_standing(Standing::Open);
        }
        if trial {
            self.owner.grant_trial();
        }
    }
}

impl Channel {
    /// An exchange of this channel ended, or is known to end, like this. Says whether that counts.
    pub(crate) fn judge(&self, outcome: Outcome) -> bool {
        let fleet = &self.fleet;
        // While this thread unwinds, a predicate that panics too would end the process.
        if !fleet.config.enabled || failure::says_nothing(outcome) || std::thread::panicking() {
            return false;
        }
        let counts = (fleet.failures)(&outcome) && fleet.fail(self.member);
        if counts {
            observe::penalised(&fleet.pool, self.voice.id, outcome);
        }
        counts
    }

    /// Whether the times of successes matter.
    pub(crate) fn keeps_time(&self) -> bool {
        self.fleet.config.occupancy && self.fleet.config.enabled
    }

    /// A request of this channel succeeded in this time.
    pub(crate) fn succeeded(&self, time: Duration) {
        self.fleet.state().policy.on_success(time);
    }
}

impl Enrolment {
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.0
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.0.voice.id
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.0.voice.owner.meter()
    }
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        let Channel { fleet, member, .. } = &*self.0;
        fleet.change(|state| state.policy.leave(*member, now().into_std()));
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("config", &self.config)
            .field("penalised", &self.penalised())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("id", &self.voice.id)
            .field("meter", self.voice.owner.meter())
            .finish_non_exhaustive()
    }
}
