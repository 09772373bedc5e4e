//! The rows that every server is filled with: numbered keys, one cell of 1,000 random bytes each, the same for the same seed.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_range::StartKey;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowsRequest, Mutation, ReadRowsRequest, RowRange, RowSet, mutate_rows_request, mutation,
};

/// The table's full name; `cbt -project p -instance i read steadfast-lab` reads it.
pub const TABLE: &str = "projects/p/instances/i/tables/steadfast-lab";
/// The instance that holds the table.
pub const INSTANCE: &str = "projects/p/instances/i";
/// The table's name within its instance.
pub const TABLE_ID: &str = "steadfast-lab";
/// The one column family.
pub const FAMILY: &str = "cf";

const QUALIFIER: &[u8] = b"value";
const VALUE: usize = 1000;
/// Rows per MutateRows request: about half a MiB, well below the 4 MiB that servers accept by default.
const BATCH: u32 = 500;

/// How many rows, and what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u32,
    /// The seed of their values.
    pub seed: u64,
}

impl Rows {
    /// The writes that fill a server, batch by batch.
    pub fn requests(self) -> impl Iterator<Item = MutateRowsRequest> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        (0..self.count.div_ceil(BATCH)).map(move |batch| {
            let rows = batch * BATCH..self.count.min((batch + 1) * BATCH);
            MutateRowsRequest {
                table_name: TABLE.to_owned(),
                entries: rows.map(|row| entry(row, &mut random)).collect(),
                ..MutateRowsRequest::default()
            }
        })
    }
}

fn entry(row: u32, random: &mut fastrand::Rng) -> mutate_rows_request::Entry {
    let mut value = vec![0; VALUE];
    random.fill(&mut value);
    let cell = mutation::SetCell {
        family_name: FAMILY.to_owned(),
        column_qualifier: QUALIFIER.to_vec(),
        timestamp_micros: 1000,
        value,
    };
    let mutation = Mutation {
        mutation: Some(mutation::Mutation::SetCell(cell)),
    };
    mutate_rows_request::Entry {
        row_key: key(row),
        mutations: vec![mutation],
        ..mutate_rows_request::Entry::default()
    }
}

/// The key of a row: its number, padded so that keys sort as numbers do.
pub fn key(row: u32) -> Vec<u8> {
    format!("row-{row:08}").into_bytes()
}

/// A read of one row.
pub fn point(row: u32) -> ReadRowsRequest {
    let rows = RowSet {
        row_keys: vec![key(row)],
        row_ranges: Vec::new(),
    };
    ReadRowsRequest {
        table_name: TABLE.to_owned(),
        rows: Some(rows),
        rows_limit: 1,
        ..ReadRowsRequest::default()
    }
}

/// A read of `count` rows from `first` on.
pub fn scan(first: u32, count: u32) -> ReadRowsRequest {
    let range = RowRange {
        start_key: Some(StartKey::StartKeyClosed(key(first))),
        end_key: None,
    };
    let rows = RowSet {
        row_keys: Vec::new(),
        row_ranges: vec![range],
    };
    ReadRowsRequest {
        table_name: TABLE.to_owned(),
        rows: Some(rows),
        rows_limit: count.into(),
        ..ReadRowsRequest::default()
    }
}
