//! `bench overhead`: what each layer, and all of them, cost on the client's side over a bare tonic `Channel`.
//!
//! The echo server runs in a process of its own, and all clients on one thread of this one, so that CPU time and
//! allocations of that thread are the client's alone. Rates and CPU times come from pairs: the contender and a bare
//! channel right after each other, in turns first. Allocations are the difference between a script and one twice as
//! long. So are instructions, which valgrind's callgrind counts in a third process, a client with one contender.

mod callgrind;
mod cli;
mod clients;
mod echo;
mod measure;
mod pairs;
mod table;
mod work;

use std::{path::Path, time::Duration};

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use super::progress;
use crate::error::{Error, Result};

pub(crate) use callgrind::{Script, play};
pub(crate) use cli::OverheadBench;
pub(crate) use echo::serve as serve_echo;
pub(crate) use table::tables;
use work::Call;

/// What a client calls through: one connection each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// A bare tonic `Channel`. As a contender it is compared with another one of its kind: what that shows is noise.
    Channel,
    /// The factory's channel alone.
    Egress,
    /// The pool over bare channels.
    Balance,
    /// The penalty layer around a bare channel.
    Penalty,
    /// The pool over bare channels with the penalty layer around each.
    #[value(name = "balance+penalty")]
    BalancePenalty,
    /// The same over the factory's channels.
    #[value(name = "balance+penalty+egress")]
    BalancePenaltyEgress,
    /// Stall detection around a bare channel.
    Stall,
    /// Retry around a bare channel.
    Retry,
    /// Streams that can go on, around a bare channel.
    Resume,
    /// `steadfast::Pool`: all layers with their defaults, and a rule for the streams.
    Stack,
}

impl Contender {
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// One contender under one load; also a row of the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) contender: Contender,
    pub(crate) call: Call,
    pub(crate) callers: usize,
    /// Allocations of the client's thread for a call; a stream's with all its messages.
    pub(crate) allocs_per_call: f64,
    /// What each further message of a stream adds to that.
    pub(crate) allocs_per_frame: Option<f64>,
    /// Instructions of the client's process in user space for a call; none without valgrind.
    pub(crate) instructions_per_call: Option<f64>,
    /// CPU time of the client's thread for a call, the kernel's on its behalf included.
    pub(crate) cpu_us_per_call: f64,
    /// Calls a second.
    pub(crate) rps: f64,
    /// CPU time over the bare channel's.
    pub(crate) ratio_cpu: f64,
    /// Calls a second over the bare channel's.
    pub(crate) ratio_rps: f64,
    /// The 95 % interval of `ratio_rps`.
    pub(crate) ratio_low: f64,
    pub(crate) ratio_high: f64,
}

/// What to measure.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) calls: Vec<Call>,
    pub(crate) callers: Vec<usize>,
    /// Messages of a stream.
    pub(crate) frames: u32,
    /// Bytes of a message.
    pub(crate) bytes: usize,
    pub(crate) pairs: usize,
    /// How long each of a pair runs.
    pub(crate) length: Duration,
    /// Calls of the script whose instructions are counted; none if they aren't to be.
    pub(crate) script: Option<u32>,
}

/// Measures everything.
pub(crate) async fn run(program: &Path, options: Options) -> Result<Vec<Row>> {
    let server = echo::Echo::start(program).await?;
    let (program, uri) = (program.to_owned(), server.uri.clone());
    // The clients get a thread and a runtime of their own, so that what the thread uses is theirs alone.
    let measured = tokio::task::spawn_blocking(move || all(&program, &uri, &options)).await;
    server.end().await;
    measured.map_err(|error| Error::because("the thread that measures ended early", error))?
}

fn all(program: &Path, uri: &str, options: &Options) -> Result<Vec<Row>> {
    let Options {
        contenders,
        calls,
        callers,
        ..
    } = options;
    let bar = progress((contenders.len() * calls.len() * callers.len()) as u64);
    let valgrind = options.script.filter(|_| callgrind::is_there());
    let mut rows = Vec::new();
    for &call in calls {
        for &callers in callers {
            for &contender in contenders {
                bar.set_message(format!("{}, {call}, {callers} callers", contender.name()));
                let mut row = measure::row(uri, (contender, call, callers), options)?;
                let script = valgrind.map(|calls| Script {
                    contender,
                    uri: uri.to_owned(),
                    call,
                    callers,
                    frames: options.frames,
                    bytes: options.bytes,
                    calls,
                });
                let counted = script.map(|script| callgrind::instructions(program, &script));
                row.instructions_per_call = counted.transpose()?;
                rows.push(row);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}
