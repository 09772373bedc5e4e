//! ReadRows against a model of a table, and against bytes that no server sends.

use std::collections::BTreeSet;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse, RowRange, RowSet,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
    row_range::{EndKey, StartKey},
};
use proptest::{collection::vec, option, prelude::*};
use prost::Message;
use steadfast_resume::{Progress, Rest, Rule};
use steadfast_rules::{
    bigtable::ReadRows,
    spanner::{ExecuteStreamingSql, StreamingRead},
};

/// Few bytes and short keys, so that bounds meet keys and each other; a key and the same with a zero byte are
/// neighbours.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![Just(0_u8), Just(b'a'), Just(b'b'), Just(255)],
        1..3,
    )
}

fn bound() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => Just(Vec::new()), 8 => key()]
}

fn range() -> impl Strategy<Value = RowRange> {
    let start = prop_oneof![
        bound().prop_map(StartKey::StartKeyOpen),
        bound().prop_map(StartKey::StartKeyClosed)
    ];
    let end = prop_oneof![
        bound().prop_map(EndKey::EndKeyOpen),
        bound().prop_map(EndKey::EndKeyClosed)
    ];
    (option::weighted(0.9, start), option::weighted(0.9, end))
        .prop_map(|(start_key, end_key)| RowRange { start_key, end_key })
}

fn request() -> impl Strategy<Value = ReadRowsRequest> {
    let rows = (vec(key(), 0..4), vec(range(), 0..4)).prop_map(|(row_keys, row_ranges)| RowSet {
        row_keys,
        row_ranges,
    });
    let limit = prop_oneof![Just(0), 1_i64..6];
    (option::weighted(0.9, rows), limit, any::<bool>()).prop_map(|(rows, rows_limit, reversed)| {
        ReadRowsRequest {
            rows,
            rows_limit,
            reversed,
            ..ReadRowsRequest::default()
        }
    })
}

fn in_range(range: &RowRange, key: &[u8]) -> bool {
    let after = match &range.start_key {
        Some(StartKey::StartKeyOpen(start)) => start.is_empty() || key > &start[..],
        Some(StartKey::StartKeyClosed(start)) => start.is_empty() || key >= &start[..],
        None => true,
    };
    let before = match &range.end_key {
        Some(EndKey::EndKeyOpen(end)) => end.is_empty() || key < &end[..],
        Some(EndKey::EndKeyClosed(end)) => end.is_empty() || key <= &end[..],
        None => true,
    };
    after && before
}

/// One row that a request comes by: its key, and whether the filter lets it through.
type Scanned = (Vec<u8>, bool);

/// What a server scans for this request, in its order, up to the last row of the limit.
fn scan(
    request: &ReadRowsRequest,
    table: &BTreeSet<Vec<u8>>,
    hidden: &BTreeSet<Vec<u8>>,
) -> Vec<Scanned> {
    let named = |key: &Vec<u8>| {
        let rows = request.rows.as_ref();
        let rows = rows.filter(|r| !r.row_keys.is_empty() || !r.row_ranges.is_empty());
        rows.is_none_or(|rows| {
            rows.row_keys.contains(key) || rows.row_ranges.iter().any(|range| in_range(range, key))
        })
    };
    let mut keys: Vec<_> = table.iter().filter(|key| named(key)).cloned().collect();
    if request.reversed {
        keys.reverse();
    }
    let mut shown = 0;
    let mut scanned = Vec::new();
    for key in keys {
        if request.rows_limit > 0 && shown == request.rows_limit {
            break;
        }
        let visible = !hidden.contains(&key);
        shown += i64::from(visible);
        scanned.push((key, visible));
    }
    scanned
}

fn response(chunks: Vec<CellChunk>, scanned: &[u8]) -> Vec<u8> {
    let response = ReadRowsResponse {
        chunks,
        last_scanned_row_key: scanned.into(),
        ..ReadRowsResponse::default()
    };
    response.encode_to_vec()
}

fn row(key: &[u8], row_status: Option<RowStatus>) -> CellChunk {
    CellChunk {
        row_key: key.into(),
        family_name: Some("f".into()),
        qualifier: Some(b"q".into()),
        row_status,
        ..CellChunk::default()
    }
}

