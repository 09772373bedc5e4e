//! What the peer has seen so far.

use bytes::Bytes;
use http::HeaderMap;
use std::{collections::BTreeSet, fmt, sync::Arc};

/// A request, as recorded when its headers had come.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The number of the connection that it came on; the first one accepted is 0.
    pub connection: u64,
    /// The HTTP/2 stream.
    pub stream: u32,
    /// How many requests came on the same connection before it.
    pub index: u64,
    /// How many requests the peer had recorded before it, on all connections.
    pub order: u64,
    /// Whether the peer had sent a GOAWAY that excludes this stream, and so gives no answer.
    pub refused: bool,
    /// `:path`; empty if the client sent none.
    pub path: String,
    /// The other fields, without those whose names begin with a colon and those that are not valid HTTP.
    pub headers: Arc<HeaderMap>,
}

impl Request {
    /// The field's first value, if it has one that is visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value of `x-id`, by which a test can tag its calls.
    pub fn id(&self) -> Option<&str> {
        self.header("x-id")
    }
}

/// A RST_STREAM that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The connection's number.
    pub connection: u64,
    /// The stream.
    pub stream: u32,
    /// The error code.
    pub code: u32,
}

/// A GOAWAY that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Goaway {
    /// The connection's number.
    pub connection: u64,
    /// The last stream that the client names.
    pub last: u32,
    /// The error code.
    pub code: u32,
    /// The debug data.
    pub debug: Bytes,
}

/// One accepted connection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Connection {
    /// Whether it is still open. A connection that the peer has closed counts as closed from then on.
    pub open: bool,
    /// The streams that the client has opened and nobody has ended or reset: those that wait for (the rest of) an answer.
    pub open_streams: BTreeSet<u32>,
    /// Requests seen.
    pub requests: u64,
    /// Answers that the peer has sent in full.
    pub answers: u64,
    /// PINGs received, without acknowledgements.
    pub pings: u64,
    /// Whether the client has acknowledged the peer's SETTINGS.
    pub settings_acknowledged: bool,
    /// Whether the peer has forgotten the connection: see [`Step::Forget`](super::Step::Forget).
    pub forgotten: bool,
    /// Bytes of DATA received.
    pub data_received: u64,
    /// Bytes of DATA sent: where this stops growing the client's windows are full.
    pub data_sent: u64,
}

/// Everything that the peer has seen; [`Peer::state`](super::Peer::state) gives a copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PeerState {
    /// The connections, by number.
    pub connections: Vec<Connection>,
    /// The requests, in the order in which they came.
    pub requests: Vec<Request>,
    /// The RST_STREAM frames from clients, in order.
    pub resets: Vec<Reset>,
    /// The GOAWAY frames from clients, in order.
    pub goaways: Vec<Goaway>,
    /// Answers that wait at a [`Step::Hold`](super::Step::Hold) now.
    pub held: u64,
}

impl PeerState {
    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.connections
            .iter()
            .filter(|connection| connection.open)
            .count()
    }

    /// Streams that are open now, on all connections.
    pub fn open_streams(&self) -> usize {
        self.connections
            .iter()
            .map(|connection| connection.open_streams.len())
            .sum()
    }

    /// PINGs received, on all connections.
    pub fn pings(&self) -> u64 {
        self.connections
            .iter()
            .map(|connection| connection.pings)
            .sum()
    }

    pub(super) fn connection(&mut self, number: u64) -> Option<&mut Connection> {
        self.connections.get_mut(usize::try_from(number).ok()?)
    }
}

impl fmt::Display for PeerState {
    /// A summary for the message of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections ({} open), {} requests ({} streams open, {} held), {} resets, {} pings, goaways {:?}",
            self.connections.len(),
            self.open_connections(),
            self.requests.len(),
            self.open_streams(),
            self.held,
            self.resets.len(),
            self.pings(),
            self.goaways,
        )
    }
}
