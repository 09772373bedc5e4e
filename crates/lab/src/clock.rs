//! The lab's clocks, kept in one place because the workspace bans reading a clock anywhere else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The time on tokio's clock, for sleeping and for latencies.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place in the lab that reads tokio's clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since the host started, the same in every process on it: the lab compares with it which server was connected to first.
pub(crate) fn uptime() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

/// The CPU time that the calling thread has used: while others have the core it stands still.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The wall clock in microseconds, which a BigTable server puts on cells that were written without a timestamp.
#[expect(
    clippy::disallowed_methods,
    reason = "a cell's timestamp is wall time by BigTable's definition"
)]
pub(crate) fn wall_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
