//! One row: how it is provoked, and what may be seen of it.

use std::{sync::Arc, time::Duration};

use steadfast_core::Outcome;
use tonic::body::Body;

use super::{
    call::{Boxed, Opened},
    chain::fits,
};

/// Makes a fresh channel on which the failure is about to happen.
pub(crate) type Open = Arc<dyn Fn() -> Boxed<Opened> + Send + Sync>;

/// One thing that a layer may see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) outcome: Outcome,
    /// What comes, as [`Sight::line`](super::call::Sight) writes it; `*` stands for anything.
    pub(crate) line: &'static str,
    /// The deepest cause; `*` stands for anything.
    pub(crate) cause: &'static str,
}

/// One row of the table. Several things seen make it a race: any of them may come.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) open: Open,
    pub(crate) seen: Vec<Seen>,
    /// What a generated client shows, without and with tonic's `server` feature.
    pub(crate) shown: [Vec<String>; 2],
    /// The request's body, if it isn't one message; a generated client has no such body.
    pub(crate) body: Option<fn() -> Body>,
    pub(crate) grpc_timeout: Option<Duration>,
    /// Whether the channel's last handle goes when the head has come.
    pub(crate) lets_go: bool,
}

impl Row {
    pub(crate) fn new(id: impl Into<String>, open: Open) -> Self {
        Self {
            id: id.into(),
            open,
            seen: Vec::new(),
            shown: [Vec::new(), Vec::new()],
            body: None,
            grpc_timeout: None,
            lets_go: false,
        }
    }

    /// A layer may see this, and it has this outcome.
    pub(crate) fn seen(
        mut self,
        outcome: Outcome,
        line: &'static str,
        cause: &'static str,
    ) -> Self {
        self.seen.push(Seen {
            outcome,
            line,
            cause,
        });
        self
    }

    /// Nothing comes, and when the caller leaves it is a drop.
    pub(crate) fn pending(self) -> Self {
        self.seen(Outcome::Dropped, "PENDING", "").shown("PENDING")
    }

    /// A generated client may show this, whatever tonic's features.
    pub(crate) fn shown(mut self, shown: impl Into<String>) -> Self {
        let shown = shown.into();
        for build in &mut self.shown {
            build.push(shown.clone());
        }
        self
    }

    /// A generated client may show this, without and with tonic's `server` feature.
    pub(crate) fn differs(mut self, channel: impl Into<String>, server: impl Into<String>) -> Self {
        self.shown[0].push(channel.into());
        self.shown[1].push(server.into());
        self
    }

    /// The request has this body, and generated clients are left out.
    pub(crate) fn body(mut self, make: fn() -> Body) -> Self {
        self.body = Some(make);
        self
    }

    /// The request carries a grpc-timeout.
    pub(crate) fn grpc_timeout(mut self, limit: Duration) -> Self {
        self.grpc_timeout = Some(limit);
        self
    }

    /// The channel's last handle goes when the head has come.
    pub(crate) fn lets_go(mut self) -> Self {
        self.lets_go = true;
        self
    }

    /// Whether a layer may see this, by the line alone.
    pub(crate) fn lists(&self, line: &str) -> Option<&Seen> {
        self.seen.iter().find(|seen| fits(seen.line, line))
    }

    pub(crate) fn race(&self) -> bool {
        self.seen.len() > 1
    }
}
