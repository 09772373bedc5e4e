//! The rule for ReadRows.

use bytes::Bytes;
use steadfast_core::BoxError;
use steadfast_resume::{Pass, Progress, Rest, Rule};

use super::{Chunks, rows};
use crate::wire::{Fields, Unreadable, put_bytes, put_varint, without};

/// Field numbers of ReadRowsRequest.
const ROWS: u32 = 2;
const LIMIT: u32 = 4;
const REVERSED: u32 = 7;

/// A ReadRowsResponse of one chunk, which has nothing but `reset_row`.
static RESET: [u8; 4] = [1 << 3 | 2, 2, 8 << 3, 1];

/// `google.bigtable.v2.Bigtable/ReadRows`: a scan goes on after its last whole row.
///
/// The next request asks for what is left of the row set and of `rows_limit`. Rows that a filter left out count
/// as scanned when the server names them (`last_scanned_row_key`), and not toward the limit. If a row was
/// delivered in part, the caller gets a `reset_row` before it comes again. When nothing is left, nothing is
/// sent; statistics that were asked for are missing then.
///
/// A response that doesn't fit what came before ends the stream with an error ([`ChunkError`]), and so does OK
/// inside a row.
///
/// [`ChunkError`]: super::ChunkError
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadRows;

impl Rule for ReadRows {
    fn method(&self) -> &str {
        "/google.bigtable.v2.Bigtable/ReadRows"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(Scan::begin(request)?))
    }
}

/// One scan.
struct Scan {
    request: Bytes,
    /// `rows_limit`, if there is one.
    limit: Option<u64>,
    reversed: bool,
    chunks: Chunks,
}

impl Scan {
    fn begin(request: &[u8]) -> Result<Self, Unreadable> {
        let (mut limit, mut reversed) = (0, false);
        for field in Fields::of(request) {
            let field = field?;
            match field.number {
                ROWS => field.bytes().map(drop)?,
                LIMIT => limit = field.varint()?,
                REVERSED => reversed = field.varint()? != 0,
                _ => {}
            }
        }
        Ok(Self {
            request: Bytes::copy_from_slice(request),
            // It is an int64: a negative one is no limit.
            limit: Some(limit).filter(|limit| (1..=i64::MAX as u64).contains(limit)),
            reversed,
            chunks: Chunks::new(reversed),
        })
    }

    /// The request for what is left, if that is anything.
    fn left(&self) -> Result<Option<Bytes>, Unreadable> {
        let Some(last) = self.chunks.last_key() else {
            return Ok(Some(self.request.clone()));
        };
        let limit = self
            .limit
            .map(|limit| limit.saturating_sub(self.chunks.rows()));
        if limit == Some(0) {
            return Ok(None);
        }
        // A message field that comes twice is one, merged; for lists that is one after the other.
        let mut rows = Vec::new();
        for field in Fields::of(&self.request) {
            let field = field?;
            if field.number == ROWS {
                rows.extend_from_slice(field.bytes()?);
            }
        }
        let Some(rows) = rows::behind(&rows, last, self.reversed)? else {
            return Ok(None);
        };
        let mut request = without(&self.request, &[ROWS, LIMIT])?;
        put_bytes(&mut request, ROWS, &rows);
        if let Some(limit) = limit {
            put_varint(&mut request, LIMIT, limit);
        }
        Ok(Some(request.into()))
    }
}

impl Progress for Scan {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        self.chunks.message(message)?;
        Ok(Pass::AsIs)
    }

    fn end(&mut self) -> Result<(), BoxError> {
        match self.chunks.row_open() {
            true => Err("it ended with OK inside a row".into()),
            false => Ok(()),
        }
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        let open = self.chunks.row_open();
        self.chunks.undo_row();
        Ok(match self.left()? {
            Some(request) => Rest::Send {
                requests: vec![request],
                first: open
                    .then_some(Bytes::from_static(&RESET))
                    .into_iter()
                    .collect(),
            },
            // The caller would take the half row for a whole one.
            None if open => Rest::cannot("the server began a row that wasn't asked for"),
            None => Rest::Complete,
        })
    }
}
