//! One channel as the policy knows it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{Condition, Look, StallConfig};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Among those that serve, as far as others say.
    pub(crate) in_pool: bool,
    pub(crate) left: bool,
    pub(crate) state: State,
    /// No silence from before this counts.
    pub(crate) heard: Instant,
    /// It isn't suspected before this.
    pub(crate) pause_until: Instant,
    pub(crate) unanswered: Option<Unanswered>,
    /// Whether this process stood still while its probe was out.
    pub(crate) spoiled: bool,
    /// The time to the next probe, before jitter.
    pub(crate) delay: Duration,
    /// When its quarantines began, within the window.
    pub(crate) strikes: VecDeque<Instant>,
    /// When its replacement was last asked for.
    pub(crate) asked: Option<Instant>,
    /// Probes so far, which also draw the jitter.
    pub(crate) probes: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Serving,
    Suspect,
    Quarantined(Quarantine),
    GivenUp,
}

#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    pub(crate) since: Instant,
    /// When it is asked next; none while a probe is out.
    pub(crate) next: Option<Instant>,
    /// No answer from before this is believed.
    pub(crate) hold_until: Instant,
}

/// A suspect whose probe went unanswered, and that was spared.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) at: Instant,
    pub(crate) next: Instant,
    /// Whether only the share of the pool spared it.
    pub(crate) by_share: bool,
}

/// What a look leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Suspect,
    Clear,
}

impl Entry {
    pub(crate) fn new(config: &StallConfig, now: Instant) -> Self {
        Self {
            in_pool: true,
            left: false,
            state: State::Serving,
            heard: now,
            pause_until: now,
            unanswered: None,
            spoiled: false,
            delay: config.reprobe,
            strikes: VecDeque::new(),
            asked: None,
            probes: 0,
        }
    }

    /// What this look leads to, if to anything.
    pub(crate) fn step(&self, config: &StallConfig, look: Look, now: Instant) -> Option<Step> {
        if !matches!(self.state, State::Serving) {
            return None;
        }
        if let Some(unanswered) = &self.unanswered {
            let moved = look.silent < now.saturating_duration_since(unanswered.at);
            let waits = look.waited >= config.silence;
            return if moved || (now >= unanswered.next && !waits) {
                Some(Step::Clear)
            } else {
                (now >= unanswered.next).then_some(Step::Suspect)
            };
        }
        let believed = now.saturating_duration_since(self.heard);
        let silence = believed.min(look.silent).min(look.waited);
        let alone = config.alone || look.others;
        let suspect = silence >= config.silence && alone && now >= self.pause_until;
        suspect.then_some(Step::Suspect)
    }

    /// In service and above suspicion.
    pub(crate) fn serve(&mut self, config: &StallConfig, now: Instant) {
        self.state = State::Serving;
        self.unanswered = None;
        self.heard = now;
        self.delay = config.reprobe;
    }

    /// Whether it counts among those that are silent.
    pub(crate) fn is_silent(&self) -> bool {
        let out = matches!(self.state, State::Quarantined(_) | State::Suspect);
        out || self.unanswered.is_some()
    }

    pub(crate) fn is_member(&self) -> bool {
        self.in_pool && !self.left && !matches!(self.state, State::GivenUp)
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.state {
            State::Serving if self.unanswered.is_some() => Condition::Unanswered,
            State::Serving => Condition::Serving,
            State::Suspect => Condition::Suspect,
            State::Quarantined(_) => Condition::Quarantined,
            State::GivenUp => Condition::GivenUp,
        }
    }

    /// When it is one to be replaced, if it is in quarantine, and why.
    pub(crate) fn replaceable(&self, config: &StallConfig) -> Option<(Instant, crate::Cause)> {
        let State::Quarantined(quarantine) = &self.state else {
            return None;
        };
        let strikes = u32::try_from(self.strikes.len()).unwrap_or(u32::MAX);
        Some(if strikes >= config.strikes {
            (quarantine.since, crate::Cause::Strikes(strikes))
        } else {
            let dead = quarantine.since + config.dead_after;
            (dead, crate::Cause::Dead)
        })
        .filter(|_| self.is_member())
    }
}
