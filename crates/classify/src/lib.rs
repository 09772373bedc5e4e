#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chain;
mod closed;
pub mod deadline;
pub mod details;
mod exchange;
mod framing;
mod local;
mod probe;
mod tried;

pub use chain::{body_error, call_error, deepest_cause, enhance_your_calm};
pub use closed::ChannelClosed;
pub use exchange::Exchange;
pub use local::{local_error, local_status};
pub use probe::{ProbeLimits, ask};
pub use tried::{Tried, Unfinished, error_text, last_error};
