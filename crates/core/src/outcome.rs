//! What became of an exchange.

use std::fmt;

use crate::LocalKind;

/// What became of one exchange, told by the source chain of its error, its HTTP status and its
/// grpc-status. Never by the code that a client library gave a transport failure: that code depends on
/// build features. The classifier is in `steadfast-classify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The server's status, OK (0) included.
    Status(u16),
    /// A bare HTTP status other than 200, without a grpc-status.
    Http(u16),
    /// No connection could be made: name, connect, TLS.
    DialFailed,
    /// The request never left this process.
    NeverSent,
    /// The peer said that it never processed the request: above GOAWAY's last stream id, or
    /// REFUSED_STREAM, before the response's head.
    Unprocessed,
    /// The connection was lost with the request on it, or its keepalive expired.
    ConnectionLost,
    /// HTTP/2 broke on our side or by the peer's fault: our own reset or GOAWAY.
    Protocol,
    /// Any other RST_STREAM from the peer, with its code (RFC 9113, section 7).
    Reset(u32),
    /// The connection's GOAWAY, with an error code, after the response's head.
    GoAway(u32),
    /// The response ended without a status.
    NoStatus,
    /// Status 0 inside a message.
    CutShort,
    /// A layer above gave it up because nothing came for the gap time-out.
    GapTimeout,
    /// A time-out of this process on the head or the whole attempt.
    Timeout,
    /// A layer of this process refused or ended it.
    Local(LocalKind),
    /// The caller went away. What the server did is unknown.
    Dropped,
    /// An error that is none of the transport's: a layer between, or a message that couldn't be read.
    Other,
}

impl Outcome {
    /// Whether the call succeeded: a status, and it is OK.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == Self::Status(0)
    }

    /// A short name with bounded values, for metric labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Status(0) => "ok",
            Self::Status(_) => "status",
            Self::Http(_) => "http",
            Self::DialFailed => "dial_failed",
            Self::NeverSent => "never_sent",
            Self::Unprocessed => "unprocessed",
            Self::ConnectionLost => "connection_lost",
            Self::Protocol => "protocol",
            Self::Reset(_) => "reset",
            Self::GoAway(_) => "goaway",
            Self::NoStatus => "no_status",
            Self::CutShort => "cut_short",
            Self::GapTimeout => "gap_timeout",
            Self::Timeout => "timeout",
            Self::Local(_) => "local",
            Self::Dropped => "dropped",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "grpc-status {code}"),
            Self::Http(code) => write!(f, "HTTP status {code} without a grpc-status"),
            Self::Reset(code) => write!(f, "RST_STREAM with code {code}"),
            Self::GoAway(code) => write!(f, "GOAWAY with code {code}"),
            Self::Local(kind) => write!(f, "ended locally: {kind}"),
            other => f.write_str(other.label()),
        }
    }
}
