#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod channel;
mod config;
mod entry;
mod facts;
mod fleet;
mod health;
mod layer;
mod observe;
mod pacemaker;
mod policy;
mod ring;
mod seats;
mod service;
mod sync;

pub use config::StallConfig;
pub use facts::{Action, Cause, Fact, Look, ProbeEnd, ProbeResult, Share, Spared};
pub use health::{HealthProbe, UnaryProbe};
pub use layer::{ChannelState, StallDetectLayer};
pub use policy::{Condition, StallPolicy};
pub use ring::{Entry, Note, Ring};
pub use service::{StallDetect, StallObserver};
pub use steadfast_core::ConfigError;
