#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calm;
mod config;
mod connector;
mod dial;
mod error;
mod factory;
mod frames;
mod io;
mod link;
mod observe;
mod service;
mod tls;

pub use config::{EgressConfig, Keepalive};
pub use error::{DialError, DialStage};
pub use factory::Egress;
pub use service::{EgressChannel, EgressFuture};
