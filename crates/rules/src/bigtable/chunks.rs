//! Follows the chunks of a ReadRows stream: which rows are whole, and how far the scan came. It keeps keys and
//! counts, and no cell.
//!
//! ```text
//!            a new key         value_size
//!  between ───────────> row ──────────────> cell
//!     ^  ^               │ <─────────────── │
//!     │  └─ commit_row ──┤   the last piece │
//!     └──── reset_row ───┴──────────────────┘
//! ```

use std::{error::Error, fmt};

use crate::wire::{Fields, Unreadable};

/// What a ReadRows stream has delivered.
///
/// It takes each ReadRowsResponse as it came, and refuses one that a correct server never sends: it could not
/// be told then which rows are whole. Nothing is allocated while row keys are no longer than the longest so far.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    reversed: bool,
    state: State,
    /// The key of the row that is open. Its memory is kept when the row ends.
    key: Vec<u8>,
    /// The last key of the scan, with rows that were filtered out. Empty before the first: no row has an
    /// empty key.
    last: Vec<u8>,
    rows: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No row is open.
    #[default]
    Between,
    /// A row is open, and its last cell is whole.
    Row,
    /// A cell of `size` bytes is open, of which `left` are still to come.
    Cell { size: u64, left: u64 },
}

impl Chunks {
    /// Nothing delivered yet, of a scan in the order of the keys, or in reverse.
    #[must_use]
    pub fn new(reversed: bool) -> Self {
        Self {
            reversed,
            ..Self::default()
        }
    }

