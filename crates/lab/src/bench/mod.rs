//! The benches: small closed-loop comparisons, each with a table and rows of JSON.

pub(crate) mod penalty;
mod servers;

pub(crate) use servers::serve;
