//! `bench sparse`: the latency of an interactive caller on the wire, and what the layer costs a call.

mod cli;
mod cost;
mod wire;

pub(super) use cli::SparseBench;
