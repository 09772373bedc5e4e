//! The benches: small comparisons, each with a table and rows of JSON.

mod cli;
mod cuts;
mod overhead;
mod penalty;
mod pick;
mod servers;
mod sparse;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use cli::Bench;
pub(crate) use overhead::{Script, play, serve_echo};
pub(crate) use servers::serve;

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A bar that says what is being measured and how long it will take.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    ProgressBar::new(steps).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} (about {eta} left)")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

pub(crate) fn table_of<H: Into<String>>(heads: impl IntoIterator<Item = H>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(heads.into_iter().map(Into::into));
    table
}
