//! The rows for people.

use std::fmt::Write as _;

use comfy_table::Table;

use super::{
    row::{Discipline, Row, Variant},
    run::{BULK, GAPS, GUARDS, RESERVES, SWEEP, WINDOWS},
};
use crate::bench::table_of;

/// All tables, each with a line that says what it shows.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for bulk in BULK {
        let head = format!(
            "Beside {bulk} flows that keep 16 calls outstanding: the median (99th percentile) in ms of one that keeps W.\n\
             16 places, calls of 12.4 ms ± 3 %.\n{}",
            sweep(rows, bulk)
        );
        section(&mut text, &head);
    }
    section(
        &mut text,
        &format!(
            "The guard: 32 flows with one call at a time, and 8 that keep 16; and what one that keeps 4 has of it beside the 8.\n{}",
            guards(rows)
        ),
    );
    section(
        &mut text,
        &format!(
            "The reserve, without a guard: 4 flows with 2 readers each, 5 ms a read and 50 ms to think, beside 8 flows that\n\
             keep 16 scans of 500 ms; both ± 20 %.\n{}",
            reserves(rows)
        ),
    );
    section(
        &mut text,
        &format!(
            "Interactive flows with gaps, beside 16 flows that keep 16: bursts of 4 with 50 ms between them, and a number of\n\
             calls that walks from 0 to 3.\n{}",
            gaps(rows)
        ),
    );
    section(
        &mut text,
        &format!(
            "A flow that plays the watermark, beside 8 that keep 16: it sends 64, lets all but 3 end, and begins anew.\n{}",
            shapes(rows)
        ),
    );
    text
}

fn section(text: &mut String, section: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(text, "{section}\n");
}

fn find(rows: &[Row], name: (Discipline, Variant), bulk: u32, window: u32) -> Option<&Row> {
    let is_it =
        |row: &&Row| row.discipline == name && row.bulk_flows == bulk && row.window == window;
    rows.iter().find(is_it)
}

fn sweep(rows: &[Row], bulk: u32) -> Table {
    let heads = WINDOWS.map(|window| format!("W={window}"));
    let mut table = table_of(std::iter::once(format!("K={bulk}")).chain(heads));
    for discipline in SWEEP {
        let name = (discipline, Variant::Plain);
        let cells = WINDOWS.map(|window| {
            find(rows, name, bulk, window).map_or_else(String::new, |row| {
                format!("{:.1} ({:.0})", row.p50_ms, row.p99_ms)
            })
        });
        table.add_row(std::iter::once(discipline.to_string()).chain(cells));
    }
    table
}

fn guards(rows: &[Row]) -> Table {
    let heads = ["bulk's share", "serial p50", "W=4 p50", "W=4 p99"];
    let mut table = table_of(std::iter::once("guard").chain(heads));
    for guard in GUARDS {
        let name = (Discipline::Guard(guard), Variant::Plain);
        let (Some(serial), Some(lone)) = (find(rows, name, 8, 1), find(rows, name, 8, 4)) else {
            continue;
        };
        table.add_row([
            if guard == 0 {
                "none".to_owned()
            } else {
                guard.to_string()
            },
            percent(serial.bulk_share),
            ms(serial.p50_ms),
            ms(lone.p50_ms),
            ms(lone.p99_ms),
        ]);
    }
    table
}

fn reserves(rows: &[Row]) -> Table {
    let mut table = table_of(["discipline", "read p50", "read p99", "scan p50", "scans/s"]);
    let reserves = RESERVES.map(Discipline::Reserve);
    for discipline in std::iter::once(Discipline::OneRing).chain(reserves) {
        let name = (discipline, Variant::LongCalls);
        if let Some(row) = find(rows, name, 8, 2) {
            table.add_row([
                discipline.to_string(),
                ms(row.p50_ms),
                ms(row.p99_ms),
                row.aggressor_p50_ms.map_or_else(String::new, ms),
                format!("{:.2}", row.total_per_s * row.bulk_share),
            ]);
        }
    }
    table
}

fn gaps(rows: &[Row]) -> Table {
    let mut table = table_of([
        "victim",
        "discipline",
        "p50",
        "p99",
        "alone",
        "found sparse",
    ]);
    for gaps in GAPS {
        let own = rows.iter().filter(|row| row.discipline.1 == gaps);
        for row in own {
            table.add_row([
                if gaps == Variant::Walk {
                    "walk"
                } else {
                    "bursts"
                }
                .to_owned(),
                row.discipline.0.to_string(),
                ms(row.p50_ms),
                ms(row.p99_ms),
                ms(row.floor_ms),
                percent(row.rearm_share),
            ]);
        }
    }
    table
}

fn shapes(rows: &[Row]) -> Table {
    let mut table = table_of(["guard", "its share", "left for the 8"]);
    for row in rows
        .iter()
        .filter(|row| row.discipline.1 == Variant::Shaped)
    {
        table.add_row([
            match row.discipline.0 {
                Discipline::Guard(0) => "none".to_owned(),
                other => other.to_string(),
            },
            percent(1.0 - row.bulk_share),
            percent(row.bulk_share),
        ]);
    }
    table
}

fn ms(ms: f64) -> String {
    format!("{ms:.1} ms")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
