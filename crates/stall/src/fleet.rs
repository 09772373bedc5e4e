//! What all channels of one layer share: the policy, and what is done about its decisions.

mod watch;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use steadfast_core::{ChannelId, Standing, now};
use tokio::{runtime::Handle, sync::Notify};

use crate::{
    Action, ChannelState, Fact, ProbeEnd, ProbeResult, Ring, StallConfig, StallPolicy,
    channel::Channel, observe::Metrics, ring::Recorder, seats::Awake,
};

/// The channels of one layer.
pub(crate) struct Fleet {
    config: Arc<StallConfig>,
    /// Counts up while the pacemaker is awake. From 1, since 0 means never.
    tick: AtomicU64,
    awake: Awake,
    state: Mutex<State>,
    bell: Arc<Notify>,
    metrics: Metrics,
}

struct State {
    recorder: Recorder,
    channels: HashMap<ChannelId, Weak<Channel>>,
    in_pool: HashMap<ChannelId, bool>,
    actions: VecDeque<Action>,
    /// Whether a thread is carrying out actions: one at a time, so that they reach the meters in order
    /// though no lock is held meanwhile.
    acting: bool,
    /// The pacemaker's number and runtime, while there is one.
    pacemaker: Option<(u64, Handle)>,
    pacemakers: u64,
    /// When the pacemaker looks next, while it is awake.
    due: Option<Instant>,
    idle: u32,
}

impl Fleet {
    pub(crate) fn new(config: StallConfig) -> Arc<Self> {
        let metrics = Metrics::new(&config.name);
        let config = Arc::new(config);
        let start = now().into_std();
        let policy = StallPolicy::new(Arc::clone(&config), fastrand::u64(..));
        Arc::new(Self {
            tick: AtomicU64::new(1),
            awake: Awake::new(),
            state: Mutex::new(State {
                recorder: Recorder::new(policy, config.ring, start),
                channels: HashMap::new(),
                in_pool: HashMap::new(),
                actions: VecDeque::new(),
                acting: false,
                pacemaker: None,
                pacemakers: 0,
                due: None,
                idle: 0,
            }),
            bell: Arc::new(Notify::new()),
            metrics,
            config,
        })
    }

    pub(crate) fn config(&self) -> &StallConfig {
        &self.config
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.tick.load(Ordering::Relaxed)
    }

    pub(crate) fn ring(&self) -> Ring {
        self.state().recorder.ring().clone()
    }

    pub(crate) fn enrol(&self, channel: &Arc<Channel>) {
        let weak = Arc::downgrade(channel);
        let mut state = self.state();
        state.channels.insert(channel.id, weak);
        state.in_pool.insert(channel.id, true);
        state.tell(Fact::Joined(channel.id), now().into_std());
    }

    /// Whether a channel has this id.
    pub(crate) fn knows(&self, id: ChannelId) -> bool {
        self.state().channels.contains_key(&id)
    }

    /// For a channel's last owner.
    pub(crate) fn gone(&self, id: ChannelId) {
        let mut state = self.state();
        state.channels.remove(&id);
        state.in_pool.remove(&id);
        let last = state.channels.is_empty();
        drop(state);
        self.tell(Fact::Gone(id));
        if last {
            self.bell.notify_one();
        }
    }

    /// Tells the policy, and carries out what it decides.
    pub(crate) fn tell(&self, fact: Fact) {
        self.state().tell(fact, now().into_std());
        self.act();
    }

    pub(crate) fn probe_ended(&self, channel: &Arc<Channel>, result: ProbeResult) {
        let mut all = Vec::new();
        let mut state = self.state();
        state.collect(&mut all);
        let now = now().into_std();
        // The pacemaker may not have had its turn yet.
        state.note_lateness(&self.config, now);
        self.survey(&mut state, &all, now);
        let end = ProbeEnd {
            result,
            moved: channel.moved_since(channel.probed()),
            others: others_moved(&all, channel),
        };
        state.tell(Fact::ProbeEnded(channel.id, end), now);
        drop(state);
        self.metrics.probe_ended(result);
        self.act();
    }

    /// Whether a caller of another channel received something since this one's probe began.
    pub(crate) fn others_moved(&self, channel: &Channel) -> bool {
        others_moved(&self.all(), channel)
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
        while let Some(action) = state.actions.pop_front() {
            let channel = action.channel();
            let channel = channel.and_then(|id| state.channels.get(&id)?.upgrade());
            let runtime = state.pacemaker.as_ref().map(|it| it.1.clone());
            // A change of standing wakes waiting calls: never under the lock.
            drop(state);
            self.metrics.decided(action);
            if let Some(channel) = channel {
                self.perform(&channel, action, runtime.as_ref());
            }
            state = self.state();
        }
        state.acting = false;
        acting.armed = false;
    }

    fn perform(&self, channel: &Arc<Channel>, action: Action, runtime: Option<&Handle>) {
        let owner = &channel.owner;
        match action {
            Action::Suspect(_) => {
                owner.set_standing(Standing::Reserve);
                channel.probe(runtime);
            }
            Action::Probe(_) => channel.probe(runtime),
            Action::Clear(_) | Action::Spare(..) => owner.set_standing(Standing::Open),
            Action::Quarantine(id, _) => {
                // First, so that nobody who is woken is sent back here.
                owner.set_standing(Standing::Shut);
                let ended = channel.seats.shut();
                self.state().tell(Fact::Ended(id, ended), now().into_std());
            }
            Action::Restore(_) => {
                channel.seats.open();
                owner.set_standing(Standing::Open);
            }
            Action::Replace(_, cause) => owner.ask_for_replacement(cause.to_string()),
            Action::GiveUp(_, ended) => {
                owner.condemn(format!("stall: {ended} streams were dropped at once"));
                channel.seats.give_up();
            }
            Action::LocalStall(_) => {}
        }
    }

    /// The channels, and what is known of them.
    pub(crate) fn snapshot(&self) -> Vec<ChannelState> {
        let mut all = Vec::new();
        let state = self.state();
        state.collect(&mut all);
        let policy = state.recorder.policy();
        let mut states: Vec<ChannelState> = all
            .iter()
            .filter_map(|channel| {
                let waiting = channel.seats.look();
                Some(ChannelState {
                    id: channel.id,
                    place: channel.place.clone(),
                    condition: policy.condition(channel.id)?,
                    waiting: waiting.waiting,
                    quarantines: policy.strikes(channel.id),
                })
            })
            .collect();
        states.sort_by_key(|state| state.id);
        drop(state);
        states
    }

    fn all(&self) -> Vec<Arc<Channel>> {
        let mut all = Vec::new();
        self.state().collect(&mut all);
        all
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn others_moved(all: &[Arc<Channel>], channel: &Channel) -> bool {
    let mut others = all.iter().filter(|other| other.id != channel.id);
    others.any(|other| other.moved_since(channel.probed()))
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // So that a pacemaker that rests finds that it is over.
        self.bell.notify_one();
    }
}

impl State {
    /// All channels, into a list that lives longer than the lock: who lets go of a channel last takes it.
    fn collect(&self, all: &mut Vec<Arc<Channel>>) {
        all.extend(self.channels.values().filter_map(Weak::upgrade));
    }

    fn tell(&mut self, fact: Fact, now: Instant) {
        let actions = self.recorder.tell(fact, now);
        self.actions.extend(actions);
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

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("config", &self.config)
            .field("channels", &self.snapshot())
            .finish_non_exhaustive()
    }
}
