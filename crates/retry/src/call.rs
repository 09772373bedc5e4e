//! One call: what it needs to be sent again, and what is done when an attempt of it failed.

use std::{sync::Arc, task::Context, time::Duration};

use bytes::Bytes;
use http::{Extensions, Request, Response, request::Parts};
use http_body::Body as HttpBody;
use steadfast_classify::{Exchange, Tried, call_error, deadline, details};
use steadfast_core::{Attempt, Avoid, BoxError, End, Outcome, now};
use tokio::time::Instant;
use tonic::{Status, body::Body};
use tracing::Span;

use crate::{
    Kind, Progress, RetryBody, RetryPolicy,
    failure::{Came, Failure},
    head::{Kept, Messages},
    layer::Shared,
    observe::attempt_span,
    reply::{Read, Reading},
    request::{Returned, Sending, Taken, Upload, take},
};

/// One call, from its first attempt to its last.
pub(crate) struct Call<S> {
    pub(crate) service: S,
    pub(crate) shared: Arc<Shared>,
    pub(crate) kind: Option<Kind>,
    // None if it can't be sent again.
    pub(crate) kept: Option<Kept>,
    // A copy, where the attempt may be given up before it hands them back.
    extensions: Option<Extensions>,
    pub(crate) policy: RetryPolicy,
    pub(crate) tried: Tried,
    pub(crate) deadline: Option<Instant>,
    pub(crate) progress: Option<Progress>,
    pub(crate) span: Span,
}

impl<S> Call<S> {
    pub(crate) fn new(service: S, shared: Arc<Shared>, kind: Option<Kind>) -> Self {
        Self {
            service,
            shared,
            kind,
            kept: None,
            extensions: None,
            policy: RetryPolicy::new(),
            tried: Tried::default(),
            deadline: None,
            progress: None,
            span: Span::none(),
        }
    }

    /// The first request: keeps what is needed to send it again.
    ///
    /// # Errors
    /// That of the request's body.
    pub(crate) fn first(
        &mut self,
        request: Request<Body>,
        cx: &mut Context<'_>,
    ) -> Result<Request<Body>, Status> {
        let (mut parts, mut body) = request.into_parts();
        let attempt = Attempt::of(&mut parts.extensions);
        if self.shared.config.enabled {
            let left = details::lookup(&parts.headers, &deadline::GRPC_TIMEOUT);
            let left = left.and_then(deadline::parse);
            self.deadline = left.and_then(|left| now().checked_add(left));
            body = self.keep(&parts, body, cx)?;
        }
        if self.kept.is_some() {
            attempt.keep_extensions();
            if self.late().is_some() {
                self.extensions = Some(parts.extensions.clone());
            }
            if let (Some(budget), Some(_)) = (&self.shared.budget, self.kind) {
                budget.deposit();
            }
        }
        self.progress = parts.extensions.get().cloned();
        self.tried.attempt = Some(attempt);
        self.tried.attempts = 1;
        self.span = attempt_span(&self.shared.config.name, parts.uri.path(), 1);
        Ok(Request::from_parts(parts, body))
    }

    /// Keeps the request, if it can be. The body to be sent.
    fn keep(&mut self, parts: &Parts, body: Body, cx: &mut Context<'_>) -> Result<Body, Status> {
        let (messages, body) = match take(body, self.shared.config.request_limit, cx)? {
            Taken::Whole(frames) => (
                Messages::Whole(frames.clone()),
                Sending::whole(frames).into_body(),
            ),
            Taken::Upload(sending) => {
                let returned = Returned::default();
                let upload = Upload::new(sending, returned.clone());
                (Messages::Upload(returned), Body::new(upload))
            }
            Taken::TooLarge(sending) => return Ok(sending.into_body()),
        };
        let but = self.deadline.map(|_| deadline::GRPC_TIMEOUT);
        Kept::keep(&mut self.kept, parts, but.as_ref(), messages);
        Ok(body)
    }

