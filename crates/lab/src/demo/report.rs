//! What the demo found: tables for people, and rows of JSON for programs.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::{Fault, Row};
use crate::contender::Contender;
use crate::error::{Error, Result};

/// A run that didn't take place, or about which something must be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Under which fault.
    pub fault: Fault,
    /// Whose run; none when the fault was skipped for all.
    pub contender: Option<Contender>,
    /// Why.
    pub reason: String,
}

/// Everything measured so far.
#[derive(Debug, Default)]
pub struct Report {
    /// One row for each contender under each fault.
    pub rows: Vec<Row>,
    /// What wasn't run.
    pub skipped: Vec<Skipped>,
    /// What a reader must know about a row, by fault.
    pub notes: Vec<(Fault, String)>,
    /// Whether it was ended before all was run.
    pub interrupted: bool,
}

const HEADINGS: [&str; 20] = [
    "contender",
    "offered/s",
    "read/s",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "worst ms",
    "worst wait ms",
    "over 1 s",
    "over 10 s",
    "errors",
    "unfinished",
    "failed locally",
    "retried",
    "resumed",
    "quarantined",
    "bad share",
    "channels",
    "CPU s",
    "RSS MiB",
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults: Vec<Fault> = self
            .rows
            .iter()
            .map(|row| row.fault)
            .chain(self.skipped.iter().map(|skipped| skipped.fault))
            .collect();
        faults.sort_unstable();
        faults.dedup();
        for fault in faults {
            self.one_fault(fault, f)?;
        }
        if self.interrupted {
            writeln!(f, "Interrupted: these are the runs that were complete.")?;
        }
        Ok(())
    }
}

impl Report {
    fn one_fault(&self, fault: Fault, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", fault.name(), fault.explained())?;
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_FULL_CONDENSED)
            .set_header(HEADINGS);
        for row in self.rows.iter().filter(|row| row.fault == fault) {
            table.add_row(cells(row));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if table.row_count() > 0 {
            writeln!(f, "{table}")?;
        }
        for skipped in self.skipped.iter().filter(|skipped| skipped.fault == fault) {
            writeln!(
                f,
                "Skipped{}: {}",
                skipped
                    .contender
                    .map(|contender| format!(" {}", contender.name()))
                    .unwrap_or_default(),
                skipped.reason
            )?;
        }
        for (_, note) in self.notes.iter().filter(|(of, _)| *of == fault) {
            writeln!(f, "Note: {note}")?;
        }
        writeln!(f)
    }
}

fn cells(row: &Row) -> Vec<String> {
    let shown =
        |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
    let counted =
        |value: Option<u64>| value.map_or_else(|| "–".to_owned(), |count| count.to_string());
    vec![
        row.contender.name().to_owned(),
        format!("{:.0}", row.offered_rps),
        format!("{:.0}", row.rps),
        shown(row.p50_ms),
        shown(row.p99_ms),
        shown(row.p999_ms),
        shown(row.worst_ms),
        format!("{:.1}", row.worst_wait_ms),
        row.over_1s.to_string(),
        counted(row.over_10s),
        row.errors.to_string(),
        row.unfinished.to_string(),
        counted(row.failed_locally),
        counted(row.retried),
        counted(row.resumed),
        counted(row.quarantined),
        row.bad_share
            .map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        row.channels.to_string(),
        format!("{:.2}", row.cpu_s),
        format!("{:.0}", row.rss_mib),
    ]
}

/// A JSON file that is opened before the runs, so that a wrong path costs no two minutes, and appears only once it is complete.
#[derive(Debug)]
pub struct JsonFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl JsonFile {
    /// Makes sure that the file can be written.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or_else(|| Path::new("."));
        let temporary = NamedTempFile::new_in(folder).map_err(|error| {
            Error::because(
                format!(
                    "--json {}: can't write in {}; name an existing folder",
                    path.display(),
                    folder.display()
                ),
                error,
            )
        })?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
        })
    }

    /// Writes the rows and puts the file in its place.
    pub fn write<R: Serialize>(mut self, rows: &[R]) -> Result<()> {
        let failed = |path: &Path| format!("--json {}: can't write the rows", path.display());
        serde_json::to_writer_pretty(&mut self.temporary, rows)
            .map_err(|error| Error::because(failed(&self.path), error))?;
        writeln!(self.temporary).map_err(|error| Error::because(failed(&self.path), error))?;
        self.temporary
            .persist(&self.path)
            .map(drop)
            .map_err(|error| Error::because(failed(&self.path), error))
    }
}
