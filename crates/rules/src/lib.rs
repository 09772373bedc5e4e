#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "bigtable")]
pub mod bigtable;
#[cfg(feature = "spanner")]
pub mod spanner;
#[cfg(any(feature = "bigtable", feature = "spanner"))]
mod wire;
