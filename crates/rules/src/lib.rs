#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "bigtable")]
pub mod bigtable;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "spanner")]
pub mod spanner;
#[cfg(any(feature = "bigtable", feature = "etcd", feature = "spanner"))]
mod wire;
