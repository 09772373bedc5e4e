//! How the peer treats one connection.

#[cfg(doc)]
use super::Step;
use super::{Answer, Request};
use std::{fmt, sync::Arc, time::Duration};

/// What the peer does when it has accepted a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accept {
    /// Speaks HTTP/2. The default.
    #[default]
    Serve,
    /// Closes its side at once (FIN), before any SETTINGS.
    Fin,
    /// Resets the TCP connection at once.
    TcpReset,
    /// Keeps the connection open, reads everything and says nothing.
    Mute,
    /// Waits for the client's first bytes, answers with this text and closes: a peer that speaks HTTP/1.1.
    Text(String),
}

/// How the peer treats PINGs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ping {
    /// Acknowledges each. The default.
    #[default]
    Ack,
    /// Never acknowledges one.
    Ignore,
    /// Acknowledges, but sends GOAWAY(ENHANCE_YOUR_CALM, "too_many_pings") and closes on the first that breaks a rule.
    Strict {
        /// The shortest allowed time between two PINGs of one connection.
        min_gap: Duration,
        /// Whether PINGs are allowed while the client has no open stream.
        without_streams: bool,
    },
}

/// The settings that the peer announces; `None` leaves one out, so that the protocol's default holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// SETTINGS_MAX_CONCURRENT_STREAMS. The peer announces it but does not enforce it. Default: none, which is unlimited.
    pub max_concurrent_streams: Option<u32>,
    /// SETTINGS_INITIAL_WINDOW_SIZE in bytes, for request bodies. Default: none, which is 65,535.
    pub initial_window: Option<u32>,
    /// SETTINGS_MAX_HEADER_LIST_SIZE in bytes. Default: none, which is unlimited.
    pub max_header_list: Option<u32>,
    /// How long the peer waits before it sends SETTINGS, and with them anything else. Default: zero.
    pub delay: Duration,
}

type Answers = dyn Fn(&Request) -> Answer + Send + Sync;

/// How the peer treats one connection, and how it answers each request on it.
///
/// The named constructors in this module's documentation cover the usual faults; [`Script::new`] takes any closure. The
/// closure runs on the connection's task: it must not block, and if it panics the connection is closed.
#[derive(Clone)]
pub struct Script {
    pub(super) accept: Accept,
    pub(super) settings: Settings,
    pub(super) ping: Ping,
    pub(super) deaf_after: Option<u64>,
    pub(super) forget_after: Option<Duration>,
    pub(super) window_updates: bool,
    pub(super) answers: Arc<Answers>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("accept", &self.accept)
            .field("settings", &self.settings)
            .field("ping", &self.ping)
            .field("deaf_after", &self.deaf_after)
            .field("forget_after", &self.forget_after)
            .field("window_updates", &self.window_updates)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// Serves the connection and asks `answers` for the answer to each request, when its headers have come.
    pub fn new(answers: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            accept: Accept::default(),
            settings: Settings::default(),
            ping: Ping::default(),
            deaf_after: None,
            forget_after: None,
            window_updates: true,
            answers: Arc::new(answers),
        }
    }

    /// The same answer to each request.
    pub fn always(answer: Answer) -> Self {
        Self::new(move |_| answer.clone())
    }

    /// What to do at accept. Default: [`Accept::Serve`].
    pub fn accept(mut self, accept: Accept) -> Self {
        self.accept = accept;
        self
    }

    /// The settings to announce. Default: none.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// How to treat PINGs. Default: [`Ping::Ack`].
    pub fn ping(mut self, ping: Ping) -> Self {
        self.ping = ping;
        self
    }

    /// Whether request DATA is answered with WINDOW_UPDATE. Without it a client stalls after 65,535 bytes of requests on one
    /// connection. Default: yes.
    pub fn window_updates(mut self, on: bool) -> Self {
        self.window_updates = on;
        self
    }

    /// After this many complete answers on the connection the peer writes nothing more, not even a PING acknowledgement,
    /// but goes on reading. Default: never.
    pub fn deaf_after(mut self, answers: u64) -> Self {
        self.deaf_after = Some(answers);
        self
    }
    /// Forgets the connection when it has answered on it and nothing was sent either way for this long: see [`Step::Forget`].
    /// Default: never.
    pub fn forget_after(mut self, idle: Duration) -> Self {
        self.forget_after = Some(idle);
        self
    }
}