    /// Rows that are whole. Those that were filtered out don't count.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The last key that the scan is done with: of a whole row, or of one that was filtered out. None before
    /// the first.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        Some(&*self.last).filter(|last| !last.is_empty())
    }

    /// Whether a row was delivered in part.
    #[must_use]
    pub fn row_open(&self) -> bool {
        self.state != State::Between
    }

    /// The row that is open begins anew, or never comes.
    pub fn undo_row(&mut self) {
        self.state = State::Between;
    }

    /// The next ReadRowsResponse, encoded.
    ///
    /// # Errors
    /// One that can't be read, or that doesn't fit what came before. Then the rest of the stream can't be
    /// judged any more.
    pub fn message(&mut self, message: &[u8]) -> Result<(), ChunkError> {
        let mut scanned: &[u8] = &[];
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => self.chunk(&Chunk::read(field.bytes()?)?)?,
                2 => scanned = field.bytes()?,
                _ => {}
            }
        }
        // While a row is open, the scan isn't past it, whatever the server says.
        if !self.row_open() && self.is_ahead(scanned) {
            self.last.clear();
            self.last.extend_from_slice(scanned);
        }
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), ChunkError> {
        if chunk.status == Status::Reset {
            return self.reset(chunk).map_err(|what| self.refused(what));
        }
        let state = match self.state {
            State::Between => self.begin(chunk).and_then(|()| self.cell(chunk)),
            State::Row => self.cell(chunk),
            State::Cell { size, left } => piece(chunk, size, left),
        };
        self.state = state.map_err(|what| self.refused(what))?;
        if chunk.status == Status::Commit {
            if self.state != State::Row {
                return Err(self.refused("commit_row inside a cell"));
            }
            self.state = State::Between;
            self.last.clone_from(&self.key);
            self.rows += 1;
        }
        Ok(())
    }

    /// A row begins.
    fn begin(&mut self, chunk: &Chunk<'_>) -> Result<(), &'static str> {
        if chunk.row_key.is_empty() {
            return Err("a new row without a key");
        }
        if !chunk.family {
            return Err("a new row without a family");
        }
        if !self.is_ahead(chunk.row_key) {
            return Err("a row that isn't after the last one");
        }
        self.key.clear();
        self.key.extend_from_slice(chunk.row_key);
        Ok(())
    }

    /// A cell of the open row begins.
    fn cell(&self, chunk: &Chunk<'_>) -> Result<State, &'static str> {
        if !chunk.row_key.is_empty() && chunk.row_key != self.key {
            return Err("a new row before the last one was whole");
        }
        if chunk.family && !chunk.qualifier {
            return Err("a new family without a qualifier");
        }
        let Some(size) = chunk.value_size() else {
            return Err("a negative value_size");
        };
        if size == 0 {
            return Ok(State::Row);
        }
        let left = size.checked_sub(chunk.value);
        let left = left.ok_or("a cell longer than its value_size")?;
        Ok(State::Cell { size, left })
    }

    fn reset(&mut self, chunk: &Chunk<'_>) -> Result<(), &'static str> {
        if self.state == State::Between {
            return Err("reset_row outside of a row");
        }
        if !chunk.row_key.is_empty() || chunk.has_cell() || chunk.value > 0 || chunk.size != 0 {
            return Err("reset_row with data");
        }
        self.undo_row();
        Ok(())
    }

    /// Whether the scan comes to this key after the last one.
    fn is_ahead(&self, key: &[u8]) -> bool {
        match self.last_key() {
            None => !key.is_empty(),
            Some(last) if self.reversed => !key.is_empty() && key < last,
            Some(last) => key > last,
        }
    }

    fn refused(&self, what: &'static str) -> ChunkError {
        ChunkError {
            what,
            rows: self.rows,
            source: None,
        }
    }
}

/// A further piece of a cell of `size` bytes, `left` of which haven't come.
fn piece(chunk: &Chunk<'_>, size: u64, left: u64) -> Result<State, &'static str> {
    if !chunk.row_key.is_empty() || chunk.has_cell() {
        return Err("a new cell before the last one was whole");
    }
    let left = left.checked_sub(chunk.value);
    let left = left.ok_or("a cell longer than its value_size")?;
    match chunk.value_size() {
        Some(0) if left == 0 => Ok(State::Row),
        Some(0) => Err("a cell shorter than its value_size"),
        same if same == Some(size) => Ok(State::Cell { size, left }),
        _ => Err("another value_size inside a cell"),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Open,
    Reset,
    Commit,
}

/// What matters of a CellChunk.
#[derive(Default)]
struct Chunk<'a> {
    row_key: &'a [u8],
    family: bool,
    qualifier: bool,
    timestamp: bool,
    labels: bool,
    /// The value's length.
    value: u64,
    size: i32,
    status: Status,
}

impl<'a> Chunk<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Unreadable> {
        let mut chunk = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => chunk.row_key = field.bytes()?,
                2 => chunk.family = field.bytes().map(|_| true)?,
                3 => chunk.qualifier = field.bytes().map(|_| true)?,
                4 => chunk.timestamp = field.varint()? != 0,
                5 => chunk.labels = field.bytes().map(|_| true)?,
                6 => chunk.value = field.bytes()?.len() as u64,
                // An int32 is the low half of what is on the wire.
                7 => chunk.size = field.varint()? as i32,
                8 => chunk.status = status(field.varint()?, Status::Reset),
                9 => chunk.status = status(field.varint()?, Status::Commit),
                _ => {}
            }
        }
        Ok(chunk)
    }

    /// Whether it has what only the first chunk of a cell has.
    fn has_cell(&self) -> bool {
        self.family || self.qualifier || self.timestamp || self.labels
    }

    fn value_size(&self) -> Option<u64> {
        u64::try_from(self.size).ok()
    }
}

fn status(flag: u64, set: Status) -> Status {
    if flag == 0 { Status::Open } else { set }
}

/// A ReadRowsResponse that can't be read, or that doesn't fit what came before.
#[derive(Debug)]
pub struct ChunkError {
    what: &'static str,
    rows: u64,
    source: Option<Unreadable>,
}

impl From<Unreadable> for ChunkError {
    fn from(source: Unreadable) -> Self {
        Self {
            what: "it can't be read",
            rows: 0,
            source: Some(source),
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a wrong ReadRowsResponse: {}", self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => write!(f, ", after {} rows", self.rows),
        }
    }
}

impl Error for ChunkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