/// One attempt: `whole` rows of the scan, and perhaps a part of the next. Gives the keys that were delivered.
fn attempt(
    progress: &mut dyn Progress,
    scan: &[Scanned],
    whole: usize,
    part: bool,
) -> Vec<Vec<u8>> {
    let mut delivered = Vec::new();
    for (key, visible) in scan.iter().take(whole) {
        let message = if *visible {
            delivered.push(key.clone());
            response(vec![row(key, Some(RowStatus::CommitRow(true)))], b"")
        } else {
            response(Vec::new(), key)
        };
        progress.message(&message).expect("a server may send this");
    }
    if let Some((key, true)) = scan.get(whole).filter(|_| part) {
        let message = response(vec![row(key, None)], b"");
        progress.message(&message).expect("a server may send this");
    }
    delivered
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_096, ..ProptestConfig::default() })]

    /// R4, R9: through any breaks, what was delivered and what is asked for are together what was asked for at
    /// first: each row once, in order. A request is sent if and only if something may be left, and never one
    /// that has nothing in it.
    #[test]
    fn every_row_comes_once(
        request in request(),
        table in proptest::collection::btree_set(key(), 0..12),
        hidden in proptest::collection::btree_set(key(), 0..6),
        cuts in vec((0_usize..5, any::<bool>()), 0..4),
    ) {
        let shown = |scan: Vec<Scanned>| -> Vec<Vec<u8>> {
            scan.into_iter().filter(|(_, visible)| *visible).map(|(key, _)| key).collect()
        };
        let expected = shown(scan(&request, &table, &hidden));
        let mut progress = ReadRows.begin(&request.encode_to_vec()).unwrap();
        let mut delivered = Vec::new();
        let mut left = Some(request.clone());
        for (whole, part) in cuts {
            let Some(now) = left.take() else { break };
            let scan = scan(&now, &table, &hidden);
            let open = part && scan.get(whole).is_some_and(|(_, visible)| *visible);
            delivered.extend(attempt(&mut *progress, &scan, whole, part));
            match progress.rest().unwrap() {
                Rest::Send { requests, first } => {
                    prop_assert_eq!(first.len(), usize::from(open));
                    prop_assert_eq!(requests.len(), 1);
                    let next = ReadRowsRequest::decode(&requests[0][..]).unwrap();
                    prop_assert_eq!(next.reversed, request.reversed);
                    prop_assert_eq!(next.rows_limit > 0, request.rows_limit > 0);
                    left = Some(next);
                }
                Rest::Complete => {}
                Rest::Cannot(reason) => prop_assert!(false, "{reason}"),
            }
        }
        delivered.extend(left.map(|rest| shown(scan(&rest, &table, &hidden))).unwrap_or_default());
        prop_assert_eq!(delivered, expected);
    }

    /// R9: what is asked for can name a row: a request for nothing would be the whole table, or refused.
    #[test]
    fn what_is_asked_for_is_not_empty(request in request(), last in key()) {
        let mut progress = ReadRows.begin(&request.encode_to_vec()).unwrap();
        progress.message(&response(Vec::new(), &last)).unwrap();
        if let Rest::Send { requests, .. } = progress.rest().unwrap() {
            let rest = ReadRowsRequest::decode(&requests[0][..]).unwrap();
            let rows = rest.rows.as_ref().expect("a row set");
            for range in &rows.row_ranges {
                // Every key that is near enough to a bound to lie between two of them.
                let near = range_keys(range).into_iter().chain([vec![0], last.clone()]);
                let near = near.flat_map(|key| [key.clone(), [&key[..], &[0]].concat()]);
                prop_assert!(near.filter(|key| !key.is_empty()).any(|key| in_range(range, &key)), "{range:?}");
            }
            prop_assert!(rows.row_keys.len() + rows.row_ranges.len() > 0);
        }
    }

    /// R8: bytes that no server sends are an error or pass; nothing panics, and what passes can be resumed.
    #[test]
    fn hostile_bytes(
        request in vec(any::<u8>(), 0..40),
        messages in vec(vec(any::<u8>(), 0..40), 0..4),
    ) {
        for rule in [&ReadRows as &dyn Rule, &ExecuteStreamingSql, &StreamingRead] {
            if let Ok(mut progress) = rule.begin(&request) {
                let _ = messages.iter().try_for_each(|message| progress.message(message).map(drop));
                let _ = progress.rest();
            }
        }
    }

    /// R8: the same for messages of which a few bytes are wrong.
    #[test]
    fn mutated_bytes(
        request in request(),
        keys in vec(key(), 1..4),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let chunks = keys.iter().map(|key| CellChunk {
            value_size: 1 << 20,
            labels: vec!["label".into()],
            timestamp_micros: -1,
            ..row(key, Some(RowStatus::CommitRow(false)))
        });
        let mut request = request.encode_to_vec();
        let mut message = response(chunks.collect(), &keys[0]);
        for (at, byte) in &changes {
            *at.get_mut(&mut message) = *byte;
            if !request.is_empty() {
                *at.get_mut(&mut request) = *byte;
            }
        }
        if let Ok(mut progress) = ReadRows.begin(&request) {
            let _ = progress.message(&message);
            let _ = progress.rest();
        }
    }
}

fn range_keys(range: &RowRange) -> Vec<Vec<u8>> {
    let start = range.start_key.iter().map(|start| match start {
        StartKey::StartKeyOpen(key) | StartKey::StartKeyClosed(key) => key.clone(),
    });
    let end = range.end_key.iter().map(|end| match end {
        EndKey::EndKeyOpen(key) | EndKey::EndKeyClosed(key) => key.clone(),
    });
    start.chain(end).collect()
}
