//! ReadRows.

use bytes::Bytes;
use prost::{Message, encoding};
use steadfast_core::BoxError;
use steadfast_resume::{Pass, Progress, Rest, Rule};

use super::{RowTracker, rows::RowSet};
use crate::fields::fields;

/// The rule for BigTable's `ReadRows`.
///
/// A scan goes on after its last whole row, or after the last key that the server said it has scanned
/// (`last_scanned_row_key`: rows that a filter left out). What is left is asked for: keys and ranges beyond that
/// key, forward or reversed, with `rows_limit` less by the rows that came. If nothing is left, or the limit is
/// reached, nothing is sent, and the scan ends with OK. All else of the request stays as it is, fields included
/// that this version doesn't know.
///
/// Of a row that had come in part the caller gets a chunk with `reset_row`, as from a server that begins a row anew,
/// before the rows of the next attempt.
///
/// A stream whose chunks break the rules of `bigtable.proto`, or that ends with OK inside a row, ends with an error.
/// What is counted in `request_stats` is that of the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRows;

impl Rule for ReadRows {
    fn method(&self) -> &str {
        "/google.bigtable.v2.Bigtable/ReadRows"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Scan::new(request).map(|scan| Box::new(scan) as Box<dyn Progress>)
    }
}

/// One call.
struct Scan {
    asked: Asked,
    tracker: RowTracker,
}

/// What a request asked for.
struct Asked {
    /// As it came.
    request: Bytes,
    /// The same without what is set anew.
    rest: Vec<u8>,
    rows: RowSet,
    limit: i64,
    reversed: bool,
}

const ROWS: u32 = 2;
const ROWS_LIMIT: u32 = 4;
const REVERSED: u32 = 7;

impl Scan {
    fn new(request: &[u8]) -> Result<Self, BoxError> {
        let mut asked = Asked {
            request: Bytes::copy_from_slice(request),
            rest: Vec::with_capacity(request.len()),
            rows: RowSet::default(),
            limit: 0,
            reversed: false,
        };
        for field in fields(request) {
            let field = field?;
            match field.number {
                ROWS => asked.rows.merge(field.bytes()?)?,
                ROWS_LIMIT => asked.limit = field.varint()? as i64,
                number => {
                    if number == REVERSED {
                        asked.reversed = field.bool()?;
                    }
                    asked.rest.extend_from_slice(field.raw);
                }
            }
        }
        Ok(Self {
            tracker: RowTracker::new(asked.reversed),
            asked,
        })
    }

    /// The request for what is left, if anything is.
    fn left(&self) -> Option<Bytes> {
        let limit = self.asked.limit;
        let came = i64::try_from(self.tracker.rows()).unwrap_or(i64::MAX);
        if limit > 0 && came >= limit {
            return None;
        }
        let Some(last) = self.tracker.last_key() else {
            return Some(self.asked.request.clone());
        };
        let last = Bytes::copy_from_slice(last);
        let rows = self.asked.rows.beyond(&last, self.asked.reversed)?;
        let mut request = self.asked.rest.clone();
        encoding::message::encode(ROWS, &rows, &mut request);
        if limit > 0 {
            encoding::int64::encode(ROWS_LIMIT, &(limit - came), &mut request);
        }
        Some(request.into())
    }
}

impl Progress for Scan {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        self.tracker.response(message).map(|()| Pass::AsIs)
    }

    fn end(&mut self) -> Result<(), BoxError> {
        self.tracker.end()
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        let inside = self.tracker.is_inside_a_row();
        self.tracker.reset();
        match self.left() {
            Some(request) => Ok(Rest::Send {
                requests: vec![request],
                first: if inside {
                    vec![reset_row()]
                } else {
                    Vec::new()
                },
            }),
            None if inside => Err("a row came that wasn't asked for".into()),
            None => Ok(Rest::Complete),
        }
    }
}

/// A `ReadRowsResponse` of one chunk with `reset_row`.
fn reset_row() -> Bytes {
    let (mut chunk, mut response) = (Vec::new(), Vec::new());
    encoding::bool::encode(8, &true, &mut chunk);
    encoding::bytes::encode(1, &chunk, &mut response);
    response.into()
}
