//! Choosing and claiming a channel for a request: what every call does first.

use std::sync::{Arc, atomic::Ordering};

use http::Request;
use steadfast_core::{Avoid, Prefer, Standing};

use super::{NoPick, Picked, Shared};
use crate::{
    Strategy,
    member::{Claim, Member, Roster},
    pick::{self, Choice, Rules},
};

impl<S> Shared<S> {
    /// Claims the best channel for a request, if one may take it. A `queued` call keeps to the
    /// maximum per channel while others still dial; so do all while calls are queued.
    pub(crate) fn pick<Q>(
        &self,
        roster: &Roster<S>,
        request: &Request<Q>,
        queued: bool,
    ) -> Result<Picked<S>, NoPick>
    where
        S: Clone,
    {
        let count = roster.meters.len();
        if count == 0 {
            return Err(NoPick { full: false });
        }
        let queued = queued || self.signals.waiting.load(Ordering::Relaxed) > 0;
        let rules = Rules {
            strategy: self.config.strategy,
            assumed_streams: self.config.assumed_streams,
            cap: (roster.hopeful && queued).then_some(self.config.max_requests),
        };
        let extensions = request.extensions();
        let avoid = extensions.get::<Avoid>().filter(|avoid| !avoid.is_empty());
        let avoided = |index: usize| {
            avoid.is_some_and(|avoid| avoid.contains(roster.members[index].channel.id))
        };
        let read = |index: usize| roster.meters[index].read();
        let preferred = extensions.get::<Prefer>().and_then(|prefer| {
            let is_it = |member: &Arc<Member<S>>| member.channel.id == prefer.0;
            roster.members.iter().position(is_it)
        });
        // A preferred channel is looked at beside the scan.
        let plain = avoid.is_none();
        loop {
            let starts = self.start_of_scan(count);
            let found = pick::choose(&roster.meters, starts, plain, avoided, rules);
            let affine = preferred
                .filter(|index| !avoided(*index))
                .map(|index| Choice {
                    index,
                    seen: read(index),
                });
            let affine = affine.filter(|Choice { seen, .. }| {
                let has_room = seen.has_room(rules.assumed_streams);
                let below = rules.cap.is_none_or(|cap| seen.in_flight() < cap);
                seen.standing() == Standing::Open && has_room && below
            });
            let Some(choice) = affine.or(found.choice) else {
                return Err(NoPick { full: found.full });
            };
            // Another call may have claimed a place since the scan: then look again.
            if roster.meters[choice.index].claim(choice.seen).is_ok() {
                self.note_peak(found.in_flight + 1);
                self.note_pressure(choice.seen.in_flight());
                let member = &roster.members[choice.index];
                let claim = Claim::made(Arc::clone(member));
                let service = member.take();
                return Ok(Picked { claim, service });
            }
        }
    }

    /// Where a scan begins, and where the other one of two choices is: another channel, if there are two.
    fn start_of_scan(&self, count: usize) -> (usize, usize) {
        let start = match self.config.strategy {
            Strategy::RoundRobin => self.turn.fetch_add(1, Ordering::Relaxed) % count,
            _ => fastrand::usize(..count),
        };
        let second = match self.config.strategy {
            Strategy::PowerOfTwo if count > 1 => (start + fastrand::usize(1..count)) % count,
            _ => start,
        };
        (start, second)
    }

    /// A channel at its maximum was the best there was: the keeper is told, once until it has acted.
    fn note_pressure(&self, in_flight: u32) {
        let pressed = self.config.grow_on_demand && in_flight >= self.config.max_requests;
        let signals = &self.signals;
        if pressed
            && !signals.pressed.load(Ordering::Relaxed)
            && !signals.pressed.swap(true, Ordering::Relaxed)
        {
            signals.work.notify_one();
        }
    }

    /// No channel has a free stream: the keeper is told, and grows the pool by what the waiting calls need.
    pub(crate) fn note_starvation(&self) {
        self.signals.starved.store(true, Ordering::Relaxed);
        self.signals.work.notify_one();
    }

    fn note_peak(&self, in_flight: u64) {
        if in_flight > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(in_flight, Ordering::Relaxed);
        }
    }
}
