#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chain;
mod closed;
pub mod deadline;
mod exchange;
mod framing;
mod local;
mod probe;

pub use chain::{body_error, call_error, deepest_cause, enhance_your_calm};
pub use closed::ChannelClosed;
pub use exchange::Exchange;
pub use local::{local_error, local_status};
pub use probe::{ProbeLimits, ask};
