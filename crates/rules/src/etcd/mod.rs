//! etcd: each watch goes on at its next revision.

mod messages;
mod watch;
mod watches;

pub use watch::Watch;
