//! The error of a dial.

use std::{error::Error, fmt, net::SocketAddr, time::Duration};

use http::Uri;
use steadfast_classify::deepest_cause;
use steadfast_core::{BoxError, Place};

/// How far a dial came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DialStage {
    /// Before anything was sent: which endpoint to dial, and whether it can be.
    Endpoint,
    /// The server's name.
    Resolve,
    /// The TCP connection.
    Connect,
    /// The TLS handshake, to the end of tonic's `connect()`.
    Tls,
    /// The peer's first HTTP/2 frame on a plaintext connection, which must be SETTINGS.
    Settings,
}

impl fmt::Display for DialStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Endpoint => "endpoint",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Settings => "settings",
        })
    }
}

/// A dial that failed: what was tried, how far it came, and why.
///
/// Its text names all of it down to the deepest cause; the whole chain is in `source()`.
#[derive(Debug)]
pub struct DialError {
    pub(crate) place: Place,
    pub(crate) uri: Uri,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) stage: DialStage,
    pub(crate) budget: Duration,
    pub(crate) what: String,
    pub(crate) cause: Option<BoxError>,
}

impl DialError {
    /// The place that was to be dialled.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The URI that was dialled. For a place that has no endpoint: `/`.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The addresses that were tried: what the name resolved to, or the one that was connected to. None
    /// before the name was resolved.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How far the dial came.
    #[must_use]
    pub fn stage(&self) -> DialStage {
        self.stage
    }

    /// The time that the dial had.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budget
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dial of {}", self.place)?;
        if self.stage != DialStage::Endpoint && name(&self.uri) != self.place.as_str() {
            write!(f, " at {}", self.uri)?;
        }
        if !self.addresses.is_empty() {
            write!(f, " {:?}", self.addresses)?;
        }
        write!(f, " failed ({}): {}", self.stage, self.what)?;
        match &self.cause {
            Some(cause) => write!(f, ": {}", deepest_cause(&**cause)),
            None => Ok(()),
        }
    }
}

impl Error for DialError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// The name of the place that a URI is.
pub(crate) fn name(uri: &Uri) -> String {
    let mut name = uri.to_string();
    if name.ends_with('/') {
        name.pop();
    }
    name
}
