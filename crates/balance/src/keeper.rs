//! The task that keeps a pool's channels: it carries out what the plan decides.

mod dials;
mod sizes;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{Ordering, fence},
    },
};

use steadfast_core::{BoxError, ChannelId, MeterOwner, Metered, Place, Standing, now};
use tokio::{
    select,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    Connectivity,
    error::Failure,
    member::{Member, Roster, Signals},
    places::Followed,
    plan::{Action, Plan, Why},
    shared::Shared,
};

type Dialled<S> = (ChannelId, Result<(Metered<S>, MeterOwner), BoxError>);

pub(crate) struct Keeper<S> {
    shared: Weak<Shared<S>>,
    signals: Arc<Signals>,
    pool: String,
    places: Followed,
    plan: Plan,
    members: Vec<Arc<Member<S>>>,
    draining: Vec<(Arc<Member<S>>, Instant)>,
    dials: JoinSet<Dialled<S>>,
    running: HashMap<ChannelId, (AbortHandle, Place)>,
    last_failure: Option<Arc<Failure>>,
    closed: bool,
    /// Whether the roster has to be published anew.
    dirty: bool,
    /// Whether a channel's standing or stream limit changed since the last turn.
    rung: bool,
    /// Whether growth on demand pauses.
    pausing: bool,
}

