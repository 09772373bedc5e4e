//! What was tried for a call, and the error that its caller gets in the end.

use std::{error::Error, fmt, fmt::Write as _, sync::Arc};

use steadfast_core::{Attempt, BoxError, ChannelId, Outcome};
use tonic::{Code, Status};

use crate::{call_error, deepest_cause};

/// Channels that an error names at most.
const NAMED: usize = 16;

/// What was tried for a call: for the text of its last error, and to know which channels to avoid.
#[derive(Debug, Default)]
pub struct Tried {
    /// Attempts, re-sends included.
    pub attempts: u32,
    /// Channels of the attempts before this one, each once.
    pub channels: Vec<ChannelId>,
    /// The present one's handle.
    pub attempt: Option<Attempt>,
}

impl Tried {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            attempts: 0,
            channels: Vec::new(),
            attempt: None,
        }
    }

    /// Notes the channel that the present attempt was given to.
    pub fn note(&mut self) {
        if let Some(channel) = self.attempt.as_ref().and_then(Attempt::channel)
            && !self.channels.contains(&channel)
        {
            self.channels.push(channel);
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempts, channels, ..
        } = self;
        let many = if *attempts == 1 { "" } else { "s" };
        write!(f, "after {attempts} attempt{many}")?;
        for (number, channel) in channels.iter().take(NAMED).enumerate() {
            f.write_str(if number == 0 { " on channel " } else { ", " })?;
            write!(f, "{channel}")?;
        }
        if channels.len() > NAMED {
            write!(f, " and {} more", channels.len() - NAMED)?;
        }
        Ok(())
    }
}

/// The error of a reply that ended without telling how the call went: what became of it.
#[derive(Debug)]
pub struct Unfinished(pub Outcome);

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::CutShort => f.write_str("the reply ended with OK inside a message"),
            Outcome::Http(_) => write!(f, "the reply was {}", self.0),
            _ => f.write_str("the reply ended without a status"),
        }
    }
}

impl Error for Unfinished {}

/// The error for the caller: a `Status` that says what the deepest source was, how often the call was sent
/// and on which channels, and has the error as its source. A status that a server or a layer gave stays as
/// it is, and so does what this crate knows nothing of, unless the call was sent more than once.
#[must_use]
pub fn last_error(error: BoxError, tried: &mut Tried) -> BoxError {
    tried.note();
    let outcome = match error.downcast_ref() {
        Some(Unfinished(outcome)) => *outcome,
        None => call_error(&*error),
    };
    let once = tried.attempts <= 1;
    match outcome {
        Outcome::Status(_) => return error,
        Outcome::Local(_) | Outcome::Other if once => return error,
        _ => {}
    }
    let code = match error.downcast_ref::<Status>() {
        Some(status) if matches!(outcome, Outcome::Local(_) | Outcome::Other) => status.code(),
        _ => code(outcome),
    };
    let mut status = Status::new(code, format!("{}; {tried}", error_text(&*error)));
    status.set_source(Arc::from(error));
    Box::new(status)
}

/// What an error and its deepest source say.
#[must_use]
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let deepest = deepest_cause(error);
    if text.is_empty() {
        return deepest;
    }
    if !text.contains(&deepest) {
        // A String takes all that is written.
        let _ = write!(text, ": {deepest}");
    }
    text
}

/// The code for a failure that has none of its own. Where the connection failed it is UNAVAILABLE; a reset
/// has the code that gRPC gives to its reason.
fn code(outcome: Outcome) -> Code {
    match outcome {
        Outcome::Timeout => Code::DeadlineExceeded,
        Outcome::Protocol => Code::Internal,
        Outcome::Reset(reason) => match reason {
            7 => Code::Unavailable,
            8 => Code::Cancelled,
            11 => Code::ResourceExhausted,
            12 => Code::PermissionDenied,
            _ => Code::Internal,
        },
        Outcome::Http(status) => match status {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        },
        Outcome::Other => Code::Unknown,
        _ => Code::Unavailable,
    }
}
