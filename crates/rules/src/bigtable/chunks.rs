//! Which rows came whole, told by the chunks of a ReadRows stream.

use std::cmp::Ordering;

use steadfast_core::BoxError;

use crate::fields::fields;

/// Follows the chunks of a ReadRows stream from row to row, and holds the server to the rules that
/// `bigtable.proto` sets for them.
///
/// It keeps two keys and no cells; nothing is allocated once both have grown to the longest key.
#[derive(Clone, Debug, Default)]
pub struct RowTracker {
    reversed: bool,
    /// Whether there is a last key: that up to which all is known to be delivered.
    has_last: bool,
    last_key: Vec<u8>,
    /// Whole rows.
    rows: u64,
    open: Open,
    open_key: Vec<u8>,
}

/// What is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    /// Nothing: a row begins next.
    #[default]
    Nothing,
    /// A row, between two cells.
    Row,
    /// A row, inside a cell's value.
    Cell,
}

/// One chunk: what is told apart in it.
#[derive(Default)]
struct Chunk<'a> {
    row_key: &'a [u8],
    has_family: bool,
    has_qualifier: bool,
    /// Whether it says anything of a cell.
    has_cell: bool,
    /// Whether more of the cell's value follows.
    is_part: bool,
    reset: bool,
    commit: bool,
}

impl RowTracker {
    /// The tracker of a stream whose rows come in this order.
    #[must_use]
    pub fn new(reversed: bool) -> Self {
        Self {
            reversed,
            ..Self::default()
        }
    }

    /// Whole rows that came.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The key up to which all was delivered: that of the last whole row, or a later one that the server has
    /// scanned and filtered. None before the first.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        self.has_last.then_some(&*self.last_key)
    }

    /// Whether a row began that isn't whole.
    #[must_use]
    pub fn is_inside_a_row(&self) -> bool {
        self.open != Open::Nothing
    }

    /// Forgets the row that isn't whole.
    pub fn reset(&mut self) {
        self.open = Open::Nothing;
    }

    /// A `ReadRowsResponse` came.
    ///
    /// # Errors
    /// Bytes that are none, and chunks against the rules: what is wrong with them. Rows that were whole before
    /// it stay counted.
    pub fn response(&mut self, message: &[u8]) -> Result<(), BoxError> {
        for field in fields(message) {
            let field = field?;
            match field.number {
                1 => {
                    let chunk = Chunk::read(field.bytes()?)?;
                    self.chunk(&chunk)?;
                }
                2 => self.scanned(field.bytes()?)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The stream ended with OK.
    ///
    /// # Errors
    /// A row isn't whole.
    pub fn end(&self) -> Result<(), BoxError> {
        match self.open {
            Open::Nothing => Ok(()),
            _ => Err("the stream ended with OK inside a row".into()),
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), BoxError> {
        if chunk.reset {
            return self.reset_row(chunk);
        }
        match self.open {
            Open::Nothing => self.begin(chunk)?,
            Open::Row => self.goes_on(chunk)?,
            Open::Cell if chunk.has_family || chunk.has_qualifier || !chunk.row_key.is_empty() => {
                return Err("a chunk with a key is inside another cell's value".into());
            }
            Open::Cell => {}
        }
        self.open = if chunk.is_part { Open::Cell } else { Open::Row };
        if !chunk.commit {
            return Ok(());
        }
        if chunk.is_part {
            return Err("a row is committed inside a cell's value".into());
        }
        std::mem::swap(&mut self.last_key, &mut self.open_key);
        self.has_last = true;
        self.rows += 1;
        self.open = Open::Nothing;
        Ok(())
    }

    fn reset_row(&mut self, chunk: &Chunk<'_>) -> Result<(), BoxError> {
        if self.open == Open::Nothing {
            return Err("a reset without a row".into());
        }
        if chunk.has_cell || chunk.commit || !chunk.row_key.is_empty() {
            return Err("a reset with a cell in it".into());
        }
        self.reset();
        Ok(())
    }

    fn begin(&mut self, chunk: &Chunk<'_>) -> Result<(), BoxError> {
        if chunk.row_key.is_empty() {
            return Err("a row begins without a key".into());
        }
        if !self.is_beyond(chunk.row_key) {
            return Err("a row's key isn't beyond the last one".into());
        }
        if !chunk.has_family || !chunk.has_qualifier {
            return Err("a row begins without a family and a qualifier".into());
        }
        self.open_key.clear();
        self.open_key.extend_from_slice(chunk.row_key);
        Ok(())
    }

    fn goes_on(&self, chunk: &Chunk<'_>) -> Result<(), BoxError> {
        if !chunk.row_key.is_empty() && chunk.row_key != self.open_key {
            return Err("a row begins inside another one".into());
        }
        if chunk.has_family && !chunk.has_qualifier {
            return Err("a family begins without a qualifier".into());
        }
        Ok(())
    }

    fn scanned(&mut self, key: &[u8]) -> Result<(), BoxError> {
        if self.open != Open::Nothing {
            return Err("a scanned key is reported inside a row".into());
        }
        // One that isn't beyond the last key tells nothing new.
        if !key.is_empty() && self.is_beyond(key) {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.has_last = true;
        }
        Ok(())
    }

    fn is_beyond(&self, key: &[u8]) -> bool {
        let beyond = match self.reversed {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        self.last_key().is_none_or(|last| key.cmp(last) == beyond)
    }
}

impl<'a> Chunk<'a> {
    /// A `ReadRowsResponse.CellChunk`.
    fn read(message: &'a [u8]) -> Result<Self, BoxError> {
        let mut chunk = Self::default();
        for field in fields(message) {
            let field = field?;
            match field.number {
                1 => chunk.row_key = field.bytes()?,
                2 => (chunk.has_family, chunk.has_cell) = (true, true),
                3 => (chunk.has_qualifier, chunk.has_cell) = (true, true),
                4 => chunk.has_cell |= field.varint()? != 0,
                5 | 6 => chunk.has_cell |= !field.bytes()?.is_empty(),
                // An int32: a negative one has its upper bits set.
                7 => chunk.is_part = field.varint()? as i32 > 0,
                8 => chunk.reset = field.bool()?,
                9 => chunk.commit = field.bool()?,
                _ => {}
            }
        }
        Ok(chunk)
    }
}
