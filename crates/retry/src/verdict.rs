//! What is done about a failed attempt: the policy is asked, and what it says is counted and carried out.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use steadfast_classify::{error_text, last_error, local_error};
use steadfast_core::{Attempt, BoxError, LocalKind, Outcome};
use tonic::body::Body;
use tower_service::Service;
use tracing::field;

use crate::{
    Decision, Facts, Reason, Resend,
    again::{Begin, run},
    call::Call,
    failure::{Answer, Failure, Next, Why},
    head::Kept,
};

impl<S> Call<S> {
    /// Whether to send it again, and how. If so, it is counted and paid for.
    pub(crate) fn decide<B>(&mut self, failure: &Failure<B>) -> Result<Resend, Why> {
        let shared = &self.shared;
        self.tried.note();
        let facts = Facts {
            outcome: failure.outcome,
            kind: self.kind,
            kept: self.kept.as_ref().is_some_and(Kept::is_there),
            handed_up: false,
            pushback: failure.pushback,
            left: self.left(),
            random: fastrand::f64(),
        };
        let decision = self.policy.failed(&shared.config, &facts);
        let verdict = match decision {
            Decision::GiveUp(reason) => Err(Why::Decided(reason)),
            Decision::Resend(how) => match &shared.budget {
                Some(budget) if how.paid && !budget.withdraw() => Err(Why::Denied),
                _ => Ok(how),
            },
        };
        match &verdict {
            Ok(how) => shared.stats.sent_again(how, failure.outcome),
            Err(why) => shared.stats.gave_up(why),
        }
        self.show(Some(failure.outcome));
        let (attempts, outcome) = (self.tried.attempts, failure.outcome);
        tracing::debug!(parent: &self.span, attempts, %outcome, ?verdict, "an attempt failed");
        verdict
    }

    /// Writes into the attempt's span which channel took it, and why it failed.
    pub(crate) fn show(&self, failed: Option<Outcome>) {
        if self.span.is_disabled() {
            return;
        }
        // A pool that refused it gave it to no channel: the handle still names the one before.
        let refused = failed == Some(Outcome::Local(LocalKind::NoChannel));
        let channel = self.tried.attempt.as_ref().and_then(Attempt::channel);
        if let Some(channel) = channel.filter(|_| !refused) {
            self.span.record("channel", field::display(channel));
        }
        if let Some(outcome) = failed {
            self.span.record("cause", field::display(outcome));
        }
    }

    /// A failure that goes up.
    pub(crate) fn give_up<B>(&mut self, failure: Failure<B>, why: &Why) -> Answer<B> {
        let outcome = failure.outcome;
        let error = match failure.up {
            Ok(reply) => return Ok(self.told(reply)),
            Err(error) => error,
        };
        let kind = match why {
            Why::Denied => LocalKind::Budget,
            Why::Decided(Reason::Deadline) if outcome == Outcome::Timeout => LocalKind::Deadline,
            Why::Decided(_) => return Err(last_error(error, &mut self.tried)),
        };
        let what = match kind {
            LocalKind::Budget => "the retry budget is spent",
            _ => "the deadline passed while it waited for the reply (phase: headers)",
        };
        Err(self.local(kind, what, error))
    }

    /// The error of a call that failed, and that this layer doesn't go on with.
    pub(crate) fn local(&self, kind: LocalKind, what: &str, cause: BoxError) -> BoxError {
        let message = format!("{what}: {}; {}", error_text(&*cause), self.tried);
        local_error(kind, message, Some(cause))
    }

    /// The error for the caller.
    pub(crate) fn last(&mut self, error: BoxError) -> BoxError {
        last_error(error, &mut self.tried)
    }

    /// What to do about a failure.
    pub(crate) fn next<B>(mut self, failure: Failure<B>) -> Next<B>
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        match self.decide(&failure) {
            Ok(how) => Next::Again(Box::pin(run(self, Begin::Again(how, failure.into_cause())))),
            Err(why) => Next::Up(self.give_up(failure, &why)),
        }
    }
}
