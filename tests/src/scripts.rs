//! Scripted servers that several tests use.

use steadfast_testkit::peer::{Answer, Peer, Request, Script, Step};

use crate::whole::STREAM;

/// Calls are answered; a stream gets its first message, and the rest when it is released.
///
/// # Panics
/// When no port can be had.
#[must_use]
pub fn held_streams() -> Peer {
    let answer = |request: &Request| match request.path.as_str() {
        STREAM => Answer::steps([
            Step::AwaitRequest,
            Step::headers(),
            Step::good_message(),
            Step::Hold,
            Step::good_message(),
            Step::status(0, ""),
        ]),
        _ => Answer::good(),
    };
    Peer::start(Script::new(answer)).expect("a free port")
}
