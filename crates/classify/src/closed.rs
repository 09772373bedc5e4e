//! The error of a channel that doesn't dial again.

use std::{error::Error, fmt};

/// The channel's one connection is gone and it makes no other: the request never left.
///
/// A connector that may be used only once fails with it when a client library wants to dial anew by
/// itself. Wherever it is among the sources of a call's error, the outcome is `NeverSent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelClosed {
    /// Why the connection went, as far as it is known; for people.
    pub cause: String,
}

impl ChannelClosed {
    /// A closed channel with the text of its cause.
    #[must_use]
    pub fn new(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
        }
    }
}

impl fmt::Display for ChannelClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the channel is closed: {}", self.cause)
    }
}

impl Error for ChannelClosed {}
