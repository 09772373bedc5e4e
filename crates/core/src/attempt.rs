//! What a request says to the pool, and what it can read back.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::Extensions;

use crate::{ChannelId, Outcome, Place};

/// A request extension: channels that this request would rather not use, such as those that failed it
/// before. A preference: when only these are left, one of them is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Avoid(Vec<ChannelId>);

impl Avoid {
    /// Avoids nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Avoids one more channel.
    pub fn add(&mut self, channel: ChannelId) {
        if !self.0.contains(&channel) {
            self.0.push(channel);
        }
    }

    /// Whether this channel is to be avoided.
    #[must_use]
    pub fn contains(&self, channel: ChannelId) -> bool {
        self.0.contains(&channel)
    }

    /// Whether nothing is avoided.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<ChannelId> for Avoid {
    fn from_iter<I: IntoIterator<Item = ChannelId>>(channels: I) -> Self {
        let mut avoid = Self::new();
        channels.into_iter().for_each(|channel| avoid.add(channel));
        avoid
    }
}

/// A request extension: the channel that this request would like to use (soft affinity). A
/// preference: when it can't take the request, another one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefer(pub ChannelId);

/// Why a layer above gave an attempt up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abandoned {
    /// Nothing came for the gap time-out while the caller waited: the channel is to blame.
    GapTimeout,
}

/// A request extension: a handle to read from which channel served the request and how it ended.
///
/// Put a clone into the request's extensions and keep the other. It works for failures too, which have
/// no response that could carry an extension. Requests without one pay nothing.
///
/// ```
/// use steadfast_core::Attempt;
///
/// let attempt = Attempt::new();
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(attempt.clone());
/// // … after the call:
/// assert_eq!(attempt.channel(), None, "no pool took it");
/// ```
#[derive(Clone, Default)]
pub struct Attempt(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    channel: Option<(ChannelId, Place)>,
    outcome: Option<Outcome>,
    abandoned: Option<Abandoned>,
    keeps: bool,
    extensions: Option<Extensions>,
}

impl Attempt {
    /// A handle for one attempt.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of a request: the caller's, or a new one that is put there.
    pub fn of(extensions: &mut Extensions) -> Self {
        if let Some(attempt) = extensions.get::<Self>() {
            return attempt.clone();
        }
        let attempt = Self::new();
        extensions.insert(attempt.clone());
        attempt
    }

    /// The channel that took the request, once one has.
    #[must_use]
    pub fn channel(&self) -> Option<ChannelId> {
        self.record().channel.as_ref().map(|(id, _)| *id)
    }

    /// The place of that channel.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.record()
            .channel
            .as_ref()
            .map(|(_, place)| place.clone())
    }

    /// How it ended, once it has: when the body ended, not the head.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.record().outcome
    }

    /// Why it was given up, if a layer above said so.
    #[must_use]
    pub fn abandoned(&self) -> Option<Abandoned> {
        self.record().abandoned
    }

    /// For a layer above the pool: says why, before it drops the attempt, so that a layer below can
    /// charge the channel.
    pub fn abandon(&self, why: Abandoned) {
        self.record().abandoned = Some(why);
    }

    /// For a layer that sends the request again: forgets what became of it, so that nothing is taken for the
    /// next try's. What its extensions are kept for stays.
    pub fn start_over(&self) {
        let mut record = self.record();
        record.channel = None;
        record.outcome = None;
        record.abandoned = None;
    }

    /// For the pool: a channel took the request. How an earlier try of the same call ended is forgotten.
    pub fn picked(&self, channel: ChannelId, place: Place) {
        let mut record = self.record();
        record.channel = Some((channel, place));
        record.outcome = None;
        record.abandoned = None;
    }

    /// For the pool: the exchange ended.
    pub fn ended(&self, outcome: Outcome) {
        self.record().outcome = Some(outcome);
    }

    /// For a layer that may send the request again: asks for the request's extensions back. Cloning them
    /// for each call would cost more than all the rest; so the transport, which has no use for them,
    /// hands them to this handle.
    pub fn keep_extensions(&self) {
        self.record().keeps = true;
    }

    /// Takes the extensions that came back: those of the request as the transport, or the pool that
    /// refused it, got it, without this handle. None if it didn't come that far, or they were taken.
    #[must_use]
    pub fn take_extensions(&self) -> Option<Extensions> {
        self.record().extensions.take()
    }

    /// For the pool: hands the extensions of a request that it refused to their attempt, if that asked
    /// for them.
    pub fn refused(extensions: &mut Extensions) {
        if extensions.get::<Self>().is_some_and(Self::keeps) {
            crate::bottom::park(extensions);
        }
    }

    pub(crate) fn keeps(&self) -> bool {
        self.record().keeps
    }

    pub(crate) fn park(&self, extensions: Extensions) {
        self.record().extensions = Some(extensions);
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record();
        f.debug_struct("Attempt")
            .field("channel", &record.channel)
            .field("outcome", &record.outcome)
            .field("abandoned", &record.abandoned)
            .finish_non_exhaustive()
    }
}
