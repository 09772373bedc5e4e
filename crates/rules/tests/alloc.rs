//! What the rules cost for each message, in allocations.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
};
use googleapis_tonic_google_spanner_v1::google::spanner::v1::{
    ExecuteSqlRequest, PartialResultSet,
};
use prost::Message;
use steadfast_resume::{Pass, Rule};
use steadfast_rules::{bigtable::ReadRows, spanner::ExecuteStreamingSql};
use steadfast_testkit::alloc::{CountingAllocator, count};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// A response with a row of three cells, one of them in pieces, and one that a filter left out.
fn row(index: u32) -> Vec<u8> {
    let cell = CellChunk {
        family_name: Some("family".into()),
        qualifier: Some("column".into()),
        labels: vec!["label".into()],
        value: vec![7; 100],
        ..CellChunk::default()
    };
    let first = CellChunk {
        row_key: format!("row-{index:06}").into(),
        ..cell.clone()
    };
    let piece = CellChunk {
        value_size: 200,
        ..cell.clone()
    };
    let last = CellChunk {
        value: vec![7; 100],
        row_status: Some(RowStatus::CommitRow(true)),
        ..CellChunk::default()
    };
    let response = ReadRowsResponse {
        chunks: vec![first, cell, piece, last],
        last_scanned_row_key: format!("row-{index:06}+").into(),
        ..ReadRowsResponse::default()
    };
    response.encode_to_vec()
}

/// R9 and the budget: a ReadRowsResponse costs no allocation once a key of that length was seen.
#[test]
fn read_rows_allocates_nothing_per_message() {
    let request = ReadRowsRequest::default().encode_to_vec();
    let mut progress = ReadRows.begin(&request).unwrap();
    let messages: Vec<_> = (0..1_000).map(row).collect();
    let mut messages = messages.iter();
    for message in messages.by_ref().take(2) {
        progress.message(message).unwrap();
    }
    let allocations = count(|| {
        for message in messages {
            assert_eq!(progress.message(message).unwrap(), Pass::AsIs);
        }
    });
    assert_eq!(allocations, 0);
}

/// R9 and the budget: nor does a PartialResultSet, with a token or without.
#[test]
fn spanner_allocates_nothing_per_message() {
    let request = ExecuteSqlRequest::default().encode_to_vec();
    let mut progress = ExecuteStreamingSql.begin(&request).unwrap();
    let message = |index: u32| PartialResultSet {
        resume_token: if index.is_multiple_of(3) {
            format!("token-{index:06}").into()
        } else {
            Vec::new()
        },
        chunked_value: true,
        ..PartialResultSet::default()
    };
    let messages: Vec<_> = (0..1_000)
        .map(|index| message(index).encode_to_vec())
        .collect();
    progress.message(&messages[0]).unwrap();
    let allocations = count(|| {
        for message in &messages {
            assert_eq!(progress.message(message).unwrap(), Pass::AsIs);
        }
    });
    assert_eq!(allocations, 0);
}
