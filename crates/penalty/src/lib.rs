#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod entry;
mod failure;
mod fleet;
mod layer;
mod observe;
mod policy;
mod service;
mod timer;
mod typical;

pub use config::{Mode, PenaltyConfig};
pub use failure::is_failure;
pub use layer::PenaltyWindowLayer;
pub use policy::{Action, Member, Penalised, PenaltyPolicy};
pub use service::{PenaltyObserver, PenaltyWindow};
pub use steadfast_core::ConfigError;
