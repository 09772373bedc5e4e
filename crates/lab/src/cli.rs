//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::bench::{self, Bench};
use crate::contend::contend;
use crate::contender::Contender;
use crate::demo::{self, Fault, JsonFile, Options, Report};
use crate::error::{Error, Result};
use crate::load::arrivals::SCAN_ROWS;
use crate::places::Servers;
use crate::places::proxy::{Upstream, proxy};
use crate::rows::Rows;
use crate::server::process::serve;
use crate::sim::Sim;

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs BigTable reads through plain tonic, tonic's balance and Steadfast, side by side, with and without faults.
#[derive(Debug, Parser)]
#[command(name = "steadfast-lab", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(Demo),
    #[command(subcommand)]
    Bench(Bench),
    #[command(subcommand)]
    Sim(Sim),
    /// Four small servers for a bench, asked on standard input.
    #[command(hide = true)]
    BenchServers,
    /// One echo server for a bench.
    #[command(hide = true)]
    BenchEcho,
    /// One client of a bench, whose instructions are counted from outside.
    #[command(hide = true)]
    BenchScript(bench::Script),
    /// One embedded server, told what to do on standard input.
    #[command(hide = true)]
    Serve(Serve),
    /// One fault proxy, told what to do on standard input.
    #[command(hide = true)]
    Proxy(Front),
    /// One contender's run, described on standard input.
    #[command(hide = true)]
    Contend,
}

/// Compare the contenders on the same reads, fault by fault (five minutes by default).
///
/// Four BigTable servers are started and filled with the same rows. Three contenders read from
/// them in turn, each in a process of its own and with its library's defaults (the pool is told
/// that ReadRows may be repeated):
///
///   channel        one tonic Channel to the first server
///   tonic-balance  tonic's own balance, ten connections over the four servers
///   pool           steadfast::Pool over the four servers
///
/// First a closed loop finds out what a plain Channel can do here; at most 40 % of that is then
/// offered as an open loop: reads arrive at that fixed rate, whether or not earlier ones were
/// answered. Three in four read one row of about 1 KiB, the fourth scans 100 rows. All contenders
/// get the same reads at the same times (--seed).
///
/// A fault begins a fifth into the load and stays to the end:
///
///   none        nothing goes wrong
///   lazy-scans  two scans a second are of 3 MiB and left unread for 4 s
///   frozen      one of the servers stops, with its connections open
///   failing     one of the servers fails every call at once
///   slow        one of the connections is about four times slower
///   freeze      nothing moves on one of the connections for 10 s
///   mute        one of the connections answers PINGs and no calls
///   goaway      all servers tell their clients to go away, every 2 s
///   restart     one of the servers is killed and started again
///
/// frozen, failing and restart hit the server that the contender connected to first; slow, freeze
/// and mute hit its first connection.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = COLUMNS)]
struct Demo {
    /// Where to read: embedded (four servers of this program), emulator (Google's BigTable emulator, four times), or a list host:port,host:port of
    /// servers that run already, without TLS. They get a table steadfast-lab in project p, instance i.
    #[arg(long, value_name = "SERVER", default_value = "embedded")]
    server: Servers,
    /// The emulator's program, if it is neither on PATH nor in the Cloud SDK's usual folders.
    #[arg(long, value_name = "PATH")]
    emulator: Option<PathBuf>,
    /// Only this fault; can be given several times.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// Only this contender; can be given several times.
    #[arg(long = "contender", value_name = "CONTENDER")]
    contenders: Vec<Contender>,
    /// Seconds of load for each contender under each fault.
    #[arg(long, value_name = "N", default_value_t = 9.0, value_parser = seconds)]
    seconds: f64,
    /// Reads a second, instead of 40 % of what a plain Channel can do (at most 2,000): for comparing one run of the demo with another.
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    #[command(flatten)]
    filling: Filling,
    /// Also write the rows to this file, as a JSON array of flat objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let what = "can't find this program's own file to start its helpers";
        Error::because(what, error)
    })
}

#[derive(Debug, Args)]
struct Filling {
    /// Rows in the table, of about 1 KiB each.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(i64::from(SCAN_ROWS)..=1_000_000))]
    rows: u32,
    /// The seed of the rows, and of which rows are read when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Serve {
    /// The port to listen on; 0 is a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    filling: Filling,
}

#[derive(Debug, Args)]
struct Front {
    #[arg(long, required_unless_present = "emulator")]
    upstream: Option<String>,
    #[arg(long)]
    emulator: Option<PathBuf>,
    #[command(flatten)]
    filling: Filling,
}

