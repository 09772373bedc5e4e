//! The lock whose interleavings loom tries: the standard library's, or loom's under
//! `--cfg steadfast_loom`.

#[cfg(steadfast_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(steadfast_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
