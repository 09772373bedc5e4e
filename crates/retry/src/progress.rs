//! How far a reply has come, when attempts that failed don't count.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

/// Takes the data of a reply as it arrives, and can start over.
///
/// It is called while the reply is polled, with no lock held: it must not block. If it panics, that call
/// fails.
pub trait Sink: Send + Sync {
    /// The next bytes of the present attempt's reply.
    fn data(&self, data: &Bytes);

    /// The attempt failed: what it delivered doesn't count, and the next one begins from the start.
    fn start_over(&self);
}

/// A request extension: counts the bytes of the reply as they arrive, also while the reply is kept back.
///
/// What an attempt that failed had delivered is taken back before the next one begins, so that the count is
/// that of the winning attempt only. Clones are one count.
///
/// ```
/// use steadfast_retry::Progress;
///
/// let progress = Progress::new();
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(progress.clone());
/// // … while the call is on its way, and after it:
/// assert_eq!((progress.delivered(), progress.received()), (0, 0));
/// ```
#[derive(Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Default)]
struct Counts {
    delivered: AtomicU64,
    received: AtomicU64,
    sink: Option<Box<dyn Sink>>,
}

impl Progress {
    /// A count at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, which also tells a sink.
    #[must_use]
    pub fn into_sink(sink: impl Sink + 'static) -> Self {
        Self(Arc::new(Counts {
            sink: Some(Box::new(sink)),
            ..Counts::default()
        }))
    }

    /// Bytes of the present attempt, or of the one that won: frames as gRPC sends them, with five bytes
    /// before each message.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.0.delivered.load(Ordering::Relaxed)
    }

    /// Bytes of all attempts: what the network carried.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.0.received.load(Ordering::Relaxed)
    }

    pub(crate) fn data(&self, data: &Bytes) {
        let bytes = data.len() as u64;
        self.0.delivered.fetch_add(bytes, Ordering::Relaxed);
        self.0.received.fetch_add(bytes, Ordering::Relaxed);
        if let Some(sink) = &self.0.sink {
            sink.data(data);
        }
    }

    pub(crate) fn start_over(&self) {
        self.0.delivered.store(0, Ordering::Relaxed);
        if let Some(sink) = &self.0.sink {
            sink.start_over();
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("delivered", &self.delivered())
            .field("received", &self.received())
            .finish_non_exhaustive()
    }
}
