#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod alloc;
pub mod body;
mod clock;
mod listen;
pub mod peer;
pub mod proxy;
mod wait;
mod wire;
