//! One call of a method that has a rule: what it needs to go on, and what is done when an attempt failed.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, request::Parts};
use steadfast_classify::{Tried, deadline};
use steadfast_core::{Attempt, Avoid, BoxError, Outcome, now};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::body::Body;
use tower_service::Service;
use tracing::Span;

use crate::{
    Decision, Facts, MessageError, MessageReader, Pushback, Reason, Rest, ResumePolicy,
    compression::Compression,
    failure::Why,
    gap::Gap,
    layer::Shared,
    observe::{Counts, attempt_span},
    talk::Talk,
};

/// One call, from its first attempt to its last.
pub(crate) struct Call<S> {
    pub(crate) service: S,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) talk: Talk,
    pub(crate) policy: ResumePolicy,
    pub(crate) tried: Tried,
    pub(crate) span: Span,
    /// Whether it was seen which channel took the present attempt.
    is_picked: bool,
    /// None until the first head came.
    pub(crate) reader: Option<MessageReader>,
    /// The compression that the caller was told of.
    pub(crate) told: Compression,
    /// The request's head, as it came.
    parts: Parts,
    deadline: Option<Instant>,
    /// What the caller gets before the next attempt's messages.
    first: Vec<Bytes>,
}

/// What is done about a failure.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made; a box would cost every attempt an allocation"
)]
pub(crate) enum Next {
    Send(Request<Body>),
    /// All was delivered.
    Complete,
    GiveUp(Why),
}

impl Next {
    fn label(&self) -> &'static str {
        match self {
            Self::Send(_) => "resume",
            Self::Complete => "complete",
            Self::GiveUp(_) => "give up",
        }
    }
}

impl<S> Call<S> {
    pub(crate) fn new(
        service: S,
        shared: Arc<Shared>,
        counts: Arc<Counts>,
        mut parts: Parts,
        talk: Talk,
    ) -> Self {
        let left = deadline::read(&parts.headers);
        let attempt = Attempt::of(&mut parts.extensions);
        Self {
            service,
            shared,
            counts,
            talk,
            policy: ResumePolicy::new(),
            tried: Tried {
                attempts: 1,
                attempt: Some(attempt),
                ..Tried::new()
            },
            span: Span::none(),
            is_picked: false,
            reader: None,
            told: Compression::default(),
            parts,
            deadline: left.and_then(|left| now().checked_add(left)),
            first: Vec::new(),
        }
    }

    /// The first request.
    pub(crate) fn first(&mut self, body: Body) -> Request<Body> {
        self.enter();
        Request::from_parts(self.parts.clone(), body)
    }

