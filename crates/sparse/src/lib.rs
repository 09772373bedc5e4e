#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod error;
mod flow;
mod key;
mod lanes;
mod layer;
mod list;
mod observe;
mod policy;
mod queue;
#[cfg(feature = "server")]
mod server;
mod service;
mod sync;

pub use config::{SparseConfig, Watermark};
pub use flow::FlowId;
pub use key::{CallHead, Key};
pub use lanes::{CallId, FlowReading, Lane, SparseReading};
pub use layer::SparseFlowLayer;
pub use policy::{Arrival, Bound, Depth, Grant, SparsePolicy};
pub use service::{Admission, SparseFlow, SparseObserver};
pub use steadfast_core::ConfigError;
