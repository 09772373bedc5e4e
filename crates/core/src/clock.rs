//! The one clock.

use tokio::time::Instant;

/// The time now, by the one clock of all layers.
///
/// It is tokio's: under `tokio::time::pause()` it stands still and moves only as a test moves it.
/// Outside a runtime it is the system's monotonic clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads a clock"
)]
pub fn now() -> Instant {
    Instant::now()
}
