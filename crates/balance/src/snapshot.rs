//! The pool as plain data.

use std::{sync::atomic::Ordering, time::Duration};

use steadfast_core::{ChannelId, Place, Standing, now};

use crate::member::{Channel, Roster};

/// Whether the pool can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connectivity {
    /// No channel is ready yet, but a dial that may succeed is under way.
    Connecting,
    /// At least one channel is connected.
    Ready,
    /// No channel is ready and the last dial of each failed; they are dialled again with a backoff.
    Failing,
    /// The pool was closed.
    Closed,
}

/// The pool at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Ready channels, in no particular order.
    pub channels: Vec<ChannelSnapshot>,
    /// Removed channels whose last responses haven't ended.
    pub draining: Vec<ChannelSnapshot>,
    /// Channels that are being dialled or wait to be dialled again.
    pub connecting: Vec<ConnectingSnapshot>,
    /// Calls that wait for a channel.
    pub waiting: usize,
}

impl Snapshot {
    pub(crate) fn new<S>(roster: &Roster<S>, waiting: usize) -> Self {
        let of = |members: &[std::sync::Arc<crate::member::Member<S>>]| {
            members
                .iter()
                .map(|member| ChannelSnapshot::new(&member.channel))
                .collect()
        };
        let connecting = roster
            .connecting
            .iter()
            .map(|(place, failures)| ConnectingSnapshot {
                place: place.clone(),
                failures: *failures,
            });
        Self {
            channels: of(&roster.members),
            draining: of(&roster.draining),
            connecting: connecting.collect(),
            waiting,
        }
    }

    /// The pool's size: ready and connecting channels. Draining ones don't count.
    #[must_use]
    pub fn size(&self) -> usize {
        self.channels.len() + self.connecting.len()
    }

    /// Requests in flight, those on draining channels included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        let all = self.channels.iter().chain(&self.draining);
        all.map(|channel| u64::from(channel.in_flight)).sum()
    }
}

/// One channel at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelSnapshot {
    /// Its id: the larger, the younger.
    pub id: ChannelId,
    /// The server that it leads to.
    pub place: Place,
    /// Requests picked for it whose response bodies haven't ended.
    pub in_flight: u32,
    /// Requests that the layers say it is busier than it looks.
    pub charge: u32,
    /// Whether it may be picked.
    pub standing: Standing,
    /// Time since it was ready.
    pub age: Duration,
    /// Requests it was picked for so far.
    pub picks: u64,
    /// Requests that failed on it so far in a way that points at the channel.
    pub failures: u64,
}

impl ChannelSnapshot {
    fn new(channel: &Channel) -> Self {
        let reading = channel.meter.read();
        Self {
            id: channel.id,
            place: channel.place.clone(),
            in_flight: reading.in_flight(),
            charge: reading.charge(),
            standing: reading.standing(),
            age: now().saturating_duration_since(channel.since),
            picks: channel.picks.load(Ordering::Relaxed),
            failures: channel.failures.load(Ordering::Relaxed),
        }
    }
}

/// A channel that isn't ready.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectingSnapshot {
    /// The server that it leads to.
    pub place: Place,
    /// Dials in a row that failed.
    pub failures: u32,
}
