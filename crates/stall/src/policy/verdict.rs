//! What the end of a probe leads to.

use std::time::{Duration, Instant};

use fastrand::Rng;
use steadfast_core::ChannelId;

use super::StallPolicy;
use crate::{
    Action, ProbeEnd, ProbeResult, Share, Spared, StallConfig,
    entry::{Entry, Quarantine, State, Unanswered},
};

impl StallPolicy {
    pub(super) fn probe_ended(&mut self, id: ChannelId, end: ProbeEnd, now: Instant) {
        let Some(entry) = self.channels.get_mut(&id) else {
            return;
        };
        let spoiled = std::mem::take(&mut entry.spoiled);
        let result = match end.result {
            ProbeResult::NoAnswer if spoiled => ProbeResult::NotAttempted,
            result => result,
        };
        let wait = jittered(self.seed, id, entry);
        match (&mut entry.state, result) {
            (State::Suspect, ProbeResult::Answered) => {
                entry.serve(&self.config, now);
                self.actions.push_back(Action::Clear(id));
            }
            (State::Suspect, ProbeResult::NoAnswer) => self.unanswered(id, end, now),
            (State::Suspect, _) => {
                entry.state = State::Serving;
                entry.pause_until = now + wait;
                if let Some(unanswered) = &mut entry.unanswered {
                    unanswered.next = now + wait;
                }
                self.actions.push_back(Action::Clear(id));
            }
            (State::Quarantined(it), ProbeResult::Answered) if now < it.hold_until => {
                it.next = Some(it.hold_until);
            }
            (State::Quarantined(_), ProbeResult::Answered) => {
                entry.serve(&self.config, now);
                self.actions.push_back(Action::Restore(id));
            }
            (State::Quarantined(it), result) => {
                it.next = Some(now + wait);
                if result == ProbeResult::NoAnswer {
                    entry.back_off(&self.config);
                }
            }
            (State::Serving | State::GivenUp, _) => {}
        }
        self.decide_again(now);
    }

    /// A suspect's probe got no answer.
    fn unanswered(&mut self, id: ChannelId, end: ProbeEnd, now: Instant) {
        let share = self.share();
        let too_many = self.is_too_much(share);
        let entry = self.channels.get_mut(&id).expect("it was just there");
        entry.state = State::Serving;
        let spared = if end.moved {
            entry.serve(&self.config, now);
            Spared::Moved
        } else if !end.others && !self.config.alone {
            Spared::NoOthers
        } else if entry.is_member() && too_many {
            Spared::TooMany
        } else {
            self.quarantine(id, share, now);
            return;
        };
        if spared != Spared::Moved {
            entry.unanswered = Some(Unanswered {
                at: now,
                next: now + jittered(self.seed, id, entry),
                by_share: spared == Spared::TooMany,
            });
            entry.back_off(&self.config);
        }
        self.actions.push_back(Action::Spare(id, spared, share));
    }

    /// What only the share of the pool spared may be put in quarantine now.
    fn decide_again(&mut self, now: Instant) {
        let spared = |(id, entry): (&ChannelId, &Entry)| {
            let serving = matches!(entry.state, State::Serving);
            let by_share = entry.unanswered.as_ref().is_some_and(|it| it.by_share);
            (serving && by_share).then_some(*id)
        };
        let again: Vec<ChannelId> = self.channels.iter().filter_map(spared).collect();
        for id in again {
            let share = self.share();
            if !self.is_too_much(share) {
                self.quarantine(id, share, now);
            }
        }
    }

    fn is_too_much(&self, share: Share) -> bool {
        let most = share.pool * self.config.most_percent as usize / 100;
        !self.config.alone && share.silent > most
    }

    fn quarantine(&mut self, id: ChannelId, share: Share, now: Instant) {
        let config = &self.config;
        self.channels.entry(id).and_modify(|entry| {
            entry.unanswered = None;
            entry.delay = config.reprobe;
            entry.strikes.push_back(now);
            let next = now + jittered(self.seed, id, entry);
            entry.state = State::Quarantined(Quarantine {
                since: now,
                next: Some(next),
                hold_until: now,
            });
            entry.back_off(config);
        });
        self.actions.push_back(Action::Quarantine(id, share));
    }

    /// More streams were dropped at once than the transport may remember: what the peer still sends for
    /// them may end the connection, so nobody is to be on it.
    pub(super) fn ended(&mut self, id: ChannelId, open: usize, now: Instant) {
        let many = self.config.resets.is_some_and(|most| open > most);
        let Some(entry) = self.channels.get_mut(&id).filter(|_| many) else {
            return;
        };
        let State::Quarantined(quarantine) = &mut entry.state else {
            return;
        };
        if self.config.alone {
            // Nobody could make another one; such a transport dials again by itself.
            quarantine.hold_until = now + self.config.reprobe_most;
        } else {
            entry.state = State::GivenUp;
            self.actions.push_back(Action::GiveUp(id, open));
        }
    }
}

/// The time to a channel's next probe, ± 20 %, so that many clients don't ask at once.
fn jittered(seed: u64, id: ChannelId, entry: &Entry) -> Duration {
    let mut random = Rng::with_seed(seed ^ id.get().rotate_left(32) ^ entry.probes);
    entry.delay.mul_f64(0.8 + 0.4 * random.f64())
}

impl Entry {
    fn back_off(&mut self, config: &StallConfig) {
        self.delay = (self.delay * 2).min(config.reprobe_most);
    }
}
