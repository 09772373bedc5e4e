//! The locks and atomics whose interleavings loom tries: the standard library's, or loom's under
//! `--cfg steadfast_loom`.

#[cfg(steadfast_loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(steadfast_loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
