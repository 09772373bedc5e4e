//! What is done when an attempt failed.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use steadfast_classify::deadline;
use steadfast_core::{Avoid, BoxError, Outcome};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::body::Body;
use tower_service::Service;

use crate::{Decision, Facts, Pushback, Reason, Rest, ResumePolicy, call::Call, failure::Why};

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
