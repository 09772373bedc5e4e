//! What a rule is: how one method's streams go on where they broke.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use steadfast_core::BoxError;

/// How the streams of one server-streaming method go on.
///
/// A rule belongs to a method; each call of it gets a [`Progress`], which sees the call's request and then
/// every message before the caller does. Messages are protobuf (or whatever the method speaks) without
/// gRPC's length prefix, decompressed.
///
/// A rule that errs or panics ends its own stream with an error that says so; it does nothing to others.
pub trait Rule: Send + Sync + 'static {
    /// The method's path: `/package.Service/Method`.
    fn method(&self) -> &str;

    /// A call begins, with this request.
    ///
    /// # Errors
    /// A request that the rule can't read. The call ends with an error that says so, and isn't sent.
    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError>;
}

/// One stream of a server-streaming method: what was delivered of it, and what is left.
pub trait Progress: Send {
    /// A message came, and goes up to the caller when this returns. It comes once for each message, in
    /// order; the bytes are gone afterwards, so what is needed of them is copied.
    ///
    /// # Errors
    /// A message that can't be read, or that must not come. It ends the stream with an error and isn't
    /// delivered.
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError>;

    /// The stream ended with OK.
    ///
    /// # Errors
    /// When it isn't whole by the method's own rules. It ends the stream with an error instead; it isn't resumed, since
    /// the server says that there is no more. By default it is whole.
    fn end(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// The stream broke: how to go on. What was passed up is delivered; a message of which only a part
    /// came was never seen here.
    ///
    /// # Errors
    /// When it can't be told. It ends the stream, as [`Rest::Cannot`] does.
    fn rest(&mut self) -> Result<Rest, BoxError>;
}

/// How the conversations of one bidirectional method go on.
pub trait BidiRule: Send + Sync + 'static {
    /// The method's path: `/package.Service/Method`.
    fn method(&self) -> &str;

    /// A call begins. Its messages come one by one.
    fn begin(&self) -> Arc<dyn Conversation>;
}

/// One conversation of a bidirectional method.
///
/// The caller's messages are seen by the task that sends, the server's by the task that reads, so both may
/// come at the same time; the state is the rule's to guard. [`Conversation::rest`] comes alone: nothing is
/// sent or received while it runs.
pub trait Conversation: Send + Sync {
    /// A message of the caller is about to be sent. It is not known to have arrived when this returns: what
    /// must be sent again after a break is kept here.
    ///
    /// # Errors
    /// A message that can't be read. It ends the stream with an error.
    fn sent(&self, message: &[u8]) -> Result<Pass, BoxError>;

    /// A message of the server came, and goes up to the caller when this returns.
    ///
    /// # Errors
    /// A message that can't be read, or that must not come. It ends the stream with an error.
    fn received(&self, message: &[u8]) -> Result<Pass, BoxError>;

    /// Whether the server owes the caller something now. While it doesn't, quiet is normal, as on a watch of which nothing
    /// happens, and neither the gap time-out nor that on the head ends the attempt. By default it always does. It may be
    /// asked often.
    fn is_owed(&self) -> bool {
        true
    }

    /// The stream broke: what to send first on the next attempt. The caller's further messages follow it.
    ///
    /// # Errors
    /// When it can't be told. It ends the stream, as [`Rest::Cannot`] does.
    fn rest(&self) -> Result<Rest, BoxError>;
}

/// What is done with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It is passed on, as it is.
    AsIs,
    /// This one goes in its place.
    Instead(Bytes),
    /// It is left out.
    Withhold,
}

/// How a stream that broke goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// With another attempt.
    Send {
        /// The messages to begin it with. For a server-streaming method it is one.
        requests: Vec<Bytes>,
        /// Messages that the caller gets before those of the next attempt.
        first: Vec<Bytes>,
    },
    /// All was delivered: nothing is sent, and the stream ends with OK.
    Complete,
    /// Not at all, for this reason: it becomes part of the caller's error.
    Cannot(String),
}

impl Rest {
    /// Another attempt with this request.
    #[must_use]
    pub fn request(request: impl Into<Bytes>) -> Self {
        Self::Send {
            requests: vec![request.into()],
            first: Vec::new(),
        }
    }

    /// Not to be resumed, for this reason.
    #[must_use]
    pub fn cannot(reason: impl fmt::Display) -> Self {
        Self::Cannot(reason.to_string())
    }
}