const COLUMNS: &str = "\
Columns (the names in --json in brackets):
  offered/s   reads that arrived each second (offered_rps)
  read/s      reads answered in full each second (rps)
  p50 … worst latency from the scheduled arrival to the last row, in ms; about 1 ms of it is the
              timer's. A read still open at the end counts with its age, an error doesn't count
              (p50_ms, p99_ms, p999_ms, worst_ms)
  worst wait  the longest that a caller waited for the head of an answer or for its next message,
              in ms, failed and unfinished reads included (worst_wait_ms)
  over 1 s    reads that took, or had been open for, more than a second (over_1s); over 10 s
              likewise, given from --seconds 10 on (over_10s)
  errors      reads that failed, or brought too few rows (errors)
  unfinished  reads still open half a second after the last arrival (unfinished)
  failed locally, retried, resumed, quarantined
              requests that the contender's own layers ended, and sent again, reads that they carried on
              elsewhere, and channels that they took out of service (failed_locally, retried, resumed,
              quarantined)
  bad share   of the calls since the fault began, how many reached the faulty server, counted
              there (bad_share, 0 to 1)
  channels    connections at the end (channels)
  CPU s       CPU time of the contender's process during the load (cpu_s)
  RSS MiB     its largest resident set (rss_mib)

Examples:
  steadfast-lab demo
  steadfast-lab demo --fault frozen --seconds 30 --json frozen.json
  steadfast-lab demo --server emulator --contender channel --contender pool
  steadfast-lab demo --server 127.0.0.1:8086,127.0.0.1:8087

Ctrl-C ends the demo and its servers, and shows what was measured so far.";

impl Arguments {
    /// Does what the command line asks for.
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(demo) => return demo.run().await,
            Command::Bench(bench) => bench.run().await?,
            Command::Sim(sim) => sim.run()?,
            Command::BenchServers => bench::serve().await?,
            Command::BenchEcho => bench::serve_echo().await?,
            Command::BenchScript(script) => bench::play(script).await?,
            Command::Serve(served) => serve(served.filling.rows(), served.port).await?,
            Command::Proxy(front) => proxy(front.upstream()?, front.filling.rows()).await?,
            Command::Contend => contend().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Demo {
    async fn run(self) -> Result<ExitCode> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let program = own_program()?;
        let options = Options {
            program,
            servers: self.server,
            emulator: self.emulator,
            faults: chosen(
                self.faults,
                &[
                    Fault::None,
                    Fault::LazyScans,
                    Fault::Frozen,
                    Fault::Failing,
                    Fault::Slow,
                    Fault::Freeze,
                    Fault::Mute,
                    Fault::Goaway,
                    Fault::Restart,
                ],
            ),
            contenders: chosen(
                self.contenders,
                &[Contender::Channel, Contender::TonicBalance, Contender::Pool],
            ),
            seconds: self.seconds,
            rate: self.rate,
            rows: self.filling.rows(),
        };
        let mut report = Report::default();
        // Without a handler Ctrl-C ends the process at once, and the helpers with it; then there is nothing to wait for.
        let result = demo::run(&options, &mut report, async {
            tokio::signal::ctrl_c().await.unwrap_or(())
        })
        .await;
        print!("{report}");
        if let Some(json) = json {
            json.write(&report.rows)?;
        }
        result?;
        Ok(if report.interrupted {
            ExitCode::from(INTERRUPTED)
        } else {
            ExitCode::SUCCESS
        })
    }
}

impl Filling {
    fn rows(&self) -> Rows {
        Rows {
            count: self.rows,
            seed: self.seed,
        }
    }
}

impl Front {
    fn upstream(&self) -> Result<Upstream> {
        let running = self.upstream.clone().map(Upstream::Running);
        running
            .or_else(|| self.emulator.clone().map(Upstream::Emulator))
            .ok_or_else(|| Error::new("proxy needs --upstream or --emulator"))
    }
}

/// What was named, each once and in the demo's order; everything when nothing was.
fn chosen<T: Copy + PartialEq>(named: Vec<T>, all: &[T]) -> Vec<T> {
    all.iter()
        .copied()
        .filter(|one| named.is_empty() || named.contains(one))
        .collect()
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    between(text, 0.5, 3600.0)
}

fn rate(text: &str) -> Result<f64, String> {
    between(text, 1.0, 20_000.0)
}

pub(crate) fn between(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("it must be from {least} to {most}"))
    }
}
