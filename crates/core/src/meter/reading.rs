//! The word of a meter, and what it says.

use std::fmt;

// One word, from the lowest bit: 24 bits in flight, 20 bits charge, 16 bits stream limit, 4 flags.
pub(super) const IN_FLIGHT_BITS: u32 = 24;
pub(super) const IN_FLIGHT_MASK: u64 = (1 << IN_FLIGHT_BITS) - 1;
pub(super) const CHARGE_BITS: u32 = 20;
pub(super) const CHARGE_MAX: u64 = (1 << CHARGE_BITS) - 1;
pub(super) const CHARGE_MASK: u64 = CHARGE_MAX << IN_FLIGHT_BITS;
pub(super) const LIMIT_SHIFT: u32 = IN_FLIGHT_BITS + CHARGE_BITS;
pub(super) const LIMIT_MASK: u64 = 0xffff << LIMIT_SHIFT;
/// Nobody has said what the limit is.
pub(super) const LIMIT_UNKNOWN: u64 = 0xffff;
pub(super) const LIMIT_MAX: u64 = LIMIT_UNKNOWN - 1;
pub(super) const TRIAL: u64 = 1 << 60;
pub(super) const RESERVE: u64 = 1 << 61;
pub(super) const SHUT: u64 = 1 << 62;
pub(super) const CONDEMNED: u64 = 1 << 63;
pub(super) const STANDING_MASK: u64 = TRIAL | RESERVE | SHUT | CONDEMNED;

/// Whether a channel may be picked, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Like any other.
    #[default]
    Open,
    /// Only when no open channel is left, or for its trial.
    Reserve,
    /// Not now: it may open again.
    Shut,
    /// Never again: it is to be replaced.
    Condemned,
}

/// What a meter showed at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reading(pub(super) u64);

impl Reading {
    /// Requests picked for the channel whose response bodies haven't ended.
    #[must_use]
    #[inline]
    pub fn in_flight(self) -> u32 {
        (self.0 & IN_FLIGHT_MASK) as u32
    }

    /// Requests that the layers say the channel is busier than it looks; the sum over its owners, at
    /// most 2^20 − 1.
    #[must_use]
    #[inline]
    pub fn charge(self) -> u32 {
        ((self.0 & CHARGE_MASK) >> IN_FLIGHT_BITS) as u32
    }

    /// What a pick compares within one standing: in flight + charge.
    #[must_use]
    #[inline]
    pub fn cost(self) -> u64 {
        u64::from(self.in_flight()) + u64::from(self.charge())
    }

    /// The bit of an [`open_rank`](Self::open_rank) that says that the channel may be on trial.
    pub const TRIAL_RANK: u64 = TRIAL;

    /// A number by which channels that are open like any other sort by their [cost](Self::cost), before all
    /// that any owner holds back in any way. It leaves the lowest 28 bits free, for a position.
    #[must_use]
    #[inline]
    pub fn open_rank(self) -> u64 {
        (self.0 & STANDING_MASK) | (self.cost() << 28)
    }

    /// Whether no owner holds it back, not even for a trial.
    #[must_use]
    #[inline]
    pub fn is_open(self) -> bool {
        self.0 & STANDING_MASK == 0
    }

    /// The worst standing that any owner gave it.
    #[must_use]
    #[inline]
    pub fn standing(self) -> Standing {
        if self.0 & CONDEMNED != 0 {
            Standing::Condemned
        } else if self.0 & SHUT != 0 {
            Standing::Shut
        } else if self.0 & RESERVE != 0 {
            Standing::Reserve
        } else {
            Standing::Open
        }
    }

    /// Streams that the peer allows at a time (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113, section
    /// 6.5.2), if the transport knows it. At most 65,534: a larger one shows as that.
    #[must_use]
    pub fn stream_limit(self) -> Option<u32> {
        let limit = (self.0 & LIMIT_MASK) >> LIMIT_SHIFT;
        (limit != LIMIT_UNKNOWN).then_some(limit as u32)
    }

    /// Whether one more request finds a free stream, and leaves one for a probe: in flight stays one
    /// below the limit, or at it where the limit is 1. `assumed` stands in for a limit that isn't known.
    #[must_use]
    pub fn has_room(self, assumed: u32) -> bool {
        let limit = self.stream_limit().unwrap_or(assumed);
        self.in_flight() < if limit > 1 { limit - 1 } else { limit }
    }

    /// Whether a channel in reserve may take one request as if it were open: its trial.
    #[must_use]
    #[inline]
    pub fn on_trial(self) -> bool {
        self.0 & (TRIAL | SHUT | CONDEMNED) == TRIAL
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("in_flight", &self.in_flight())
            .field("charge", &self.charge())
            .field("standing", &self.standing())
            .field("stream_limit", &self.stream_limit())
            .field("on_trial", &self.on_trial())
            .finish()
    }
}