impl<S: Clone + Send + Sync + 'static> Keeper<S> {
    pub(crate) fn new(shared: &Arc<Shared<S>>) -> Self {
        let mut places = shared.places.follow();
        let mut plan = Plan::new(&shared.config, fastrand::u64(..), now());
        plan.on_places(places.current());
        Self {
            shared: Arc::downgrade(shared),
            signals: Arc::clone(&shared.signals),
            pool: shared.config.name.clone(),
            places,
            plan,
            members: Vec::new(),
            draining: Vec::new(),
            dials: JoinSet::new(),
            running: HashMap::new(),
            last_failure: None,
            closed: false,
            dirty: true,
            rung: false,
            pausing: false,
        }
    }

    /// Runs until the last clone of the pool is gone, or it is closed and empty. Dropping the task
    /// gives up its dials.
    pub(crate) async fn run(mut self) {
        let signals = Arc::clone(&self.signals);
        // It listens from when it is made, so before each look; and it lives on when something else was
        // chosen first, so that no change is missed.
        let standing = signals.standing.notified();
        tokio::pin!(standing);
        loop {
            let Some(deadline) = self.turn() else {
                return;
            };
            select! {
                () = standing.as_mut() => {
                    self.rung = true;
                    standing.set(signals.standing.notified());
                }
                () = signals.work.notified() => {}
                () = sleep_until(deadline) => {}
                () = self.places.changed(), if !self.closed => {
                    let places = self.places.current();
                    self.plan.on_places(places);
                    self.dirty = true;
                }
                Some(done) = self.dials.join_next() => {
                    let Some(shared) = self.shared.upgrade() else {
                        return;
                    };
                    self.on_dial(&shared, done);
                }
            }
        }
    }

    /// Looks at everything once and acts. Says when to look again, at the latest.
    fn turn(&mut self) -> Option<Instant> {
        let shared = self.shared.upgrade()?;
        let now = now();
        if shared.is_closed() && !self.closed {
            self.closed = true;
            self.dirty = true;
            self.plan.on_close();
        }
        self.plan.on_warm(shared.most_asked());
        self.look_for_condemned(now);
        self.look_for_replacements();
        self.plan.on_deadline(now);
        if self.plan.next_interval() <= now {
            self.on_interval(&shared, now);
        }
        self.grow_on_demand(&shared, now);
        while let Some(action) = self.plan.next_action() {
            self.act(&shared, action, now);
        }
        self.look_at_draining(&shared, now);
        let rung = std::mem::take(&mut self.rung);
        if std::mem::take(&mut self.dirty) {
            self.publish(&shared);
            self.signals.changed.notify_waiters();
        } else if rung {
            self.signals.changed.notify_waiters();
        }
        if self.closed && self.draining.is_empty() {
            return None;
        }
        let limits = self.draining.iter().map(|(_, limit)| *limit);
        let deadlines = limits.chain(self.plan.next_deadline());
        let growth = self.pausing.then(|| self.plan.next_growth());
        deadlines
            .chain(growth)
            .chain([self.plan.next_interval()])
            .min()
    }

    fn look_for_condemned(&mut self, now: Instant) {
        for member in &self.members {
            let channel = &member.channel;
            if channel.meter.read().standing() == Standing::Condemned {
                let cause = channel.meter.condemned_for();
                let cause = cause.as_deref().unwrap_or("its layers condemned it");
                tracing::info!(pool = self.pool, channel = %channel.id, place = %channel.place, cause, "channel lost");
                let failure = Failure::new("channel to", channel.place.clone(), cause.into());
                self.last_failure = Some(Arc::new(failure));
                let answered = channel.answered.load(Ordering::Relaxed);
                self.plan.on_condemned(channel.id, answered, now);
                self.dirty = true;
            }
        }
    }

    /// Layers ask for replacements on the meters.
    fn look_for_replacements(&mut self) {
        for member in &self.members {
            let channel = &member.channel;
            if let Some(cause) = channel.meter.take_replacement() {
                let begins = self.plan.on_replacement_asked(channel.id);
                tracing::info!(pool = self.pool, channel = %channel.id, place = %channel.place, %cause, begins, "a replacement was asked for");
            }
        }
    }

    fn act(&mut self, shared: &Arc<Shared<S>>, action: Action, now: Instant) {
        self.dirty = true;
        match action {
            Action::Dial { id, place } => self.dial(shared, id, place),
            Action::Abort { id } => {
                if let Some((task, _)) = self.running.remove(&id) {
                    task.abort();
                }
            }
            Action::Drain { id, why } => {
                let is_it = |member: &Arc<Member<S>>| member.channel.id == id;
                if let Some(index) = self.members.iter().position(is_it) {
                    let member = self.members.swap_remove(index);
                    tracing::info!(pool = self.pool, channel = %id, place = %member.channel.place, ?why, "channel drains");
                    if why == Why::Replaced {
                        shared.metrics().replaced("replaced");
                    }
                    // Shut first: a call that holds the old roster can't claim it any more.
                    member.channel.owner.set_standing(Standing::Shut);
                    member.channel.draining.store(true, Ordering::SeqCst);
                    // Before its requests are looked at: see the drop of a lease.
                    fence(Ordering::SeqCst);
                    self.draining
                        .push((member, now + shared.config.drain_limit));
                }
            }
        }
    }

    /// Lets go of drained channels, and cuts those whose time is over.
    fn look_at_draining(&mut self, shared: &Shared<S>, now: Instant) {
        let before = self.draining.len();
        self.draining.retain(|(member, limit)| {
            let channel = &member.channel;
            let open = channel.meter.read().in_flight();
            if *limit <= now && !channel.cut.is_thrown() {
                tracing::warn!(pool = self.pool, channel = %channel.id, open, "drain limit reached");
                shared.metrics().failed_locally(u64::from(open));
                if shared.is_closed() {
                    shared.cut.fetch_add(open.into(), Ordering::Relaxed);
                }
                channel.cut.throw();
            }
            open > 0 && !channel.cut.is_thrown()
        });
        self.dirty |= before != self.draining.len();
    }

    fn publish(&self, shared: &Shared<S>) {
        let connecting = self
            .plan
            .connecting()
            .map(|(place, failures)| (place.clone(), failures));
        let roster = Roster {
            meters: self
                .members
                .iter()
                .map(|m| m.channel.meter.clone())
                .collect(),
            members: self.members.clone(),
            draining: self
                .draining
                .iter()
                .map(|(member, _)| Arc::clone(member))
                .collect(),
            connecting: connecting.collect(),
            hopeful: self.plan.is_hopeful() || self.places.is_awaited(),
            last_failure: self.last_failure.clone(),
        };
        let connectivity = if shared.is_closed() {
            Connectivity::Closed
        } else if !roster.members.is_empty() {
            Connectivity::Ready
        } else if roster.hopeful {
            Connectivity::Connecting
        } else {
            Connectivity::Failing
        };
        shared.metrics().channels(&roster);
        let ready = roster.members.len();
        let alive = ready + roster.draining.len();
        shared.roster.store(Arc::new(roster));
        shared.connectivity.send_if_modified(|last| {
            // Whoever closed the pool may have said so already: it stays so.
            *last != Connectivity::Closed && std::mem::replace(last, connectivity) != connectivity
        });
        shared
            .ready
            .send_if_modified(|last| std::mem::replace(last, ready) != ready);
        shared
            .alive
            .send_if_modified(|last| std::mem::replace(last, alive) != alive);
    }
}