    fn enter(&mut self) {
        let (name, path) = (&self.shared.config.name, self.parts.uri.path());
        self.span = attempt_span(name, path, self.tried.attempts);
        self.is_picked = false;
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(now()))
    }

    /// How long the stream may be silent now.
    pub(crate) fn gap_limit(&self) -> Option<Duration> {
        self.policy.gap(&self.shared.config)
    }

    /// What bounds the present attempt's silence.
    pub(crate) fn gap(&self) -> Gap {
        let pool = Arc::clone(&self.shared.pool);
        let attempt = self.tried.attempt.clone();
        let conversation = self.talk.conversation();
        Gap::new(self.gap_limit(), self.deadline, attempt, pool, conversation)
    }

    /// Looks which channel took the attempt. If one did, there is a pool.
    pub(crate) fn see_channel(&mut self) {
        let attempt = self.tried.attempt.as_ref();
        if let Some(channel) = attempt.and_then(Attempt::channel)
            && !self.is_picked
        {
            self.is_picked = true;
            self.shared.pool.saw();
            self.span
                .record("channel", tracing::field::display(channel));
        }
    }

    /// What the next attempt's messages are read by: after those that the rule wants before them.
    pub(crate) fn headed(&mut self, parts: &http::response::Parts) {
        let limit = self.shared.config.message_limit;
        let reader = match &mut self.reader {
            Some(reader) => {
                reader.begin(&self.told, &parts.headers);
                reader
            }
            None => {
                let reader = MessageReader::new(&parts.headers, limit);
                self.told = reader.compression().clone();
                self.reader.insert(reader)
            }
        };
        for message in self.first.drain(..) {
            reader.insert(&message);
        }
    }

    /// What goes up next, if something was read.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.reader.as_mut()?.pop()
    }

    /// A frame of the response came. Says whether it completed a message.
    ///
    /// # Errors
    /// What can't be read, as the caller's error.
    pub(crate) fn frame(&mut self, frame: Bytes) -> Result<bool, BoxError> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        match self.talk.frame(reader, frame) {
            Ok(seen) => {
                if seen && self.policy.progressed(&self.shared.config) {
                    // What failed before is forgotten with it: over the days that a watch lives, it would come to
                    // be every channel.
                    self.tried.channels.clear();
                    self.tried.attempts = 1;
                }
                Ok(seen)
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// The stream ended with OK.
    ///
    /// # Errors
    /// It isn't whole, as the caller's error.
    pub(crate) fn end(&mut self) -> Result<(), BoxError> {
        let ended = self.talk.end();
        ended.map_err(|error| self.refused(MessageError::End(error)))
    }

    fn refused(&self, error: MessageError) -> BoxError {
        self.counts.refused();
        error.into_status(self.parts.uri.path())
    }
}

impl<S> Call<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    /// An attempt failed: asks the rule and the policy, waits, and makes the next request.
    pub(crate) async fn next(&mut self, outcome: Outcome, pushback: Option<Pushback>) -> Next {
        self.see_channel();
        self.tried.note();
        let (span, attempts) = (self.span.clone(), self.tried.attempts);
        span.record("cause", tracing::field::display(outcome));
        let next = self.decide(outcome, pushback).await;
        self.counts.failed(outcome, &next);
        if !span.is_disabled() {
            tracing::debug!(parent: &span, attempts, %outcome, next = next.label(), "a stream's attempt failed");
        }
        if matches!(next, Next::Send(_)) {
            self.shared.pool.resumes(&self.shared.config.name, outcome);
        }
        next
    }

    async fn decide(&mut self, outcome: Outcome, pushback: Option<Pushback>) -> Next {
        let shared = Arc::clone(&self.shared);
        // What is still read for the attempt that failed is seen by the rule before it is asked.
        if let Some(error) = poll_fn(|cx| self.talk.poll_quiet(cx)).await {
            return Next::GiveUp(Why::Rule(format!("the request failed: {error}")));
        }
        if !ResumePolicy::resumes(&shared.config, outcome) {
            return Next::GiveUp(Why::Decided(Reason::NotResumed));
        }
        let (requests, first) = match self.talk.rest() {
            Ok(Rest::Complete) => return Next::Complete,
            Ok(Rest::Send { requests, first }) => (requests, first),
            Ok(Rest::Cannot(reason)) => return Next::GiveUp(Why::Rule(reason)),
            Err(error) => {
                let reason = format!("its rule failed: {error}");
                return Next::GiveUp(Why::Rule(reason));
            }
        };
        let facts = Facts {
            outcome,
            pushback,
            left: self.left(),
            random: fastrand::f64(),
        };
        let after = match self.policy.failed(&shared.config, &facts) {
            Decision::Resume { after, paid } => match &shared.budget {
                Some(budget) if paid && !budget.withdraw() => return Next::GiveUp(Why::Denied),
                _ => after,
            },
            Decision::GiveUp(reason) => return Next::GiveUp(Why::Decided(reason)),
        };
        if !self.ready(after).await {
            return Next::GiveUp(Why::Late);
        }
        self.first.extend(first);
        Next::Send(self.again(&requests))
    }

    /// Waits, and until the service is ready. False if the deadline comes first. An error of the service
    /// shows in the call that follows.
    async fn ready(&mut self, after: Duration) -> bool {
        let service = &mut self.service;
        let ready = async {
            if !after.is_zero() {
                sleep(after).await;
            }
            let _ = poll_fn(|cx| service.poll_ready(cx)).await;
        };
        within(self.deadline, ready).await.is_some()
    }

    /// The request of the next attempt: with what is left of its deadline, and away from the channels that
    /// failed it.
    fn again(&mut self, requests: &[Bytes]) -> Request<Body> {
        self.tried.attempts += 1;
        self.enter();
        if let Some(attempt) = &self.tried.attempt {
            attempt.start_over();
        }
        let mut request = Request::from_parts(self.parts.clone(), self.talk.body(requests));
        if !self.tried.channels.is_empty() {
            let extensions = request.extensions_mut();
            let mut avoid: Avoid = extensions.remove().unwrap_or_default();
            for channel in &self.tried.channels {
                avoid.add(*channel);
            }
            extensions.insert(avoid);
        }
        if let Some(left) = self.left() {
            deadline::write(request.headers_mut(), left);
        }
        request
    }
}

/// Bounds a future, if there is a bound. None if that came first.
pub(crate) async fn within<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        Some(until) => timeout_at(until, future).await.ok(),
        None => Some(future.await),
    }
}
