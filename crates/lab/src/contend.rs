//! The `contend` helper: one contender's run in a process of its own, so that its CPU time and its memory are its alone.

use std::time::Duration;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::contender::{self, Contender};
use crate::error::{Error, Result};
use crate::helper::{Orders, end_with_parent};
use crate::load::arrivals::Plan;
use crate::load::ledger::Summary;
use crate::load::reads::{self, Transport};

/// What a contender's process is asked to do, as its first line of input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) contender: Contender,
    /// The servers, as `http://host:port`.
    pub(crate) places: Vec<String>,
    /// Reads a second; none asks for the closed loop that measures what can be offered.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) rows: u32,
    /// Seconds after which some scans are read late.
    pub(crate) lazy_from: Option<f64>,
}

/// Its first answer: the connections are up, or why they can't be. It then waits for a line before it starts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) problem: Option<String>,
}

/// Its second answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// What the closed loop reached, in reads a second.
    Capacity(f64),
    /// What became of the offered load.
    Load(Measured),
}

/// One contender under one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) summary: Summary,
    pub(crate) channels: usize,
    pub(crate) counts: Option<Counts>,
    pub(crate) cpu_s: f64,
    pub(crate) rss_mib: f64,
}

/// What a contender's layers did by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) failed_locally: u64,
    pub(crate) retried: u64,
    pub(crate) resumed: u64,
    pub(crate) quarantined: u64,
}

/// Does one job. Afterwards it stays, with its calls still open, until the lab closes its standard input: the lab counts meanwhile what had reached
/// a server that was stopped.
pub(crate) async fn contend() -> Result<()> {
    end_with_parent()?;
    let mut orders = Orders::new();
    let Some(line) = orders.next().await else {
        return Ok(());
    };
    let job: Job = serde_json::from_str(&line)
        .map_err(|error| Error::because(format!("{line:?} is no job"), error))?;
    match job.contender {
        Contender::Channel => {
            let client = contender::channel(&job.places).await;
            run(&mut orders, &job, client, || 1, || None).await
        }
        Contender::TonicBalance => {
            let client = contender::tonic_balance(&job.places).await;
            run(&mut orders, &job, client, || contender::BALANCE, || None).await
        }
        Contender::Pool => contender::with_pool(&mut orders, &job).await,
    }
}

/// Answers that the client is open, waits for the start, and answers with the outcome.
pub(crate) async fn run<T: Transport>(
    orders: &mut Orders,
    job: &Job,
    client: Result<BigtableClient<T>>,
    channels: impl Fn() -> usize,
    counts: impl Fn() -> Option<Counts>,
) -> Result<()> {
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            return orders
                .answer(&Opened {
                    problem: Some(error.to_string()),
                })
                .await;
        }
    };
    orders.answer(&Opened { problem: None }).await?;
    if orders.next().await.is_none() {
        return Ok(());
    }
    let plan = Plan {
        rate: job.rate.unwrap_or(1.0),
        length: Duration::from_secs_f64(job.seconds),
        seed: job.seed,
        rows: job.rows,
        lazy_from: job.lazy_from.map(Duration::from_secs_f64),
    };
    let outcome = if job.rate.is_none() {
        Outcome::Capacity(reads::capacity(client, plan).await?)
    } else {
        let before = cpu_seconds()?;
        let summary = reads::offer(client, plan).await;
        Outcome::Load(Measured {
            summary,
            channels: channels(),
            counts: counts(),
            cpu_s: cpu_seconds()? - before,
            rss_mib: peak_memory().await?,
        })
    };
    orders.answer(&outcome).await?;
    orders.next().await;
    Ok(())
}

/// The CPU time this process has used, its own and the kernel's on its behalf.
fn cpu_seconds() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)
        .map_err(|errno| Error::because("can't read this process's CPU time", errno))?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times
        .iter()
        .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
        .sum())
}

/// The largest resident set of this process so far, in MiB. The kernel's rusage has the same number, but with the parent's from before exec mixed in.
async fn peak_memory() -> Result<f64> {
    let path = "/proc/self/status";
    let status = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| Error::because(format!("can't read {path}"), error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<f64>()
            .ok()
    });
    kib.map(|kib| kib / 1024.0).ok_or_else(|| {
        Error::new(format!(
            "{path} has no VmHWM line in kB; the lab needs Linux"
        ))
    })
}
