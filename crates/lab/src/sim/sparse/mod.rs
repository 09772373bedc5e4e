//! `sim sparse`: what an interactive caller's latency is beside busy ones, by discipline, in virtual time.

mod chart;
mod cli;
mod measured;
mod model;
mod row;
mod run;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use cli::SparseSim;
