//! `sim pickers`: how long calls take under four ways to pick a channel, with calls counted to the end of their body
//! or only to their headers.

mod chart;
mod cli;
mod model;
mod policy;

use std::fmt;

use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::bench::{median, progress, table_of};

pub(crate) use cli::PickersSim;

/// Calls of one run.
const CALLS: u32 = 60_000;
/// Runs, each with a seed of its own.
const SEEDS: u64 = 5;
/// Sizes of the pool.
const CHANNELS: [usize; 3] = [4, 10, 50];
/// Loads, as shares of the channels' capacity.
const LOADS: [f64; 2] = [0.7, 0.9];

/// How a channel is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Picker {
    /// The lowest count of all: our pool's own pick.
    LeastLoaded,
    /// The lower count of two at random.
    #[serde(rename = "p2c")]
    PowerOfTwo,
    /// The next one.
    RoundRobin,
    /// Any.
    Random,
}

/// Up to when a call counts as in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// The end of its body, as our pool counts.
    Body,
    /// Its headers only.
    Headers,
}

/// Pickers and counts, in the table's order. Round robin and random don't look at counts.
const PICKERS: [(Picker, Counted); 6] = [
    (Picker::LeastLoaded, Counted::Body),
    (Picker::LeastLoaded, Counted::Headers),
    (Picker::PowerOfTwo, Counted::Body),
    (Picker::PowerOfTwo, Counted::Headers),
    (Picker::RoundRobin, Counted::Body),
    (Picker::Random, Counted::Body),
];

/// One thing to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    /// How a channel is chosen.
    pub picker: Picker,
    /// Up to when a call counts.
    pub counted: Counted,
    /// How many channels there are; two at least.
    pub channels: usize,
    /// The load, as a share of their capacity.
    pub rho: f64,
}

/// What came of it; also a row of the JSON file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    /// What was simulated.
    #[serde(flatten)]
    pub case: Case,
    /// The time that 99 in 100 calls stay below, as a multiple of the mean size.
    pub p99: f64,
}

/// Simulates every picker at every size and load.
pub(crate) fn run() -> Vec<Row> {
    let bar = progress((PICKERS.len() * CHANNELS.len() * LOADS.len()) as u64);
    let mut rows = Vec::new();
    for rho in LOADS {
        for channels in CHANNELS {
            for (picker, counted) in PICKERS {
                let case = Case {
                    picker,
                    counted,
                    channels,
                    rho,
                };
                bar.set_message(format!("{case}, {channels} channels"));
                rows.push(Row {
                    case,
                    p99: p99(case),
                });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    rows
}

/// The time that 99 in 100 calls stay below: the median of five runs. The same each time.
pub fn p99(case: Case) -> f64 {
    let one = |seed| {
        let mut latencies = model::latencies(case, CALLS, seed);
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() * 99 / 100]
    };
    // Far apart: those that differ in a few bits may begin alike.
    let seeds = (1..=SEEDS).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    median(seeds.map(one).collect())
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.picker, self.counted) {
            (Picker::LeastLoaded, Counted::Body) => "least-loaded",
            (Picker::LeastLoaded, Counted::Headers) => "least-loaded, headers only",
            (Picker::PowerOfTwo, Counted::Body) => "p2c",
            (Picker::PowerOfTwo, Counted::Headers) => "p2c, headers only",
            (Picker::RoundRobin, _) => "round-robin",
            (Picker::Random, _) => "random",
        })
    }
}

/// The rows for people: a line per picker, a column per load and size.
pub(crate) fn table(rows: &[Row]) -> Table {
    let columns = LOADS
        .iter()
        .flat_map(|rho| CHANNELS.iter().map(move |channels| (*rho, *channels)));
    let heads = columns.map(|(rho, channels)| format!("ρ {rho}, {channels} channels"));
    let mut table = table_of(std::iter::once("p99".to_owned()).chain(heads));
    for (picker, counted) in PICKERS {
        let own: Vec<_> = rows
            .iter()
            .filter(|row| (row.case.picker, row.case.counted) == (picker, counted))
            .collect();
        let name = own
            .first()
            .map(|row| row.case.to_string())
            .unwrap_or_default();
        let cells = own.iter().map(|row| format!("{:.1}", row.p99));
        table.add_row(std::iter::once(name).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
