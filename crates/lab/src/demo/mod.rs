//! The demo: every contender under every fault, in turn, on the same reads.

mod fault;
mod inflict;
mod report;
mod row;
mod run;

pub use fault::Fault;
pub use report::{JsonFile, Report, Skipped};
pub use row::Row;
pub use run::run;

use std::path::PathBuf;

use crate::contender::Contender;
use crate::places::Servers;
use crate::rows::Rows;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program, which is started again for the helper processes.
    pub program: PathBuf,
    /// Where the reads go.
    pub servers: Servers,
    /// The emulator's program, if it was named.
    pub emulator: Option<PathBuf>,
    /// The faults, in order.
    pub faults: Vec<Fault>,
    /// The contenders, in order.
    pub contenders: Vec<Contender>,
    /// Seconds of load for each of them under each fault.
    pub seconds: f64,
    /// Reads a second; measured when it isn't given.
    pub rate: Option<f64>,
    /// The rows of the table, and the seed of everything random.
    pub rows: Rows,
}
