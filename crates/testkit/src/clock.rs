//! The one place where this crate reads the clock.

use tokio::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "real sockets run on the real clock, and this crate stands below the others"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
