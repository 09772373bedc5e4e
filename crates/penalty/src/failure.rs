//! Which outcomes are failures of a channel.

use steadfast_core::Outcome;

/// Whether an exchange that ended like this is held against its channel, unless the user says
/// otherwise.
///
/// It is for the grpc-statuses Unavailable, ResourceExhausted and Internal, the bare HTTP statuses 400,
/// 429, 502, 503 and 504, every failure of the connection or the stream, an answer without a status, and
/// a gap time-out. It isn't for what this process or its caller decided, and not for any other answer:
/// a server that says NotFound works.
#[must_use]
pub fn is_failure(outcome: &Outcome) -> bool {
    const RESOURCE_EXHAUSTED: u16 = 8;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    match *outcome {
        Outcome::Status(code) => matches!(code, RESOURCE_EXHAUSTED | INTERNAL | UNAVAILABLE),
        Outcome::Http(code) => matches!(code, 400 | 429 | 502 | 503 | 504),
        Outcome::DialFailed
        | Outcome::NeverSent
        | Outcome::Unprocessed
        | Outcome::ConnectionLost
        | Outcome::Protocol
        | Outcome::Reset(_)
        | Outcome::GoAway(_)
        | Outcome::NoStatus
        | Outcome::CutShort
        | Outcome::GapTimeout => true,
        _ => false,
    }
}

/// Whether this is for nobody to hold against the channel: the caller went away, its time was over, or
/// a layer of this process refused or ended the request. No predicate is asked about it.
pub(crate) fn says_nothing(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Dropped | Outcome::Timeout | Outcome::Local(_)
    )
}
