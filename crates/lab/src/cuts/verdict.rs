//! Whether the caller got what it should.

use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use tonic::Status;

use super::{Cause, MESSAGES, Plan, client::Read};
use crate::bench::table_of;

/// What came of the stream of one seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// The cuts that happened or could have.
    pub causes: Vec<Cause>,
    /// Whether it ended whole after a cut.
    pub resumed: bool,
    /// Messages that never came though later ones did.
    pub lost: u32,
    /// Messages that came again.
    pub duplicated: u32,
    /// Messages that came after a later one.
    pub out_of_order: u32,
    /// Whether it ended with OK before its last message.
    pub short: bool,
    /// All that is wrong, in words; empty if it is right.
    pub problem: String,
}

impl Verdict {
    pub(super) fn of(plan: &Plan, read: Option<Read>) -> Self {
        let mut verdict = Self {
            seed: plan.seed,
            causes: plan.causes().collect(),
            resumed: false,
            lost: 0,
            duplicated: 0,
            out_of_order: 0,
            short: false,
            problem: String::new(),
        };
        match read {
            Some(read) => verdict.judge(plan, &read),
            None => verdict.wrong("it never ended"),
        }
        if !verdict.problem.is_empty() {
            let _ = write!(verdict.problem, " ({plan:?})");
        }
        verdict
    }

    fn wrong(&mut self, what: impl AsRef<str>) {
        if !self.problem.is_empty() {
            self.problem.push_str("; ");
        }
        self.problem.push_str(what.as_ref());
    }

    fn judge(&mut self, plan: &Plan, read: &Read) {
        self.order(plan, read);
        let whole = read.messages.len() == MESSAGES as usize;
        let ends = plan.causes().find(|cause| !cause.resumes());
        match (ends, &read.error) {
            (None, None) if whole => self.resumed = read.counts.resumed + read.counts.completed > 0,
            // All was delivered before the second cut, which never came.
            (Some(_), None) if whole && read.counts.completed > 0 => self.resumed = true,
            (_, None) => {
                self.short = !whole;
                self.wrong(format!("OK after {} messages", read.messages.len()));
            }
            (None, Some(error)) => self.wrong(format!("an error: {error:?}")),
            (Some(cause), Some(error)) => self.named(cause, error),
        }
        if read.left > 0 {
            self.wrong(format!("{} requests are left in flight", read.left));
        }
    }

    fn named(&mut self, cause: Cause, error: &Status) {
        let names = cause.names().unwrap_or_default();
        let code = match cause {
            Cause::Status(code) => code as i32,
            Cause::TooLarge => tonic::Code::OutOfRange as i32,
            _ => tonic::Code::Internal as i32,
        };
        if !error.message().contains(names) || error.code() as i32 != code {
            self.wrong(format!("the error of {cause} is {error:?}"));
        }
    }

    /// Each message once, in order.
    fn order(&mut self, plan: &Plan, read: &Read) {
        let expected: Vec<_> = (0..MESSAGES).map(|number| plan.message(number)).collect();
        let mut seen = vec![false; expected.len()];
        let mut next = 0;
        for message in &read.messages {
            if expected.get(next).is_some_and(|it| it == message) {
                seen[next] = true;
                next += 1;
                continue;
            }
            match expected.iter().position(|it| it == message) {
                Some(later) if later > next => {
                    self.lost += (later - next) as u32;
                    seen[later] = true;
                    next = later + 1;
                }
                Some(before) if seen[before] => self.duplicated += 1,
                Some(_) => self.out_of_order += 1,
                None => self.wrong("a message that was never sent"),
            }
        }
        if self.lost + self.duplicated + self.out_of_order > 0 {
            let (lost, again, order) = (self.lost, self.duplicated, self.out_of_order);
            self.wrong(format!(
                "{lost} lost, {again} duplicated, {order} out of order"
            ));
        }
    }
}

/// What came of all streams with a cause. A stream with two cuts counts for each of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What cut them.
    pub cause: String,
    /// Streams.
    pub seeds: u32,
    /// Streams that ended whole.
    pub resumed: u32,
    /// Messages that never came though later ones did.
    pub lost: u32,
    /// Messages that came again.
    pub duplicated: u32,
    /// Messages that came after a later one.
    pub out_of_order: u32,
    /// Streams that ended with OK before their last message.
    pub short: u32,
}

/// The verdicts by cause.
#[must_use]
pub fn rows(verdicts: &[Verdict]) -> Vec<Row> {
    let mut rows = BTreeMap::<Cause, Row>::new();
    for verdict in verdicts {
        let mut causes = verdict.causes.clone();
        causes.dedup();
        for cause in causes {
            let row = rows.entry(cause).or_default();
            row.seeds += 1;
            row.resumed += u32::from(verdict.resumed);
            row.lost += verdict.lost;
            row.duplicated += verdict.duplicated;
            row.out_of_order += verdict.out_of_order;
            row.short += u32::from(verdict.short);
        }
    }
    let named = |(cause, row): (Cause, Row)| Row {
        cause: cause.to_string(),
        ..row
    };
    rows.into_iter().map(named).collect()
}

/// The rows to be read.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let heads = [
        "cause",
        "seeds",
        "resumed",
        "lost",
        "duplicated",
        "out of order",
        "short",
    ];
    let mut table = table_of(heads);
    for row in rows {
        let figures = [
            row.seeds,
            row.resumed,
            row.lost,
            row.duplicated,
            row.out_of_order,
            row.short,
        ];
        let cells = figures.iter().map(u32::to_string);
        table.add_row(std::iter::once(row.cause.clone()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
