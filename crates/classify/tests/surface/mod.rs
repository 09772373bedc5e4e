//! The failure surface: every way in which a call through a tonic channel fails, provoked, and what
//! became of it. One table for two builds: tonic with its `server` feature, by the workspace's tests, and
//! without it, by the package `feature-tests`.

pub(crate) mod call;
pub(crate) mod chain;
pub(crate) mod docs;
pub(crate) mod open;
pub(crate) mod row;
pub(crate) mod run;

use std::time::Duration;

/// Nothing here takes a tenth of it.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// How long a row that hangs is watched.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
