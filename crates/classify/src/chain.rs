//! Reads the source chain of an error. The only place that knows the error types of tonic, hyper and h2.
//!
//! An error's sources are looked at from the outside in, and the first that says something decides.

use std::{error::Error, io, iter};

use steadfast_core::{Local, Outcome};
use tonic::Status;

use crate::ChannelClosed;

type Link = dyn Error + 'static;

/// No chain of a real transport is longer than eight; an error that is its own source ends here.
const LONGEST_CHAIN: usize = 32;

/// The longest text that [`deepest_cause`] gives, in bytes: a peer may put 16 KiB into a GOAWAY.
const LONGEST_CAUSE: usize = 256;

/// What an error of the call means: before the response's head came.
#[must_use]
pub fn call_error(error: &(dyn Error + 'static)) -> Outcome {
    classify(error, Phase::Call)
}

/// What an error of the response body means: the server had begun to answer, so the request was
/// processed, at least in part.
#[must_use]
pub fn body_error(error: &(dyn Error + 'static)) -> Outcome {
    classify(error, Phase::Body)
}

/// The text of the innermost source that has something to say, for messages: `Connection refused (os
/// error 111)` rather than `transport error`. At most 256 bytes.
#[must_use]
pub fn deepest_cause(error: &(dyn Error + 'static)) -> String {
    let mut text = chain(error)
        .map(text_of)
        .filter(|text| !text.trim().is_empty())
        .last()
        .unwrap_or_else(|| "an error without a text".to_owned());
    if text.len() > LONGEST_CAUSE {
        let cut = (0..=LONGEST_CAUSE)
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(cut.unwrap_or(0));
    }
    text
}

/// Whether the peer said ENHANCE_YOUR_CALM, in a GOAWAY or a RST_STREAM: this process pinged, opened or
/// reset more than the peer puts up with.
#[must_use]
pub fn enhance_your_calm(error: &(dyn Error + 'static)) -> bool {
    chain(error)
        .filter_map(|link| link.downcast_ref::<h2::Error>())
        .any(|h2| h2.is_remote() && h2.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// Whether the peer reset the stream, with whichever code. REFUSED_STREAM is one too; a GOAWAY that leaves the
/// request out is none, though both mean that it wasn't processed.
pub(crate) fn reset_by_peer(error: &(dyn Error + 'static)) -> bool {
    chain(error)
        .filter_map(|link| link.downcast_ref::<h2::Error>())
        .any(|h2| h2.is_remote() && h2.is_reset())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The request may not have left.
    Call,
    /// A layer's own error stands above: what it hides may be about another request than the caller's, such
    /// as one that the layer made after the answer.
    Hidden,
    /// The server had begun to answer.
    Body,
}

impl Phase {
    /// A request that its transport gave back.
    fn given_back(self) -> Outcome {
        match self {
            Self::Call => Outcome::NeverSent,
            Self::Hidden | Self::Body => Outcome::ConnectionLost,
        }
    }
}

fn chain(error: &Link) -> impl Iterator<Item = &Link> {
    iter::successors(Some(error), |link| (**link).source()).take(LONGEST_CHAIN)
}

fn classify(error: &Link, phase: Phase) -> Outcome {
    if let Some(local) = Local::find(error) {
        return Outcome::Local(local.kind());
    }
    if chain(error).any(|link| link.is::<ChannelClosed>()) {
        return phase.given_back();
    }
    let (mut above, mut phase) = (None, phase);
    for link in chain(error) {
        if let Some(outcome) = judge(link, above, phase) {
            return outcome;
        }
        if phase == Phase::Call && !is_transparent(link) {
            phase = Phase::Hidden;
        }
        above = Some(link);
    }
    Outcome::Other
}

/// What stands above the transport's errors and is about the same request. Not a `Status`: in a call, only a
/// layer makes one.
fn is_transparent(link: &Link) -> bool {
    link.is::<tonic::transport::Error>()
        || link.is::<hyper::Error>()
        || link.is::<tower::buffer::error::ServiceError>()
}

/// What one link says; `above` is the error whose source it is.
fn judge(link: &Link, above: Option<&Link>, phase: Phase) -> Option<Outcome> {
    if link.is::<tonic::ConnectError>() {
        Some(Outcome::DialFailed)
    } else if link.is::<tonic::TimeoutExpired>() || link.is::<tower::timeout::error::Elapsed>() {
        Some(Outcome::Timeout)
    } else if link.is::<tower::buffer::error::Closed>() {
        Some(phase.given_back())
    } else if let Some(hyper) = link.downcast_ref() {
        judge_hyper(hyper, phase)
    } else if let Some(h2) = link.downcast_ref() {
        judge_h2(h2, phase)
    } else if let Some(io) = link.downcast_ref() {
        judge_io(io, above)
    } else {
        judge_status(link.downcast_ref()?)
    }
}

fn judge_hyper(error: &hyper::Error, phase: Phase) -> Option<Outcome> {
    if error.is_canceled() || error.is_closed() {
        // hyper hands such a request back; after the head there is nothing to hand back.
        Some(phase.given_back())
    } else if error.is_user() {
        // "The dispatch task is gone" is a request that waited inside h2 for a free stream, most of the time:
        // hyper looks whether the connection lives before it looks whether the stream was opened meanwhile.
        // It is also one that was sent, when the connection's runtime ended. There is no predicate.
        let gone = format!("{error:?}").contains("DispatchGone");
        Some(if gone {
            Outcome::ConnectionLost
        } else {
            Outcome::Other
        })
    } else if error.is_timeout() {
        Some(Outcome::ConnectionLost)
    } else {
        None
    }
}

fn judge_h2(error: &h2::Error, phase: Phase) -> Option<Outcome> {
    if error.is_remote() {
        let reason = error.reason()?;
        let refused = error.is_go_away() || reason == h2::Reason::REFUSED_STREAM;
        Some(match phase {
            Phase::Call if refused => Outcome::Unprocessed,
            _ if error.is_go_away() => Outcome::GoAway(reason.into()),
            _ => Outcome::Reset(reason.into()),
        })
    } else if error.is_library() {
        Some(Outcome::Protocol)
    } else if error.is_io() {
        Some(Outcome::ConnectionLost)
    } else {
        None
    }
}

fn judge_io(error: &io::Error, above: Option<&Link>) -> Option<Outcome> {
    let under_tonic = above.is_some_and(|above| above.is::<tonic::transport::Error>());
    if under_tonic && error.kind() == io::ErrorKind::TimedOut {
        // A connect time-out around a custom connector; no connection's own error looks like this.
        return Some(Outcome::DialFailed);
    }
    // A layer that has an I/O error of its own, such as one that reads a token from a file, wraps it.
    let transport =
        above.is_none_or(|above| under_tonic || above.is::<hyper::Error>() || above.is::<Status>());
    transport.then_some(Outcome::ConnectionLost)
}

fn judge_status(status: &Status) -> Option<Outcome> {
    // With a source it was made of that source, and the code is a guess. An OK is no error.
    let code = status.code() as u16;
    (status.source().is_none() && code != 0).then_some(Outcome::Status(code))
}

fn text_of(link: &Link) -> String {
    match link.downcast_ref::<Status>() {
        // Its own text repeats the code's description and the metadata.
        Some(status) => status.message().to_owned(),
        None => link.to_string(),
    }
}
