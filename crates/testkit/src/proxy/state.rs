//! What the proxy has seen, and how it is told what to do.

use std::{fmt, time::Duration};

/// Which connections a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that are open. What isn't an end (freezing, muting, delays, throttling) holds for later connections too.
    All,
    /// The one with this number; the first one accepted is 0. A closed one, or one that does not exist yet, is not changed.
    One(u64),
}

/// What the proxy does with a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptMode {
    /// Connects it to the upstream; if that fails, resets it. The default.
    #[default]
    Serve,
    /// Resets it at once (TCP RST).
    Reset,
    /// Closes it at once (FIN).
    Cut,
    /// Keeps it open, and neither reads nor writes.
    Ignore,
}

/// What a proxied connection suffers at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Whether no byte moves.
    pub frozen: bool,
    /// Whether no request and no answer passes, with the connection alive.
    pub muted: bool,
    /// How long each byte to the server is held back.
    pub to_server: Duration,
    /// How long each byte to the client is held back.
    pub to_client: Duration,
    /// How many bytes a second may pass, in each direction. `None` is as many as there are.
    pub bytes_per_second: Option<u64>,
}

/// One connection that came through the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxiedConnection {
    /// Whether it is still open.
    pub open: bool,
    /// Bytes written to the upstream.
    pub to_server: u64,
    /// Bytes written to the client.
    pub to_client: u64,
    /// HTTP/2 HEADERS frames read from the client: requests, and trailers of requests if it sends such.
    pub headers: u64,
    /// PINGs of either side that the proxy answered itself, because the connection was muted.
    pub pings: u64,
    /// What it suffers now.
    pub faults: Faults,
}

/// What the proxy has seen.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProxyState {
    /// The connections, by number.
    pub connections: Vec<ProxiedConnection>,
}

impl ProxyState {
    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.connections
            .iter()
            .filter(|connection| connection.open)
            .count()
    }
}

impl fmt::Display for ProxyState {
    /// A summary for the message of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.connections)
    }
}
