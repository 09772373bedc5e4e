//! How long a stream may be silent while its caller waits, and how long the caller may.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use steadfast_classify::local_error;
use steadfast_core::{Abandoned, Attempt, BoxError, LocalKind, Outcome, now};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Conversation, layer::PoolBelow, talk::guarded};

/// Counts from the first poll that got nothing to the next frame. Its timer is set again only when it ran
/// out, not for each frame.
pub(crate) struct Gap {
    /// None for the last attempt.
    pub(crate) limit: Option<Duration>,
    deadline: Option<Instant>,
    attempt: Option<Attempt>,
    pool: Arc<PoolBelow>,
    /// Tells whether silence is a failure, if it isn't always.
    conversation: Option<Arc<dyn Conversation>>,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Gap {
    pub(crate) fn new(
        limit: Option<Duration>,
        deadline: Option<Instant>,
        attempt: Option<Attempt>,
        pool: Arc<PoolBelow>,
        conversation: Option<Arc<dyn Conversation>>,
    ) -> Self {
        Self {
            limit,
            deadline,
            attempt,
            pool,
            conversation,
            waiting_since: None,
            timer: None,
        }
    }

    /// Something came.
    pub(crate) fn stop(&mut self) {
        self.waiting_since = None;
    }

    /// The caller waits: ready with what ends the attempt. One that was silent too long is marked, so that a
    /// layer below charges its channel when it is dropped.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Outcome, BoxError)> {
        loop {
            // Pending: the timer holds the waker; without a bound the inner service does.
            let Some(until) = self.until() else {
                return Poll::Pending;
            };
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() > until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() < until {
                timer.as_mut().reset(until);
                continue;
            }
            if self.deadline == Some(until) {
                return Poll::Ready(late());
            }
            // It may wait for a channel, which the pool bounds: the silence begins with the pick.
            if self.is_queued() || !self.is_owed() {
                self.stop();
                continue;
            }
            if let Some(attempt) = &self.attempt {
                attempt.abandon(Abandoned::GapTimeout);
            }
            return Poll::Ready(silent(self.limit.unwrap_or_default()));
        }
    }

    /// Whether the server owes the caller something. A rule that panics here is asked again when the stream breaks.
    pub(crate) fn is_owed(&self) -> bool {
        let owed = |it: &Arc<dyn Conversation>| guarded(|| it.is_owed()).unwrap_or(true);
        self.conversation.as_ref().is_none_or(owed)
    }

    fn until(&mut self) -> Option<Instant> {
        let silent = match self.limit {
            Some(limit) => {
                let since = *self.waiting_since.get_or_insert_with(now);
                since.checked_add(limit)
            }
            None => None,
        };
        match (silent, self.deadline) {
            (Some(silent), Some(deadline)) => Some(silent.min(deadline)),
            (silent, deadline) => silent.or(deadline),
        }
    }

    /// Whether it still waits for a channel, so that none can be blamed. Handles that are never filled in say
    /// nothing: there is no pool below.
    fn is_queued(&self) -> bool {
        let picked = self.attempt.as_ref().and_then(Attempt::channel);
        picked.is_none() && self.pool.is_seen()
    }
}

fn late() -> (Outcome, BoxError) {
    let text = "the caller's deadline passed while its stream was open".to_owned();
    let error = local_error(LocalKind::Deadline, text, None);
    (Outcome::Timeout, error)
}

fn silent(limit: Duration) -> (Outcome, BoxError) {
    let text = format!("no frame came for {limit:?} while the caller waited (resume.gap_timeout)");
    let error = local_error(LocalKind::GapTimeout, text, None);
    (Outcome::GapTimeout, error)
}
