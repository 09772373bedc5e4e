//! How the layers behave, on a paused clock, above a pool in miniature.

mod budget;
mod deadlines;
mod errors;
mod hostile;
mod kept;
mod observe;
mod replies;
mod resends;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use steadfast_retry::{Kind, Retry, RetryConfig, RetryLayer};
use support::{HELD, Pool, STREAM};
use tower::Layer;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A layer that knows which of the test's methods are idempotent.
pub(crate) fn layer(config: RetryConfig) -> RetryLayer {
    let layer = RetryLayer::new(config).unwrap();
    let layer = layer.idempotent(HELD, Kind::Held).unwrap();
    layer.idempotent(STREAM, Kind::Streaming).unwrap()
}

pub(crate) fn over(pool: &Pool) -> Retry<Pool> {
    layer(RetryConfig::default()).layer(pool.clone())
}

pub(crate) fn over_with(pool: &Pool, change: impl FnOnce(&mut RetryConfig)) -> Retry<Pool> {
    let mut config = RetryConfig::default();
    change(&mut config);
    layer(config).layer(pool.clone())
}
