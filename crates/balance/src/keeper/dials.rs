//! The keeper's dials, each on a task of its own.

use std::sync::{Arc, Weak};

use steadfast_classify::deepest_cause;
use steadfast_core::{ChannelId, MeterOwner, Metered, Place, Standing, now};
use tokio::{
    task::{AbortHandle, JoinError},
    time::timeout,
};

use super::{Dialled, Keeper};
use crate::{
    error::{DialTimeout, Failure},
    member::Member,
    shared::Shared,
};

impl<S: Clone + Send + Sync + 'static> Keeper<S> {
    pub(super) fn dial(&mut self, shared: &Arc<Shared<S>>, id: ChannelId, place: Place) {
        tracing::debug!(pool = self.pool, channel = %id, %place, "dialling");
        let budget = shared.config.connect_budget;
        let warm_up = Arc::clone(&shared.warm_up);
        let weak = Weak::clone(&self.shared);
        let to = place.clone();
        let task = self.dials.spawn(async move {
            let began = now();
            let connect = async {
                // The factory runs on the dial's own task: what it does, and a panic, stay there.
                let dial = {
                    let shared = weak.upgrade().ok_or("the pool is gone")?;
                    (shared.factory)(id, &to)
                };
                dial.await
            };
            let made = match timeout(budget, connect).await {
                Ok(Ok(made)) => made,
                Ok(Err(error)) => return (id, Err(error)),
                Err(_) => return (id, Err(DialTimeout(budget).into())),
            };
            let left = budget.saturating_sub(now() - began);
            // Not among those that serve until it joins.
            let owner = made.meter().owner();
            owner.set_standing(Standing::Shut);
            let warmed = warm_up.warm(made.clone(), left).await;
            (id, warmed.map(|()| (made, owner)))
        });
        self.running.insert(id, (task, place));
    }

    pub(super) fn on_dial(&mut self, shared: &Shared<S>, done: Result<Dialled<S>, JoinError>) {
        self.dirty = true;
        let (id, result) = match done {
            Ok(dialled) => dialled,
            Err(error) => {
                let is_it = |(id, (task, _)): (&ChannelId, &(AbortHandle, Place))| {
                    (task.id() == error.id()).then_some(*id)
                };
                // An aborted dial isn't among the running ones any more.
                let Some(id) = self.running.iter().find_map(is_it) else {
                    return;
                };
                (id, Err("the channel factory panicked".into()))
            }
        };
        let Some((_, place)) = self.running.remove(&id) else {
            return;
        };
        match result {
            Ok(made) => self.on_dialled(id, made, place),
            Err(error) => {
                let deepest = deepest_cause(&*error);
                tracing::warn!(pool = self.pool, channel = %id, %place, %error, deepest, "a dial failed");
                self.last_failure = Some(Arc::new(Failure::new("dialling", place, error)));
                if self.plan.on_dial_failed(id, now()) {
                    shared.metrics().replaced("failed");
                }
            }
        }
    }

    fn on_dialled(&mut self, id: ChannelId, made: (Metered<S>, MeterOwner), place: Place) {
        if self.plan.on_dialled(id, now()) {
            tracing::info!(pool = self.pool, channel = %id, %place, "channel ready");
            self.last_failure = None;
            let member = Member::new(id, place, made, &self.signals, now());
            self.members.push(Arc::new(member));
        }
    }
}
