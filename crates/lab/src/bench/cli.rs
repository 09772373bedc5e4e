//! The benches' part of the command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{cuts::CutsBench, overhead::OverheadBench, penalty, pick, sparse::SparseBench};
use crate::{
    cli::{own_program, seconds},
    demo::JsonFile,
    error::Result,
};

/// Small comparisons, one question each.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    Cuts(CutsBench),
    Overhead(OverheadBench),
    Penalty(PenaltyBench),
    Pick(PickBench),
    Sparse(SparseBench),
}

impl Bench {
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Cuts(bench) => bench.run().await,
            Self::Overhead(bench) => bench.run().await,
            Self::Penalty(bench) => bench.run().await,
            Self::Pick(bench) => bench.run(),
            Self::Sparse(bench) => bench.run().await,
        }
    }
}

/// What a failing server costs: one of four fails at once, the others take 5 ms (about two minutes).
///
/// Callers call again as soon as they have their answer, so a server that fails at once attracts them. Six
/// contenders take turns at 8, 32, 64, 128 and 512 callers: tonic's balance, our pool without a penalty, with a
/// flat one of 10 and of 25 requests, with the failing channel in reserve, and, as the best there can be, a pool
/// of the three good servers alone. Printed are the failing server's share of the calls (bad) and the
/// successful calls a second (ok/s).
#[derive(Debug, Args)]
pub(crate) struct PenaltyBench {
    /// Seconds of each run.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Runs of each contender at each number of callers, in turn; the figures are their medians.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    runs: u16,
    /// Also write the rows to this file, as a JSON array of flat objects: contender, callers, bad_share (0 to 1), ok_rps.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl PenaltyBench {
    async fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let rows = penalty::run(&own_program()?, self.seconds, self.runs.into()).await?;
        println!("{}", penalty::table(&rows));
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}

/// What it costs to choose a channel, claim it, and release an earlier claim (about ten seconds).
///
/// Over services that do nothing, with two requests a channel in flight, on one thread and on two that share the
/// channels; pools of 4, 10, 50 and 200 channels, once without charges and once with a quarter of the channels
/// charged with 25 requests:
///
///   ideal-scan  the least an exact pick can cost: one array of words that never changes, no service
///   steadfast   our pool's own pick, as each call does it: the lookup of the channels, the scan, the claim
///   tower-p2c   tower::balance::p2c, poll_ready and call, with our meters as load; one for each thread, because it
///               can't be shared without a lock
///
/// Printed are nanoseconds of the thread's CPU time for one pick and one release, the median over the rounds, and
/// allocations.
#[derive(Debug, Args)]
pub(crate) struct PickBench {
    /// Rounds; the contenders take turns in each.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=999))]
    rounds: u16,
    /// Milliseconds that each contender gets in a round.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    milliseconds: u16,
    /// Also write the rows to this file, as a JSON array of flat objects: contender, channels, threads, charged (the share of the channels, 0 or 0.25), ns, allocs.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl PickBench {
    fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let rows = pick::run(pick::Options {
            rounds: self.rounds.into(),
            length: Duration::from_millis(self.milliseconds.into()),
        });
        println!("{}", pick::tables(&rows));
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}
