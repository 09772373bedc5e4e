//! What the project's own benches and simulations need of a pick. No part of the API: it changes at any
//! time.

use std::{fmt, sync::Arc};

use http::Request;
use steadfast_core::{Meter, Metered, now};

use crate::{
    BalanceConfig, NoWarmUp, Places, Strategy,
    member::{Member, Roster},
    pick::{self, Rules},
    shared::{Picked, Shared},
};

/// A pool whose channels are given and never change: it dials nothing and starts no task.
pub struct Picker<S> {
    shared: Arc<Shared<S>>,
    request: Request<()>,
}

impl<S: Clone + Send + Sync + 'static> Picker<S> {
    /// A pool of these channels.
    pub fn new(channels: impl IntoIterator<Item = Metered<S>>) -> Self {
        let dial = |_, _: &_| -> crate::shared::DialFuture<S> { Box::pin(std::future::pending()) };
        let shared = Shared::new(
            BalanceConfig::default(),
            Box::new(dial),
            Arc::new(NoWarmUp),
            Places::list([""; 0]),
        );
        let member = |made: Metered<S>| {
            let (id, place) = (made.id(), made.place().clone());
            let owner = made.meter().owner();
            Arc::new(Member::new(
                id,
                place,
                (made, owner),
                &shared.signals,
                now(),
            ))
        };
        let members: Vec<_> = channels.into_iter().map(member).collect();
        let meter = |member: &Arc<Member<S>>| member.channel.meter.clone();
        let roster = Roster {
            meters: members.iter().map(meter).collect(),
            members,
            hopeful: false,
            ..Roster::default()
        };
        shared.roster.store(Arc::new(roster));
        Self {
            shared: Arc::new(shared),
            request: Request::new(()),
        }
    }

    /// What `Balance::call` does before its future is made: looks up the channels, chooses one and
    /// claims it. Dropping the answer gives it back.
    pub fn pick(&self) -> Option<Pick<S>> {
        let picked = self
            .shared
            .pick(&self.shared.roster.load(), &self.request, false);
        picked.ok().map(Pick)
    }
}

impl<S> fmt::Debug for Picker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picker").finish_non_exhaustive()
    }
}

/// One request in flight on the channel that was picked, until it is dropped.
pub struct Pick<S>(Picked<S>);

impl<S> Pick<S> {
    /// The channel's service.
    pub fn service(&self) -> &S {
        &self.0.service
    }
}

impl<S> fmt::Debug for Pick<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pick")
            .field(&self.0.claim.member().channel)
            .finish()
    }
}

/// The index that a pick's scan chooses when it begins at `start`; nothing is claimed.
pub fn choose(meters: &[Meter], start: usize) -> Option<usize> {
    let rules = Rules {
        strategy: Strategy::LeastLoaded,
        assumed_streams: 65_534,
        cap: None,
    };
    let found = pick::choose(meters, (start, start), true, |_| false, rules);
    found.choice.map(|choice| choice.index)
}
