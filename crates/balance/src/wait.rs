//! A call that waits for a channel: the slow path, in a box of its own.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::HeaderMap;
use steadfast_classify::deadline;
use steadfast_core::now;
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::{Instant, Sleep, sleep_until},
};

use crate::member::Signals;

/// The waits of one call: for a channel, for its readiness, for another channel … They have one deadline.
pub(crate) struct Wait {
    signals: Arc<Signals>,
    on: On,
    news: Pin<Box<OwnedNotified>>,
    /// Whether `news` listens and hasn't been heard.
    armed: bool,
    limit: Pin<Box<Sleep>>,
    began: Instant,
    deadline: Option<Instant>,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Nothing: it has what it needs for now.
    Nothing,
    /// A channel that takes it.
    Channel,
    /// The readiness of the channel that it has, or that channel's end.
    Readiness,
}

/// Why a wait ended without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The caller's deadline has passed.
    Deadline,
    /// The pool's own limit has.
    Limit,
}

/// A year: tokio's timer takes no longer waits, and nobody waits so long.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl Wait {
    /// The caller's deadline counts from now. It waits for nothing yet.
    pub(crate) fn new(signals: &Arc<Signals>, headers: &HeaderMap) -> Self {
        let began = now();
        Self {
            signals: Arc::clone(signals),
            on: On::Nothing,
            news: Box::pin(Arc::clone(&signals.changed).notified_owned()),
            armed: false,
            limit: Box::pin(sleep_until(began + NEVER)),
            began,
            deadline: deadline::read(headers).and_then(|timeout| began.checked_add(timeout)),
        }
    }

    /// Waits for something else from now on: at most for `limit`, and until the caller's deadline.
    ///
    /// News that wasn't heard goes to another call: it may have been about a place that this one doesn't
    /// need any more.
    pub(crate) fn turn_to(&mut self, on: On, limit: Option<Duration>) {
        if self.on == On::Channel {
            self.signals.wait_ends();
        }
        self.on = on;
        self.news.set(self.bell().notified_owned());
        self.armed = false;
        if on == On::Channel {
            self.signals.wait_begins();
        }
        let now = now();
        let limit = now + limit.unwrap_or(NEVER).min(NEVER);
        let until = self.deadline.map_or(limit, |deadline| deadline.min(limit));
        self.limit.as_mut().reset(until);
    }

    fn bell(&self) -> Arc<Notify> {
        Arc::clone(match self.on {
            On::Nothing | On::Channel => &self.signals.changed,
            On::Readiness => &self.signals.standing,
        })
    }

    pub(crate) fn is_on(&self, on: On) -> bool {
        self.on == on
    }

    /// Listens for news from now on: before the call looks, so that none in between is lost. News that
    /// wasn't heard yet stays: to drop it would pass it on to the next call, which would do the same.
    pub(crate) fn arm(&mut self) {
        if !self.armed {
            self.news.set(self.bell().notified_owned());
            self.news.as_mut().enable();
            self.armed = true;
        }
    }

    /// Ready with Ok when there is news since [`Wait::arm`].
    pub(crate) fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        if self.news.as_mut().poll(cx).is_ready() {
            self.armed = false;
            return Poll::Ready(Ok(()));
        }
        // Pending: the bell and the timer hold the waker.
        self.limit.as_mut().poll(cx).map(|()| {
            let passed = self.deadline.is_some_and(|deadline| deadline <= now());
            Err(if passed { Over::Deadline } else { Over::Limit })
        })
    }

    /// How long the call has waited.
    pub(crate) fn time(&self) -> Duration {
        now() - self.began
    }

    /// Writes what is left of the caller's deadline into its request: the server and the transport
    /// count from when they get it.
    pub(crate) fn charge_to(&self, headers: &mut HeaderMap) {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now()));
        if let Some(left) = left {
            deadline::write(headers, left);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.on == On::Channel {
            self.signals.wait_ends();
        }
    }
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait")
            .field("on", &self.on)
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}
