//! Runs the contenders in turn and inflicts the faults.

use std::future::Future;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;
use tokio::time::interval;

use super::inflict::{first_connected, healed, inflicted};
use super::report::{Report, Skipped};
use super::{Fault, Options, Row};
use crate::contend::{Job, Measured, Opened, Outcome};
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::helper::{Helper, OnDrop};
use crate::places::{self, Break, Place, Servers};

/// Seconds of closed loop that find out what a plain channel can do.
const CAPACITY_SECONDS: f64 = 1.5;
/// How much of that is offered. With more, the queueing of a busy host would drown the faults.
const OFFERED: f64 = 0.4;
/// At most this much, so that what a frozen server leaves open, and four servers on a small host, stay within bounds.
const MOST_OFFERED: f64 = 2000.0;
/// When the fault begins, as a part of the load's length.
const FAULT_BEGINS: f64 = 0.2;

/// Measures everything that was asked for, until `interrupt` resolves. What was measured before an error or an interruption is in the report.
pub async fn run(
    options: &Options,
    report: &mut Report,
    interrupt: impl Future<Output = ()>,
) -> Result<()> {
    let progress = progress(options);
    let mut places = Vec::new();
    let outcome = tokio::select! {
        result = all(options, report, &progress, &mut places) => Some(result),
        () = interrupt => None,
    };
    for place in places {
        place.end().await;
    }
    progress.finish_and_clear();
    report.interrupted = outcome.is_none();
    outcome.unwrap_or(Ok(()))
}

/// A bar on standard error; indicatif shows none where that is no terminal.
fn progress(options: &Options) -> ProgressBar {
    let runs = options.faults.len() * options.contenders.len();
    let ticks = (runs as f64 * options.seconds * 10.0) as u64;
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(ticks)
        .with_style(style)
        .with_message("starting the servers")
}

async fn all(
    options: &Options,
    report: &mut Report,
    progress: &ProgressBar,
    places: &mut Vec<Place>,
) -> Result<()> {
    *places = places::start(
        &options.program,
        &options.servers,
        options.emulator.as_deref(),
        options.rows,
    )
    .await?;
    let rate = match options.rate {
        Some(rate) => rate,
        None => {
            progress.set_message("measuring what a plain channel can do");
            (capacity(options, places).await? * OFFERED)
                .min(MOST_OFFERED)
                .floor()
        }
    };
    for &fault in &options.faults {
        let embedded = options.servers == Servers::Embedded;
        if let Some(reason) = fault.unfit(places.len(), options.rows.count, embedded) {
            report.skipped.push(Skipped {
                fault,
                contender: None,
                reason,
            });
            continue;
        }
        for &contender in &options.contenders {
            progress.set_message(format!("{} / {}", fault.name(), contender.name()));
            match (Run {
                options,
                fault,
                contender,
                rate,
            })
            .measured(places, progress, &mut report.notes)
            .await?
            {
                Ok(row) => report.rows.push(row),
                Err(reason) => report.skipped.push(Skipped {
                    fault,
                    contender: Some(contender),
                    reason,
                }),
            }
        }
    }
    Ok(())
}

async fn capacity(options: &Options, places: &[Place]) -> Result<f64> {
    let job = Job {
        contender: Contender::Channel,
        places: addresses(places),
        rate: None,
        seconds: CAPACITY_SECONDS,
        seed: options.rows.seed,
        rows: options.rows.count,
        lazy_from: None,
    };
    let mut helper = open(options, &job)
        .await?
        .map_err(|problem| Error::new(format!("a plain channel can't be measured: {problem}")))?;
    let outcome = helper.ask("go").await?;
    helper.end().await;
    match outcome {
        Outcome::Capacity(rate) if rate * OFFERED >= 1.0 => Ok(rate),
        Outcome::Capacity(rate) => Err(Error::new(format!(
            "a plain channel did {rate} reads a second, too few to compare with; is the host busy?"
        ))),
        Outcome::Load(_) => Err(Error::new(
            "the contend process answered with a load instead of a capacity",
        )),
    }
}

/// Starts a contender's process. The inner error is why this contender can't run, which is no reason to stop the demo.
async fn open(options: &Options, job: &Job) -> Result<Result<Helper, String>> {
    let mut helper = Helper::start::<&str>(&options.program, "contend", &[], OnDrop::Kill)?;
    let job = serde_json::to_string(job)
        .map_err(|error| Error::because("can't write a job as JSON", error))?;
    let Opened { problem } = helper.ask(&job).await?;
    Ok(problem.map_or(Ok(helper), Err))
}

fn addresses(places: &[Place]) -> Vec<String> {
    places.iter().map(|place| place.address.clone()).collect()
}

/// One contender under one fault.
struct Run<'a> {
    options: &'a Options,
    fault: Fault,
    contender: Contender,
    rate: f64,
}

impl Run<'_> {
    async fn measured(
        &self,
        places: &mut [Place],
        progress: &ProgressBar,
        notes: &mut Vec<(Fault, String)>,
    ) -> Result<Result<Row, String>> {
        for place in &mut *places {
            place.mark().await?;
        }
        let mut helper = match open(self.options, &self.job(places)).await? {
            Ok(helper) => helper,
            Err(problem) => return Ok(Err(problem)),
        };
        let bad = match self.fault.of_server() {
            Some(fault) => Some((fault, first_connected(places).await?)),
            None => None,
        };
        if let Some((_, first @ 1..)) = bad {
            notes.push((
                self.fault,
                format!(
                    "{} connected to server {} first, so the fault hit that one, not server 1",
                    self.contender.name(),
                    first + 1
                ),
            ));
        }
        helper.tell("go").await?;
        let (over, is_over) = watch::channel(false);
        let load = async {
            let measured = loaded(&mut helper, progress).await;
            over.send_replace(true);
            measured
        };
        let begins = self.options.seconds * FAULT_BEGINS;
        let (measured, before) = tokio::try_join!(load, inflicted(bad, places, begins, is_over))?;
        let share = match (bad, before) {
            (Some((fault, index)), Some(before)) => {
                let share = healed(places, index, &before).await?;
                // Servers count only their own calls: of a connection's fault, or of all, they can't tell.
                share.filter(|_| matches!(fault, Break::Freeze | Break::Fail))
            }
            _ => None,
        };
        helper.end().await;
        Ok(Ok(Row::new(
            self.fault,
            self.contender,
            self.rate,
            self.options.seconds,
            &measured,
            share,
        )))
    }

    fn job(&self, places: &[Place]) -> Job {
        Job {
            contender: self.contender,
            places: addresses(places),
            rate: Some(self.rate),
            seconds: self.options.seconds,
            seed: self.options.rows.seed,
            rows: self.options.rows.count,
            lazy_from: (self.fault == Fault::LazyScans)
                .then_some(self.options.seconds * FAULT_BEGINS),
        }
    }
}

/// Waits for the contender's outcome and moves the bar meanwhile.
async fn loaded(helper: &mut Helper, progress: &ProgressBar) -> Result<Measured> {
    let mut ticks = interval(Duration::from_millis(100));
    let outcome = helper.hear();
    tokio::pin!(outcome);
    loop {
        tokio::select! {
            outcome = &mut outcome => return match outcome? {
                Outcome::Load(measured) => Ok(measured),
                Outcome::Capacity(_) => Err(Error::new("the contend process answered with a capacity instead of a load")),
            },
            _ = ticks.tick() => progress.inc(1),
        }
    }
}
