//! Who is who: channels and the servers that they lead to.

use std::{
    fmt,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// One channel, for as long as this process lives.
///
/// An id is never used twice: a holder of an old one can't name its successor by mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(NonZeroU64);

impl ChannelId {
    /// An id that no channel of this process has had.
    #[must_use]
    pub fn next() -> Self {
        // Not loom's atomic: an id carries no memory of other threads with it.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
    }

    /// The id as a number: larger is younger.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelId({})", self.0)
    }
}

/// A server, or a group of equal servers, that channels of a pool lead to: a URI or any other name
/// that the pool's factory can dial. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(Arc<str>);

impl Place {
    /// A place by its name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Place {
    /// The one place of a pool whose factory knows where to dial: named `default`.
    fn default() -> Self {
        Self::new("default")
    }
}

impl From<&str> for Place {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Place {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({:?})", &*self.0)
    }
}
