//! `bench pick`: what it costs to choose a channel, claim it, and release an earlier claim.
//!
//! Two requests a channel are in flight all the time: each pick is followed by the release of the oldest
//! one. Contenders take turns, round by round, and a figure is the median over the rounds. Nothing is
//! called: see [`contenders`].

mod contenders;

use std::{sync::Barrier, thread, time::Duration};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use steadfast_balance::bench::Picker;
use steadfast_testkit::alloc;

use super::{median, progress, table_of};
use crate::clock::thread_cpu;
use contenders::{Choose, Ideal, Ours, Tower, channel, word};

/// Sizes of the pool.
const CHANNELS: [usize; 4] = [4, 10, 50, 200];
/// What a charged channel carries.
const CHARGE: u32 = 25;
/// Picks between two looks at the clock.
const BATCH: u32 = 512;
/// Picks over which allocations are counted, after as many uncounted ones.
const COUNTED: u32 = 2_000;

/// One contender over one size of pool; also a row of the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    contender: &'static str,
    channels: usize,
    threads: usize,
    /// The share of the channels that carry a charge.
    charged: f64,
    /// Nanoseconds of its thread's CPU time for one pick and one release.
    ns: f64,
    /// Allocations of one pick and one release.
    allocs: f64,
}

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
}

/// Measures everything.
pub(crate) fn run(options: Options) -> Vec<Row> {
    let bar = progress(2 * 2 * CHANNELS.len() as u64);
    let mut rows = Vec::new();
    for charged in [0.0, 0.25] {
        for channels in CHANNELS {
            for threads in [1, 2] {
                bar.set_message(format!("{channels} channels, {threads} threads"));
                rows.extend(compare(options, channels, threads, charged));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    rows
}

fn compare(options: Options, count: usize, threads: usize, charged: f64) -> Vec<Row> {
    let is_charged = |index: usize| (index as f64) < count as f64 * charged;
    let channels: Vec<_> = (0..count).map(|_| channel()).collect();
    // tower's get meters of their own: the two don't see each other's requests.
    let others: Vec<_> = (0..count).map(|_| channel()).collect();
    let charge = |index: usize| if is_charged(index) { CHARGE } else { 0 };
    let mut owners = Vec::new();
    for channels in [&channels, &others] {
        for (index, channel) in channels.iter().enumerate() {
            let owner = channel.meter().owner();
            owner.set_charge(charge(index));
            owners.push(owner);
        }
    }
    let words: Vec<_> = (0..count).map(|index| word(charge(index))).collect();
    let picker = Picker::new(channels.iter().cloned());
    let mut ideal: Vec<_> = (0..threads)
        .map(|thread| Ideal {
            words: &words,
            start: thread * count / 2,
        })
        .collect();
    let mut ours: Vec<_> = (0..threads).map(|_| Ours(&picker)).collect();
    // It can be shared only behind a lock or a queue, so each thread has its own.
    let mut towers: Vec<_> = (0..threads).map(|_| Tower::new(others.iter())).collect();

    let held = 2 * count / threads;
    let mut ns = [const { Vec::new() }; 3];
    for _ in 0..options.rounds {
        ns[0].push(time(&mut ideal, held, options.length));
        ns[1].push(time(&mut ours, held, options.length));
        ns[2].push(time(&mut towers, held, options.length));
    }
    let allocs = [
        allocations(&mut ideal[0], held),
        allocations(&mut ours[0], held),
        allocations(&mut towers[0], held),
    ];
    let names = ["ideal-scan", "steadfast", "tower-p2c"];
    let figures = names.into_iter().zip(ns).zip(allocs);
    let row = |((contender, ns), allocs)| Row {
        contender,
        channels: count,
        threads,
        charged,
        ns: median(ns),
        allocs,
    };
    figures.map(row).collect()
}

/// The requests that one thread has in flight: each new one takes the place of the oldest.
struct InFlight<H> {
    held: Vec<H>,
    oldest: usize,
}

impl<H> InFlight<H> {
    fn new<C: Choose<Held = H>>(contender: &mut C, count: usize) -> Self {
        let held = (0..count).map(|_| contender.pick()).collect();
        Self { held, oldest: 0 }
    }

    fn turn<C: Choose<Held = H>>(&mut self, contender: &mut C, picks: u32) {
        for _ in 0..picks {
            self.held[self.oldest] = contender.pick();
            self.oldest += 1;
            if self.oldest == self.held.len() {
                self.oldest = 0;
            }
        }
    }
}

/// Nanoseconds of CPU time per pick; the threads pick at the same time.
fn time<C: Choose + Send>(contenders: &mut [C], held: usize, length: Duration) -> f64 {
    let barrier = Barrier::new(contenders.len());
    let timed = |contender: &mut C| {
        let mut in_flight = InFlight::new(contender, held);
        in_flight.turn(contender, BATCH);
        barrier.wait();
        let (began, mut picks) = (thread_cpu(), 0_u32);
        loop {
            in_flight.turn(contender, BATCH);
            picks += BATCH;
            let passed = thread_cpu() - began;
            if passed >= length {
                return passed.as_secs_f64() * 1e9 / f64::from(picks);
            }
        }
    };
    let all: Vec<f64> = thread::scope(|scope| {
        let timed = &timed;
        let threads = contenders.iter_mut();
        let threads: Vec<_> = threads
            .map(|contender| scope.spawn(move || timed(contender)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a pick doesn't panic"))
            .collect()
    });
    all.iter().sum::<f64>() / all.len() as f64
}

fn allocations<C: Choose>(contender: &mut C, held: usize) -> f64 {
    let mut in_flight = InFlight::new(contender, held);
    in_flight.turn(contender, COUNTED);
    alloc::count_on_demand(true);
    let allocations = alloc::count(|| in_flight.turn(contender, COUNTED));
    alloc::count_on_demand(false);
    allocations as f64 / f64::from(COUNTED)
}

/// The rows for people; one table without charges, one with a quarter of the channels charged.
pub(crate) fn tables(rows: &[Row]) -> String {
    let one = |charged: f64| {
        let own: Vec<_> = rows.iter().filter(|row| row.charged == charged).collect();
        table(&own).to_string()
    };
    format!(
        "No channel charged:\n{}\n\nA quarter of the channels charged with {CHARGE} requests:\n{}",
        one(0.0),
        one(0.25)
    )
}

fn table(rows: &[&Row]) -> Table {
    let mut table = table_of([
        "channels",
        "threads",
        "ideal-scan ns",
        "steadfast ns",
        "tower-p2c ns",
        "over ideal",
        "× ideal",
        "× tower",
        "allocs (s / t)",
    ]);
    // In the order in which they were measured: ideal, ours, tower's.
    for of_one in rows.chunks(3) {
        let [ideal, ours, tower] = of_one else {
            continue;
        };
        table.add_row([
            ours.channels.to_string(),
            ours.threads.to_string(),
            format!("{:.1}", ideal.ns),
            format!("{:.1}", ours.ns),
            format!("{:.1}", tower.ns),
            format!("{:+.1}", ours.ns - ideal.ns),
            format!("{:.2}", ours.ns / ideal.ns),
            format!("{:.2}", ours.ns / tower.ns),
            format!("{:.2} / {:.2}", ours.allocs, tower.allocs),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
