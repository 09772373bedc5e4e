//! The command line of `bench sparse`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Serialize;

use super::{cost, wire};
use crate::{
    cli::{between, seconds},
    demo::JsonFile,
    error::Result,
};

/// An interactive caller beside busy ones, on real tonic servers, and what the layer costs (about a minute and a half).
///
/// A server has 16 places and answers in 49.6 ms ± 3 %, four times as long as in sim sparse, so that what else the
/// machine does weighs less. K connections keep 16 calls outstanding each, and one keeps W from 1 to 8. Three servers run side by side: in one
/// every flow gets its turn (one-ring), in one a flow must be found empty (exact-zero), and one has the defaults
/// (watermark-4). Then calls over a service that does nothing tell what the layer costs, with 1 and with 1,000 flows that have a call open, for
/// calls that find their place free and for calls that wait.
#[derive(Debug, Args)]
pub(crate) struct SparseBench {
    /// Busy connections; can be given several times.
    #[arg(long = "bulk-flows", value_name = "K", default_values_t = [16], value_parser = clap::value_parser!(u32).range(1..=64))]
    bulk_flows: Vec<u32>,
    /// Seconds of each run.
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Milliseconds that a call takes.
    #[arg(long, value_name = "N", default_value_t = 49.6, value_parser = work)]
    work_ms: f64,
    /// Rounds of the cost; the figures are their medians.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=999))]
    rounds: u16,
    /// Also write the rows to this file, as a JSON array of flat objects: discipline, bulk_flows, window, p50_ms, p99_ms,
    /// floor_ms, bulk_share, total_per_s for the latencies; call (free, waits or bare), flows, ns, allocs for the cost.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row<'a> {
    Wire(&'a wire::Row),
    Cost(&'a cost::Row),
}

impl SparseBench {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let options = wire::Options {
            work: Duration::from_secs_f64(self.work_ms / 1000.0),
            length: Duration::from_secs_f64(self.seconds),
        };
        let latencies = wire::run(&self.bulk_flows, options).await?;
        for bulk in &self.bulk_flows {
            println!("{}", wire::table(&latencies, *bulk));
        }
        let costs = cost::run(self.rounds.into());
        println!("{}", cost::table(&costs));
        let rows = latencies.iter().map(Row::Wire);
        let rows: Vec<_> = rows.chain(costs.iter().map(Row::Cost)).collect();
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}

fn work(text: &str) -> Result<f64, String> {
    between(text, 1.0, 1_000.0)
}
