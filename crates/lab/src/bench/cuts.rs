//! `bench cuts`: the campaign of [`crate::cuts`].

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tokio::task::JoinSet;

use super::progress;
use crate::{
    cuts::{self, Options, Verdict, Wire},
    demo::JsonFile,
    error::{Error, Result},
};

/// Streams that run at once.
const AT_ONCE: usize = 16;

/// Streams of 100 messages, cut once or twice in every way and at any byte, and what their caller gets.
///
/// A scripted HTTP/2 server cuts them: FIN, TCP reset, RST_STREAM of every code, GOAWAY before and after the headers, OK inside
/// a message, no status, silence, statuses; plain, gzip and zstd; messages of 0 bytes to the limit, many in a frame or one over
/// many. A tonic client reads them over ResumableStream and a pool of three channels. Each must get all messages once, in order,
/// or, after a cause that isn't resumed, a prefix and an error that names it. What is wrong is printed with its seed, and the
/// command fails. 1,000 seeds take about ten seconds.
#[derive(Debug, Args)]
pub(crate) struct CutsBench {
    /// Streams, one for each seed.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    seeds: u64,
    /// The first seed: with --seeds 1 it replays one stream.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Over loopback, with a gap time-out of 50 ms, instead of in memory with 200 ms.
    #[arg(long)]
    tcp: bool,
    /// Also write the rows to this file, as a JSON array of flat objects: cause, seeds, resumed, lost, duplicated,
    /// out_of_order, short.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl CutsBench {
    pub(crate) async fn run(self) -> Result<()> {
        let json = self.json.as_deref().map(JsonFile::open).transpose()?;
        let options = match self.tcp {
            true => Options::TCP,
            false => Options {
                wire: Wire::Memory,
                gap: Duration::from_millis(200),
                ..Options::TCP
            },
        };
        let verdicts = self.all(options).await?;
        let rows = cuts::rows(&verdicts);
        println!("{}", cuts::table(&rows));
        if let Some(json) = json {
            json.write(&rows)?;
        }
        let wrong = verdicts.iter().filter(|it| !it.problem.is_empty()).count();
        if wrong > 0 {
            let all = verdicts.len();
            return Err(Error::new(format!(
                "{wrong} of {all} streams weren't what they should be"
            )));
        }
        Ok(())
    }

    async fn all(&self, options: Options) -> Result<Vec<Verdict>> {
        let bar = progress(self.seeds);
        let mut seeds = self.first..self.first.saturating_add(self.seeds);
        let (mut running, mut verdicts) = (JoinSet::new(), Vec::new());
        loop {
            while running.len() < AT_ONCE
                && let Some(seed) = seeds.next()
            {
                running.spawn(cuts::run(seed, options));
            }
            let Some(ended) = running.join_next().await else {
                break;
            };
            let verdict = ended
                .map_err(|error| Error::because("a stream's task failed", error))?
                .map_err(|error| {
                    Error::because("the scripted server can't listen on loopback", error)
                })?;
            if !verdict.problem.is_empty() {
                bar.suspend(|| eprintln!("seed {}: {}", verdict.seed, verdict.problem));
            }
            verdicts.push(verdict);
            bar.inc(1);
        }
        bar.finish_and_clear();
        verdicts.sort_by_key(|verdict| verdict.seed);
        Ok(verdicts)
    }
}
