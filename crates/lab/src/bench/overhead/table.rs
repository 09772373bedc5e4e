//! The rows for people: a table for each kind of call.

use comfy_table::{CellAlignment, Table};

use super::{Contender, Row, work::Call};
use crate::bench::table_of;

/// The tables with their titles.
pub(crate) fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for (call, title) in [
        (Call::Unary, "Unary calls"),
        (Call::Stream, "Streams of messages"),
    ] {
        let own: Vec<&Row> = rows.iter().filter(|row| row.call == call).collect();
        if !own.is_empty() {
            text += &format!(
                "{title}, against a bare tonic Channel:\n{}\n\n",
                table(&own)
            );
        }
    }
    text.trim_end().to_owned()
}

fn table(rows: &[&Row]) -> Table {
    let mut table = table_of([
        "callers",
        "contender",
        "allocs",
        "per message",
        "instructions",
        "× channel",
        "CPU µs",
        "× channel",
        "calls/s",
        "× channel",
        "95 % interval",
    ]);
    let some = |figure: Option<f64>, digits| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    for row in rows {
        let is_bare =
            |other: &&&Row| other.contender == Contender::Channel && other.callers == row.callers;
        let bare = rows.iter().find(is_bare);
        let bare = bare.and_then(|bare| bare.instructions_per_call);
        let times = row
            .instructions_per_call
            .zip(bare)
            .map(|(own, bare)| own / bare);
        table.add_row([
            row.callers.to_string(),
            row.contender.name(),
            format!("{:.2}", row.allocs_per_call),
            some(row.allocs_per_frame, 3),
            some(row.instructions_per_call, 0),
            some(times, 3),
            format!("{:.2}", row.cpu_us_per_call),
            format!("{:.3}", row.ratio_cpu),
            format!("{:.0}", row.rps),
            format!("{:.3}", row.ratio_rps),
            format!("{:.3}–{:.3}", row.ratio_low, row.ratio_high),
        ]);
    }
    for (number, column) in table.column_iter_mut().enumerate() {
        if number != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
