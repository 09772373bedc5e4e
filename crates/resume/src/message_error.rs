//! Why the messages of a stream can't be read on.

use std::{error::Error, fmt, io, sync::Arc};

use steadfast_core::BoxError;
use tonic::{Code, Status};

/// Why the messages of a stream can't be read on.
#[derive(Debug)]
#[non_exhaustive]
pub enum MessageError {
    /// The first byte of a message is neither 0 nor 1.
    Flag(u8),
    /// A message is larger than the limit, in bytes. Of a compressed one `length` is what was unpacked.
    TooLarge {
        /// Its length, or more than the limit.
        length: usize,
        /// `resume.message_limit`.
        limit: usize,
    },
    /// A compressed message that can't be unpacked.
    Unpack(io::Error),
    /// The rule said no.
    Rule(BoxError),
    /// The rule says that the stream isn't whole, though it ended with OK.
    End(BoxError),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(
                f,
                "a message begins with the flag {flag}, not 0 or 1: this is no gRPC"
            ),
            Self::TooLarge { length, limit } => write!(
                f,
                "a message of {length} bytes is over resume.message_limit, {limit} bytes: set that as high \
                 as the client's largest message"
            ),
            Self::Unpack(error) => write!(f, "a compressed message can't be unpacked: {error}"),
            Self::Rule(error) => write!(f, "the rule can't read a message: {error}"),
            Self::End(error) => write!(f, "the stream isn't whole: {error}"),
        }
    }
}

impl Error for MessageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unpack(error) => Some(error),
            Self::Rule(error) | Self::End(error) => Some(&**error),
            _ => None,
        }
    }
}

impl MessageError {
    /// The caller's error: INTERNAL, as tonic's for a message that it can't decode, or OUT_OF_RANGE for one
    /// that is too large.
    pub(crate) fn into_status(self, method: &str) -> BoxError {
        let code = match self {
            Self::TooLarge { .. } => Code::OutOfRange,
            _ => Code::Internal,
        };
        let mut status = Status::new(code, format!("{method}: {self}"));
        status.set_source(Arc::new(self));
        Box::new(status)
    }
}
