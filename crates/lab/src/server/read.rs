//! Answers ReadRows: walks the requested spans and cuts the rows into messages of a few rows each, as a real server does.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::read_rows_response::{
    CellChunk, cell_chunk,
};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse,
};
use tonic::Status;

use super::filter::{self, Step};
use super::ranges::{self, Span};
use super::table::{CellView, Table};

/// About how many bytes of cells go into one message.
const MESSAGE: usize = 32 * 1024;

/// The messages of one ReadRows call. It makes each one only when the transport asks for it, so a slow reader costs the server no memory.
#[derive(Debug)]
pub(crate) struct Reader {
    table: Arc<Table>,
    spans: VecDeque<Span>,
    steps: Vec<Step>,
    reversed: bool,
    left: usize,
}

impl Reader {
    /// Checks the request; nothing is read yet.
    pub(crate) fn new(table: Arc<Table>, request: &ReadRowsRequest) -> Result<Self, Status> {
        let left = match usize::try_from(request.rows_limit) {
            Ok(0) => usize::MAX,
            Ok(limit) => limit,
            Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "rows_limit is {}; use 0 for no limit",
                    request.rows_limit
                )));
            }
        };
        let spans = ranges::spans(request.rows.as_ref())?.into();
        Ok(Self {
            table,
            spans,
            steps: filter::steps(request.filter.as_ref())?,
            reversed: request.reversed,
            left,
        })
    }

    /// Adds rows of the current span until the message is full, then narrows the span to what is left of it.
    fn fill(&mut self, message: &mut ReadRowsResponse, size: &mut usize) {
        let Some(span) = (if self.reversed {
            self.spans.back_mut()
        } else {
            self.spans.front_mut()
        }) else {
            return;
        };
        let rows = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut range = rows.range::<[u8], _>(span.bounds());
        let mut last = None;
        while self.left > 0 && *size < MESSAGE {
            let Some((key, row)) = (if self.reversed {
                range.next_back()
            } else {
                range.next()
            }) else {
                last = None;
                break;
            };
            last = Some(key.clone());
            let cells = filter::apply(&self.steps, row.cells());
            if !cells.is_empty() {
                *size += key.len() + cells.iter().map(|cell| cell.value.len()).sum::<usize>();
                push_row(&mut message.chunks, key, &cells);
                self.left -= 1;
            }
        }
        drop(rows);
        match last {
            Some(key) if self.reversed => span.end = Some(key),
            Some(key) => span.start = ranges::successor(&key),
            None => span.end = Some(span.start.clone()),
        }
        if span.is_empty() {
            if self.reversed {
                self.spans.pop_back()
            } else {
                self.spans.pop_front()
            };
        }
    }
}

impl Iterator for Reader {
    type Item = Result<ReadRowsResponse, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut message = ReadRowsResponse::default();
        let mut size = 0;
        while self.left > 0 && size < MESSAGE && !self.spans.is_empty() {
            self.fill(&mut message, &mut size);
        }
        (!message.chunks.is_empty()).then_some(Ok(message))
    }
}

/// One chunk per cell. The key stands in the row's first chunk, family and qualifier where they change, and the last chunk commits the row.
fn push_row(chunks: &mut Vec<CellChunk>, key: &[u8], cells: &[CellView<'_>]) {
    let mut previous: Option<&CellView<'_>> = None;
    for cell in cells {
        let new_family = previous.is_none_or(|previous| previous.family != cell.family);
        let new_column =
            new_family || previous.is_some_and(|previous| previous.qualifier != cell.qualifier);
        chunks.push(CellChunk {
            row_key: if previous.is_none() {
                key.to_vec()
            } else {
                Vec::new()
            },
            family_name: new_family.then(|| cell.family.to_owned()),
            qualifier: new_column.then(|| cell.qualifier.to_vec()),
            timestamp_micros: cell.timestamp,
            value: cell.value.to_vec(),
            ..CellChunk::default()
        });
        previous = Some(cell);
    }
    if let Some(last) = chunks.last_mut() {
        last.row_status = Some(cell_chunk::RowStatus::CommitRow(true));
    }
}
