#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod alloc;
pub mod body;
mod clock;
pub mod contract;
mod listen;
pub mod memory;
pub mod names;
pub mod peer;
pub mod proxy;
mod wait;
mod wire;
