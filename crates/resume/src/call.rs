//! One call of a method that has a rule, and what it needs to go on.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, request::Parts};
use steadfast_classify::{Tried, deadline};
use steadfast_core::{Attempt, BoxError, now};
use tokio::time::Instant;
use tonic::body::Body;
use tracing::Span;

use crate::{
    MessageError, MessageReader, ResumePolicy,
    compression::Compression,
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
    pub(crate) parts: Parts,
    pub(crate) deadline: Option<Instant>,
    /// What the caller gets before the next attempt's messages.
    pub(crate) first: Vec<Bytes>,
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

    pub(crate) fn enter(&mut self) {
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
