//! The simulations: policies of the layers in virtual time, each with tables and rows of JSON.

mod chart;
pub mod pickers;
mod sparse;

use clap::Subcommand;

use crate::error::Result;

/// Policies in virtual time, one question each.
#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    Pickers(pickers::PickersSim),
    Sparse(sparse::SparseSim),
}

impl Sim {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Pickers(sim) => sim.run(),
            Self::Sparse(sim) => sim.run(),
        }
    }
}
