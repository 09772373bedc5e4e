//! What the policy is told, and what it says.

use std::{fmt, time::Duration};

use steadfast_core::ChannelId;

/// What a look at one channel found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How long somebody has been waiting on it without a break: polled and got nothing. One caller, or
    /// several in turn, as those with short deadlines. Zero if nobody waits.
    pub waited: Duration,
    /// How long nothing has come on it for a caller.
    pub silent: Duration,
    /// Whether a caller of another channel received something within the last
    /// [`silence`](crate::StallConfig::silence).
    pub others: bool,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// A status of any kind, or a reset by the peer.
    Answered,
    /// It reached the transport, and no status came in time, or the connection went.
    NoAnswer,
    /// It couldn't be prepared, or didn't reach the transport.
    NotAttempted,
    /// It was given up before it ended: its runtime, or its channel, is gone.
    Dropped,
}

impl ProbeResult {
    /// A short name, for metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NoAnswer => "no_answer",
            Self::NotAttempted => "not_attempted",
            Self::Dropped => "dropped",
        }
    }
}

/// The end of a probe, and what happened while it was out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeEnd {
    /// What came of it.
    pub result: ProbeResult,
    /// Whether a caller of the channel received something since it began.
    pub moved: bool,
    /// Whether a caller of another channel did.
    pub others: bool,
}

/// One thing that the policy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A channel got the layer.
    Joined(ChannelId),
    /// Whether a channel is among those that serve: one that still connects, drains or is to be replaced
    /// isn't.
    InPool(ChannelId, bool),
    /// The last clone of its service went; exchanges may still be open.
    Left(ChannelId),
    /// Its last exchange went too.
    Gone(ChannelId),
    /// It was looked at.
    Looked(ChannelId, Look),
    /// Its probe ended.
    ProbeEnded(ChannelId, ProbeEnd),
    /// Its quarantine ended this many open exchanges.
    Ended(ChannelId, usize),
    /// This process stood still for about this long.
    LocalStall(Duration),
    /// The time that the policy named has come.
    Deadline,
}

/// Why a channel whose probe got no answer isn't put in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spared {
    /// Its callers received something while the probe was out.
    Moved,
    /// No other channel received anything while the probe was out: it may be us, or the server.
    NoOthers,
    /// Too much of the pool is silent.
    TooMany,
    /// Probes are switched off.
    ProbesOff,
}

impl Spared {
    /// A short name, for metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::NoOthers => "no_others",
            Self::TooMany => "too_many",
            Self::ProbesOff => "probes_off",
        }
    }
}

/// How much of the pool is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// In quarantine, suspect with the probe out, or with a probe that went unanswered.
    pub silent: usize,
    /// Channels that serve, these included.
    pub pool: usize,
}

/// Why a channel is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// So many quarantines within [`strike_window`](crate::StallConfig::strike_window).
    Strikes(u32),
    /// No answer for [`dead_after`](crate::StallConfig::dead_after).
    Dead,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strikes(count) => write!(f, "stall: quarantined {count} times"),
            Self::Dead => f.write_str("stall: no answer to its probes"),
        }
    }
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The channel is suspect: hold it in reserve and probe it.
    Suspect(ChannelId),
    /// Probe a channel in quarantine again.
    Probe(ChannelId),
    /// It isn't suspect any more: open it.
    Clear(ChannelId),
    /// Its probe got no answer, but it stays in service, because of this and at this share.
    Spare(ChannelId, Spared, Share),
    /// Shut it and end all that is open on it.
    Quarantine(ChannelId, Share),
    /// It answers again: open it.
    Restore(ChannelId),
    /// Ask the pool for another channel in its place.
    Replace(ChannelId, Cause),
    /// Its connection isn't to be used again: this many exchanges were ended on it at once.
    GiveUp(ChannelId, usize),
    /// This process stood still: count it.
    LocalStall(Duration),
}

impl Action {
    /// The channel that it is about.
    #[must_use]
    pub fn channel(&self) -> Option<ChannelId> {
        match *self {
            Self::Suspect(id)
            | Self::Probe(id)
            | Self::Clear(id)
            | Self::Spare(id, ..)
            | Self::Quarantine(id, _)
            | Self::Restore(id)
            | Self::Replace(id, _)
            | Self::GiveUp(id, _) => Some(id),
            Self::LocalStall(_) => None,
        }
    }
}