    /// The request once more: with what is left of its deadline, and away from the channels that failed it.
    /// None if it is there no longer.
    pub(crate) fn once_more(&mut self) -> Option<Request<Body>> {
        let attempt = self.tried.attempt.as_ref()?;
        let mut request = self.kept.as_ref()?.again()?;
        let copy = || self.extensions.clone();
        let mut extensions = attempt.take_extensions().or_else(copy).unwrap_or_default();
        extensions.insert(attempt.clone());
        if !self.tried.channels.is_empty() {
            let mut avoid: Avoid = extensions.remove().unwrap_or_default();
            for channel in &self.tried.channels {
                avoid.add(*channel);
            }
            extensions.insert(avoid);
        }
        *request.extensions_mut() = extensions;
        if let Some(left) = self.left() {
            deadline::write(request.headers_mut(), left);
        }
        if let Some(progress) = &self.progress {
            progress.start_over();
        }
        self.tried.attempts += 1;
        let (name, path) = (&self.shared.config.name, request.uri().path());
        self.span = attempt_span(name, path, self.tried.attempts);
        Some(request)
    }

    /// How long one attempt may take, if it is bounded.
    pub(crate) fn late(&self) -> Option<Duration> {
        let timeout = self.shared.config.attempt_timeout;
        timeout.filter(|_| self.kind.is_some() && self.kept.is_some())
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.saturating_duration_since(now()))
    }

    /// An attempt's head, or its error.
    pub(crate) fn headed<B>(&mut self, result: Result<Response<B>, BoxError>) -> Came<B>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut response = match result {
            Ok(response) => response,
            Err(error) => return Came::Failed(Failure::error(self.outcome(&error), error)),
        };
        details::clean(response.headers_mut());
        let Some(kind) = self.kind.filter(|_| self.kept.is_some()) else {
            return Came::Up(self.up(response.map(RetryBody::through)));
        };
        let (parts, body) = response.into_parts();
        let mut exchange = Exchange::new();
        if let Some(outcome) = exchange.head(&parts) {
            let pushback = details::pushback(&parts.headers);
            let reply = Response::from_parts(parts, RetryBody::through(body));
            return Came::Failed(Failure::status(outcome, pushback, reply));
        }
        let at_end = body.is_end_stream();
        let response = Response::from_parts(parts, body);
        match kind {
            Kind::Held => Came::Read(Reading::new(response, exchange)),
            Kind::Streaming if !at_end => Came::Stream(response, exchange),
            Kind::Streaming => match exchange.end(&End::Eos) {
                Outcome::Status(0) => Came::Up(self.up(response.map(RetryBody::through))),
                outcome => Came::Failed(Failure::unfinished(outcome)),
            },
        }
    }

    /// A reply was read as far as it will be.
    pub(crate) fn read<B>(&mut self, reading: Reading<B>, read: Read) -> Came<B>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        match read {
            Read::Ended(Outcome::Status(0), None) | Read::TooLarge => {
                Came::Up(self.up(reading.into_response()))
            }
            Read::Ended(outcome, error) => Came::Failed(reading.into_failure(outcome, error)),
        }
    }

    /// What became of a call that failed. A layer between may have hidden it from the error, but not from
    /// the handle.
    fn outcome(&self, error: &BoxError) -> Outcome {
        let told = || self.tried.attempt.as_ref()?.outcome();
        match call_error(&**error) {
            Outcome::Other => told()
                .filter(|outcome| !outcome.is_ok() && *outcome != Outcome::Dropped)
                .unwrap_or(Outcome::Other),
            outcome => outcome,
        }
    }

    /// A reply for the caller.
    pub(crate) fn up<B>(&mut self, reply: Response<RetryBody<B>>) -> Response<RetryBody<B>> {
        self.show(None);
        self.told(reply)
    }

    /// The reply with what its body needs for the text of an error that is still to come.
    pub(crate) fn told<B>(&mut self, reply: Response<RetryBody<B>>) -> Response<RetryBody<B>> {
        let (tried, progress) = (std::mem::take(&mut self.tried), self.progress.take());
        reply.map(|body| body.told(tried, progress))
    }
}
