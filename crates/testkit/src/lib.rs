#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod listen;
pub mod peer;
mod wait;
mod wire;
