//! The command line of `sim sparse`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    chart,
    run::{self, Options, ROWS, WARM_UP},
    tables,
};
use crate::{bench::progress, cli::seconds, demo::JsonFile, error::Result};

/// What an interactive caller's latency is beside busy ones, by discipline, in virtual time (about ten seconds).
///
/// The policy of steadfast-sparse decides who gets the next of 16 places; calls take 12.4 ms ± 3 %. K flows keep 16
/// calls outstanding each, and one keeps W:
///
///   one-ring      every flow gets its turn
///   exact-zero    a flow that is found without a call goes first for 64 calls
///   watermark-N   a flow that is found with fewer than N calls outstanding does
///   in-service-4  with fewer than 4 calls running: the wrong measure
///
/// Further tables show the guard, the reserve, interactive callers with gaps, and one that plays the watermark.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct SparseSim {
    /// Virtual seconds of each run.
    #[arg(long, value_name = "N", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// The seed of what is left to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write the rows to this file, as a JSON array of flat objects: discipline, bulk_flows, window, p50_ms, p99_ms,
    /// floor_ms (the same caller alone), aggressor_p50_ms, rearm_share (of the caller's arrivals, how many found it sparse),
    /// credit_end, bulk_share, total_per_s.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the sweep into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

impl SparseSim {
    pub(crate) fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let options = Options {
            length: Duration::from_secs_f64(self.seconds),
            warm_up: WARM_UP,
            seed: self.seed,
        };
        let bar = progress(ROWS as u64);
        let rows = run::all(options, |row| {
            bar.set_message(row.discipline.0.to_string());
            bar.inc(1);
        });
        bar.finish_and_clear();
        print!("{}", tables::text(&rows));
        if let Some(path) = &self.chart {
            chart::draw(path, &rows)?;
            println!("{}", path.display());
        }
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}
