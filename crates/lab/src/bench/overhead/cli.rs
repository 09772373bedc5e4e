//! The command line of `bench overhead`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{Contender, Options, run, tables, work::Call};
use crate::{cli::own_program, demo::JsonFile, error::Result};

/// What the layers cost the client, over a bare tonic Channel (about eight minutes).
///
/// Callers call an echo server again as soon as they have their answer: unary calls, or streams of messages. All contenders have one connection, and the client is one thread:
///
///   channel                 a bare tonic Channel, against another one: what differs here is noise
///   egress                  the factory's channel alone
///   balance                 the pool over bare channels
///   penalty                 the penalty layer around a bare channel
///   balance+penalty         the pool over bare channels with the penalty layer around each
///   balance+penalty+egress  the same over the factory's channels
///   stall                   stall detection around a bare channel
///   retry                   retry around a bare channel
///   resume                  streams that can go on, around a bare channel
///   stack                   steadfast::Pool, all layers with their defaults, and a rule for the streams
///
/// How to read it. Allocations are counted exactly, instructions to about one per cent: how much the allocator and the
/// socket have to do differs a little. Times depend on the host and on what else it does, so read their ratios to the
/// bare channel only. Each is the median of pairs measured right after each other, and the interval beside the ratio
/// of the rates holds that median with 95 % certainty: if 1 lies within it, no difference was seen. Calls a second
/// include the server's share of the work and the network's, so with few callers they hardly move; CPU time is the
/// client's alone.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = COLUMNS)]
pub(crate) struct OverheadBench {
    /// Only this contender; can be given several times.
    #[arg(long = "contender", value_name = "CONTENDER")]
    contenders: Vec<Contender>,
    /// Only this kind of call.
    #[arg(long = "call", value_name = "CALL")]
    calls: Vec<Call>,
    /// How many call at the same time; can be given several times.
    #[arg(long, value_name = "N", default_values_t = [1, 64, 512], value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: Vec<u16>,
    /// Messages of a stream.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Bytes of each message, both ways.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    bytes: u32,
    /// Pairs of runs, contender and bare channel.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(9..=999))]
    pairs: u16,
    /// Milliseconds that each of a pair runs.
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u16).range(20..=10_000))]
    milliseconds: u16,
    /// Calls of the script whose instructions valgrind counts; 0 leaves that out.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    script: u32,
    /// Also write the rows to this file, as a JSON array of flat objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const COLUMNS: &str = "\
Columns (the names in --json in brackets; contender, call and callers are as above):
  allocs         allocations of the client's thread for a call, a stream's with all its messages
                 (allocs_per_call)
  per message    allocations that each message of a stream adds (allocs_per_frame; null for unary)
  instructions   instructions of the client's process for a call, those of the kernel not among them,
                 counted by callgrind on the same script for all (instructions_per_call; null without
                 valgrind)
  × channel      as a multiple of the bare channel's; to be had from the rows in --json
  CPU µs         CPU time of the client's thread for a call, the kernel's on its behalf included
                 (cpu_us_per_call), and its ratio to the bare channel's (ratio_cpu)
  calls/s        calls a second (rps), their ratio to the bare channel's (ratio_rps), and the 95 %
                 interval of that ratio (ratio_low, ratio_high)";

impl OverheadBench {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let script = (self.script > 0).then_some(self.script);
        let options = Options {
            contenders: chosen(self.contenders),
            calls: chosen(self.calls),
            callers: self.callers.into_iter().map(usize::from).collect(),
            frames: self.messages,
            bytes: self.bytes as usize,
            pairs: self.pairs.into(),
            length: Duration::from_millis(self.milliseconds.into()),
            script,
        };
        let rows = run(&own_program()?, options).await?;
        println!("{}", tables(&rows));
        if script.is_some() && rows.iter().all(|row| row.instructions_per_call.is_none()) {
            println!("Instructions weren't counted: there is no valgrind on PATH.");
        }
        json.map_or(Ok(()), |json| json.write(&rows))
    }
}

/// What was named; everything when nothing was.
fn chosen<T: ValueEnum>(named: Vec<T>) -> Vec<T> {
    if named.is_empty() {
        T::value_variants().to_vec()
    } else {
        named
    }
}
