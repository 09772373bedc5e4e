//! The command line of `sim pickers`.

use std::path::PathBuf;

use clap::Args;

use super::{chart, run, table};
use crate::{demo::JsonFile, error::Result};

/// How long calls take under four ways to pick a channel, counted to their end or to their headers, in virtual time
/// (about ten seconds).
///
/// Each channel shares its capacity equally among its calls. Calls arrive at random (Poisson), their sizes are
/// exponential with mean 1, and a call of size 1 that is alone on its channel takes the time 1. Response headers come
/// 0.05 after the call. 60,000 calls, of which the first tenth isn't counted; a figure is the median of five seeds.
///
///   least-loaded  the lowest count of all channels: our pool's own pick
///   p2c           the lower count of two channels at random
///   round-robin   the next channel
///   random        any channel
///
/// A call is counted to the end of its body, as our pool does it, or to its headers only, as pools do that count in
/// the response's future. Round robin and random ask for no count.
///
/// Printed is the time that 99 in 100 calls stay below, as a multiple of the mean size, at loads (ρ) of 0.7 and 0.9 of
/// the channels' capacity.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PickersSim {
    /// Also write the rows to this file, as a JSON array of flat objects: picker, counted (body or headers), channels, rho, p99.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the rows into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl PickersSim {
    pub(crate) fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let rows = run();
        println!("{}", table(&rows));
        if let Some(path) = &self.plot {
            chart::draw(path, &rows)?;
            println!("{}", path.display());
        }
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}
