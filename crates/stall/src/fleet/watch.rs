//! Looking at the channels: what the pacemaker does at each tick, and when it runs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use steadfast_core::now;
use tokio::runtime::Handle;

use super::{Fleet, State};
use crate::{
    Fact, Look, StallConfig,
    channel::Channel,
    pacemaker::{Next, Pacemaker},
};

/// How many ticks without a caller that waits the pacemaker stays awake, so that calls one after another
/// don't wake it each time.
const LINGER: u32 = 20;

impl Fleet {
    /// Starts the pacemaker, or wakes it. Outside a runtime it can't be started.
    #[inline]
    pub(crate) fn wake(self: &Arc<Self>) {
        if !self.awake.is() {
            self.start();
        }
    }

    #[cold]
    fn start(self: &Arc<Self>) {
        let runtime = Handle::try_current().ok();
        let mut state = self.state();
        state.idle = 0;
        if state.pacemaker.is_some() {
            self.awake.set(true);
            drop(state);
            self.bell.notify_one();
        } else if let Some(runtime) = runtime {
            self.awake.set(true);
            state.pacemakers += 1;
            state.pacemaker = Some((state.pacemakers, runtime.clone()));
            let pacemaker = Pacemaker::new(self, &self.bell, state.pacemakers);
            drop(state);
            runtime.spawn(pacemaker.run());
        }
    }

    /// The pacemaker of this number is gone, and if it is the present one there is none now.
    pub(crate) fn pacemaker_gone(&self, number: u64) {
        let mut state = self.state();
        if state.pacemaker.as_ref().is_some_and(|it| it.0 == number) {
            state.pacemaker = None;
            state.due = None;
            self.awake.set(false);
            drop(state);
            // Those who wait start another one, where they are.
            self.all().iter().for_each(|channel| channel.seats.nudge());
        }
    }

    /// The pacemaker's turn.
    pub(crate) fn beat(&self) -> Next {
        let mut all = Vec::new();
        let mut state = self.state();
        state.collect(&mut all);
        let now = now();
        state.note_lateness(&self.config, now.into_std());
        if state.due.take().is_some() {
            self.tick.fetch_add(1, Ordering::Relaxed);
        }
        let seen = self.survey(&mut state, &all, now.into_std());
        state.idle = if seen.busy { 0 } else { state.idle + 1 };
        let next = if state.channels.is_empty() {
            state.pacemaker = None;
            self.awake.set(false);
            Next::End
        } else if state.idle > LINGER && self.rests(&all) {
            Next::Rest
        } else {
            let next = now + self.config.tick;
            state.due = Some(next.into_std());
            Next::At(next)
        };
        drop(state);
        self.metrics.oldest(seen.oldest);
        self.act();
        next
    }

    /// Lets the pacemaker rest, unless a caller has just come. `all` are all that there are, as the lock is
    /// held: who comes on another one finds that the pacemaker is to be woken.
    fn rests(&self, all: &[Arc<Channel>]) -> bool {
        let sits = |channel: &Arc<Channel>| channel.seats.look().sitting > 0;
        self.awake.may_rest(|| all.iter().any(sits))
    }

    /// Tells the policy what is new about the channels.
    pub(super) fn survey(&self, state: &mut State, all: &[Arc<Channel>], now: Instant) -> Seen {
        let tick = self.tick();
        // A stamp was made before the next tick: so long ago at least.
        let long = |ticks: u64| self.config.tick * u32::try_from(ticks).unwrap_or(u32::MAX);
        let ago = |stamp: u64| long(tick.saturating_sub(stamp + 1));
        let within = |stamp: u64| ago(stamp) < self.config.silence;
        let moves = |channel: &Channel| channel.moved().is_some_and(within);
        let moving = all.iter().filter(|channel| moves(channel)).count();
        let mut seen = Seen::default();
        for channel in all {
            let in_pool = channel.is_in_pool();
            if state.in_pool.insert(channel.id, in_pool) != Some(in_pool) {
                state.tell(Fact::InPool(channel.id, in_pool), now);
            }
            let waiting = channel.seats.look();
            seen.busy |= waiting.sitting > 0;
            seen.oldest = seen.oldest.max(waiting.since.map_or(Duration::ZERO, ago));
            let look = Look {
                waited: long(channel.awaited(waiting.waiting > 0, tick)),
                silent: channel.moved().map_or_else(|| long(tick), ago),
                others: moving > usize::from(moves(channel)),
            };
            if state.recorder.policy().is_news(channel.id, look, now) {
                state.tell(Fact::Looked(channel.id, look), now);
            }
        }
        let policy = state.recorder.policy();
        seen.busy |= policy.is_busy();
        if policy.next_deadline().is_some_and(|due| due <= now) {
            state.tell(Fact::Deadline, now);
        }
        seen
    }
}

/// What a look at all channels found.
#[derive(Default)]
pub(super) struct Seen {
    /// Whether there is anything to watch.
    busy: bool,
    /// How long the caller has waited that has waited longest.
    oldest: Duration,
}

impl State {
    /// The pacemaker is late: this process stood still, and so did whoever should have read answers.
    pub(super) fn note_lateness(&mut self, config: &StallConfig, now: Instant) {
        let Some(due) = self.due else {
            return;
        };
        let late = now.saturating_duration_since(due);
        if late >= config.tolerance {
            self.due = Some(now);
            self.tell(Fact::LocalStall(late), now);
        }
    }
}
