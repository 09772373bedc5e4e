#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod backoff;
#[doc(hidden)]
pub mod bench;
mod config;
mod control;
mod error;
mod keeper;
mod layer;
mod looking;
mod member;
mod observe;
mod pick;
mod places;
mod plan;
mod service;
mod shared;
mod sizer;
mod snapshot;
mod wait;
mod warm_up;

pub use config::{BalanceConfig, Strategy};
pub use control::CloseReport;
pub use layer::BalanceLayer;
pub use observe::BalanceObserver;
pub use places::Places;
pub use service::{Balance, ResponseFuture};
pub use snapshot::{ChannelSnapshot, ConnectingSnapshot, Connectivity, Snapshot};
pub use warm_up::{NoWarmUp, ProbeWarmUp, WarmUp};
