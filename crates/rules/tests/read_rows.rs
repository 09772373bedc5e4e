//! What is left of a scan.

#![cfg(feature = "bigtable")]

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse, RowFilter, RowRange, RowSet,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
    row_filter::Filter,
    row_range::{EndKey, StartKey},
};
use proptest::{collection::vec, prelude::*};
use prost::Message;
use steadfast_resume::{Pass, Progress, Rest, Rule};
use steadfast_rules::bigtable::ReadRows;

fn begin(request: &ReadRowsRequest) -> Box<dyn Progress> {
    ReadRows.begin(&request.encode_to_vec()).unwrap()
}

fn cell(key: &str) -> CellChunk {
    CellChunk {
        row_key: key.into(),
        family_name: Some("f".into()),
        qualifier: Some("q".into()),
        value: "v".into(),
        ..CellChunk::default()
    }
}

fn row(key: &str) -> CellChunk {
    CellChunk {
        row_status: Some(RowStatus::CommitRow(true)),
        ..cell(key)
    }
}

fn response(chunks: impl Into<Vec<CellChunk>>) -> Vec<u8> {
    let response = ReadRowsResponse {
        chunks: chunks.into(),
        ..ReadRowsResponse::default()
    };
    response.encode_to_vec()
}

fn scanned(key: &str) -> Vec<u8> {
    let response = ReadRowsResponse {
        last_scanned_row_key: key.into(),
        ..ReadRowsResponse::default()
    };
    response.encode_to_vec()
}

fn deliver(progress: &mut dyn Progress, messages: &[Vec<u8>]) {
    for message in messages {
        assert_eq!(progress.message(message).unwrap(), Pass::AsIs);
    }
}

/// The request for the rest, after these rows.
fn rest(request: &ReadRowsRequest, rows: &[&str]) -> Option<ReadRowsRequest> {
    let mut progress = begin(request);
    let rows: Vec<_> = rows.iter().map(|key| response([row(key)])).collect();
    deliver(&mut *progress, &rows);
    left(&mut *progress)
}

fn left(progress: &mut dyn Progress) -> Option<ReadRowsRequest> {
    match progress.rest().unwrap() {
        Rest::Send { requests, first } => {
            assert_eq!((requests.len(), first.len()), (1, 0));
            Some(ReadRowsRequest::decode(&requests[0][..]).unwrap())
        }
        Rest::Complete => None,
        Rest::Cannot(why) => panic!("{why}"),
    }
}

fn keys(keys: &[&str]) -> ReadRowsRequest {
    asks(keys, Vec::new())
}

fn asks(keys: &[&str], row_ranges: Vec<RowRange>) -> ReadRowsRequest {
    let row_keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    ReadRowsRequest {
        table_name: "t".into(),
        rows: Some(RowSet {
            row_keys,
            row_ranges,
        }),
        ..ReadRowsRequest::default()
    }
}

/// `[a` is closed, `(a` open, and a bare bracket no bound.
fn range(start: &str, end: &str) -> RowRange {
    let start_key = match start.split_at_checked(1) {
        Some(("[", key)) => Some(StartKey::StartKeyClosed(key.into())),
        Some(("(", key)) => Some(StartKey::StartKeyOpen(key.into())),
        _ => None,
    };
    let end_key = match end.strip_suffix(']') {
        Some(key) => Some(EndKey::EndKeyClosed(key.into())),
        None => end
            .strip_suffix(')')
            .map(|key| EndKey::EndKeyOpen(key.into())),
    };
    RowRange { start_key, end_key }
}

fn ranges(ranges: &[(&str, &str)]) -> ReadRowsRequest {
    asks(
        &[],
        ranges
            .iter()
            .map(|(start, end)| range(start, end))
            .collect(),
    )
}

fn reversed(request: ReadRowsRequest) -> ReadRowsRequest {
    ReadRowsRequest {
        reversed: true,
        ..request
    }
}

fn limited(request: ReadRowsRequest, rows_limit: i64) -> ReadRowsRequest {
    ReadRowsRequest {
        rows_limit,
        ..request
    }
}

/// R9: keys that came are left out; when all did, nothing is sent.
#[test]
fn key_sets() {
    let all = keys(&["a", "b", "c"]);
    assert_eq!(rest(&all, &[]), Some(all.clone()));
    assert_eq!(rest(&all, &["a"]), Some(keys(&["b", "c"])));
    // `b` isn't there: what is behind the last row is what is left.
    assert_eq!(rest(&all, &["a", "c"]), None);
    assert_eq!(
        rest(&reversed(all.clone()), &["c"]),
        Some(reversed(keys(&["a", "b"])))
    );
    assert_eq!(rest(&reversed(all), &["c", "a"]), None);
    // The order of the keys in the request says nothing.
    assert_eq!(
        rest(&keys(&["c", "a", "b"]), &["a"]),
        Some(keys(&["c", "b"]))
    );
}

/// R9: ranges begin, or reversed end, at the last row, which they leave out.
#[test]
fn single_ranges() {
    for (asked, left) in [
        (("[a", "z)"), ("(m", "z)")),
        (("(a", "z]"), ("(m", "z]")),
        (("[m", "z)"), ("(m", "z)")),
        (("(m", "z)"), ("(m", "z)")),
        (("[n", "z)"), ("[n", "z)")),
        (("(n", "z)"), ("(n", "z)")),
        (("", "z)"), ("(m", "z)")),
        (("[a", ""), ("(m", "")),
        (("", ""), ("(m", "")),
        (("[", ")"), ("(m", ")")),
        (("(", "]"), ("(m", "]")),
        // One key is left: n.
        (("[a", "n]"), ("(m", "n]")),
    ] {
        assert_eq!(
            rest(&ranges(&[asked]), &["m"]),
            Some(ranges(&[left])),
            "{asked:?}"
        );
    }
    for asked in [
        ("[a", "m]"),
        ("[a", "m)"),
        ("[a", "b)"),
        ("(l", "m]"),
        ("[a", "m\0)"),
    ] {
        assert_eq!(rest(&ranges(&[asked]), &["m"]), None, "{asked:?}");
    }
    for (asked, left) in [
        (("[a", "z)"), ("[a", "m)")),
        (("(a", "z]"), ("(a", "m)")),
        (("[a", "m]"), ("[a", "m)")),
        (("[a", "m)"), ("[a", "m)")),
        (("[a", "l]"), ("[a", "l]")),
        (("[a", "l)"), ("[a", "l)")),
        (("", "z)"), ("", "m)")),
        (("[a", ""), ("[a", "m)")),
        (("", ""), ("", "m)")),
        (("[", "]"), ("[", "m)")),
    ] {
        let asked = reversed(ranges(&[asked]));
        assert_eq!(
            rest(&asked, &["m"]),
            Some(reversed(ranges(&[left]))),
            "{asked:?}"
        );
    }
    for asked in [("[m", "z)"), ("(m", "z)"), ("[n", "")] {
        assert_eq!(rest(&reversed(ranges(&[asked])), &["m"]), None, "{asked:?}");
    }
}

/// R9: of several ranges, and keys among them, those that are done are left out.
#[test]
fn several_ranges_and_keys() {
    let several = ranges(&[("[a", "c)"), ("[d", "m]"), ("[k", "p)"), ("[x", "")]);
    assert_eq!(
        rest(&several, &["a", "m"]),
        Some(ranges(&[("(m", "p)"), ("[x", "")]))
    );
    let left = ranges(&[("[a", "c)"), ("[d", "k)")]);
    assert_eq!(rest(&reversed(several), &["y", "k"]), Some(reversed(left)));
    let mixed = asks(&["b", "q"], vec![range("[d", "m]")]);
    assert_eq!(
        rest(&mixed, &["b"]),
        Some(asks(&["q"], vec![range("[d", "m]")]))
    );
    assert_eq!(rest(&mixed, &["b", "m"]), Some(keys(&["q"])));
    assert_eq!(rest(&mixed, &["b", "m", "q"]), None);
}

/// R9: no rows in the request are the whole table.
#[test]
fn the_whole_table() {
    for rows in [None, Some(RowSet::default())] {
        let all = ReadRowsRequest {
            rows,
            ..ReadRowsRequest::default()
        };
        assert_eq!(rest(&all, &[]), Some(all.clone()));
        let left = Some(RowSet {
            row_ranges: vec![range("(m", "")],
            ..RowSet::default()
        });
        let left = ReadRowsRequest { rows: left, ..all };
        assert_eq!(rest(&left, &["m"]), Some(left.clone()));
    }
}

/// R9: the limit is less by the rows that came; when it is reached nothing is sent.
#[test]
fn limits() {
    let all = limited(ranges(&[("[a", "z)")]), 3);
    assert_eq!(rest(&all, &[]), Some(all.clone()));
    assert_eq!(
        rest(&all, &["b", "c"]),
        Some(limited(ranges(&[("(c", "z)")]), 1))
    );
    assert_eq!(rest(&all, &["b", "c", "d"]), None);
    // More than was asked for.
    assert_eq!(rest(&all, &["b", "c", "d", "e"]), None);
    // Without a limit, or one that is none.
    for none in [0, -1] {
        let left = rest(&limited(keys(&["a", "b"]), none), &["a"]).unwrap();
        assert_eq!(left.rows_limit, 0);
    }
}

/// R9: rows that a filter left out count as progress, and not for the limit.
#[test]
fn filtered_rows() {
    let all = limited(ranges(&[("[a", "z)")]), 2);
    let mut progress = begin(&all);
    deliver(&mut *progress, &[response([row("b")]), scanned("k")]);
    assert_eq!(
        left(&mut *progress),
        Some(limited(ranges(&[("(k", "z)")]), 1))
    );
    // One that goes back tells nothing.
    deliver(&mut *progress, &[scanned("c")]);
    assert_eq!(
        left(&mut *progress),
        Some(limited(ranges(&[("(k", "z)")]), 1))
    );
    deliver(&mut *progress, &[response([row("m")])]);
    assert_eq!(left(&mut *progress), None);
    let mut progress = begin(&reversed(all));
    deliver(&mut *progress, &[scanned("k")]);
    assert_eq!(
        left(&mut *progress),
        Some(reversed(limited(ranges(&[("[a", "k)")]), 2)))
    );
}

/// R9: a row that came in part is undone before the next attempt's rows, and asked for again.
#[test]
fn part_of_a_row_is_undone() {
    let mut progress = begin(&keys(&["a", "b"]));
    deliver(&mut *progress, &[response([row("a"), cell("b")])]);
    let Rest::Send { requests, first } = progress.rest().unwrap() else {
        panic!("there is more")
    };
    assert_eq!(
        ReadRowsRequest::decode(&requests[0][..]).unwrap(),
        keys(&["b"])
    );
    let reset = ReadRowsResponse::decode(&first[0][..]).unwrap();
    let undo = CellChunk {
        row_status: Some(RowStatus::ResetRow(true)),
        ..CellChunk::default()
    };
    assert_eq!((first.len(), reset.chunks), (1, vec![undo]));
    // What comes then begins the row anew; a second failure undoes nothing.
    assert_eq!(left(&mut *progress), Some(keys(&["b"])));
    deliver(&mut *progress, &[response([row("b")])]);
    progress.end().unwrap();
    assert_eq!(left(&mut *progress), None);
    // The same inside a cell's value.
    let mut progress = begin(&keys(&["b"]));
    let part = CellChunk {
        value_size: 9,
        ..cell("b")
    };
    deliver(&mut *progress, &[response([part])]);
    let Rest::Send { first, .. } = progress.rest().unwrap() else {
        panic!("there is more")
    };
    assert_eq!(first.len(), 1);
}

/// R9, R4: OK inside a row is an error, and so is a row that wasn't asked for.
#[test]
fn the_server_is_held_to_the_rules() {
    let mut progress = begin(&keys(&["a"]));
    deliver(&mut *progress, &[response([cell("a")])]);
    assert!(
        progress
            .end()
            .unwrap_err()
            .to_string()
            .contains("inside a row")
    );
    let mut progress = begin(&keys(&["a"]));
    deliver(&mut *progress, &[response([row("a"), cell("b")])]);
    assert!(
        progress
            .rest()
            .unwrap_err()
            .to_string()
            .contains("wasn't asked for")
    );
    for chunks in [
        vec![row("b"), row("b")],
        vec![row("b"), row("a")],
        vec![cell("a"), cell("b")],
        vec![row("")],
    ] {
        let mut progress = begin(&ReadRowsRequest::default());
        progress.message(&response(chunks.clone())).unwrap_err();
        if chunks[0].row_key == b"b" && chunks[1].row_key == b"a" {
            let mut progress = begin(&reversed(ReadRowsRequest::default()));
            progress.message(&response(chunks)).unwrap();
        }
    }
    let mut progress = begin(&ReadRowsRequest::default());
    deliver(&mut *progress, &[response([cell("a")])]);
    progress.message(&scanned("c")).unwrap_err();
}

/// R7: all else of the request stays as it is, fields that nobody knows yet included.
#[test]
fn the_rest_of_the_request_stays() {
    let mut request = limited(keys(&["a", "b"]), 5);
    request.app_profile_id = "p".into();
    request.filter = Some(RowFilter {
        filter: Some(Filter::CellsPerRowLimitFilter(1)),
    });
    let mut bytes = request.encode_to_vec();
    // Field 100: "new".
    bytes.extend(b"\xa2\x06\x03new");
    let mut progress = ReadRows.begin(&bytes).unwrap();
    deliver(&mut *progress, &[response([row("a")])]);
    let Rest::Send { requests, .. } = progress.rest().unwrap() else {
        panic!("there is more")
    };
    let left = ReadRowsRequest {
        rows: keys(&["b"]).rows,
        rows_limit: 4,
        ..request
    };
    assert_eq!(ReadRowsRequest::decode(&requests[0][..]).unwrap(), left);
    assert!(requests[0].windows(3).any(|it| it == b"new"));
}

/// A key of few letters, so that bounds meet.
fn key() -> impl Strategy<Value = String> {
    "[ab]{1,3}"
}

fn any_range() -> impl Strategy<Value = RowRange> {
    let start = prop_oneof![
        Just(String::new()),
        key().prop_map(|key| format!("[{key}")),
        key().prop_map(|key| format!("({key}")),
    ];
    let end = prop_oneof![
        Just(String::new()),
        Just(")".to_owned()),
        key().prop_map(|key| format!("{key}]")),
        key().prop_map(|key| format!("{key})")),
    ];
    (start, end).prop_map(|(start, end)| range(&start, &end))
}

/// What a table with all keys of up to three letters answers, in the order of the request.
fn answers(request: &ReadRowsRequest) -> Vec<String> {
    let letters = ["", "a", "b"];
    let table = letters
        .iter()
        .flat_map(|a| letters.map(|b| format!("{a}{b}")));
    let mut table: Vec<_> = table
        .flat_map(|key| letters.map(|c| format!("{key}{c}")))
        .collect();
    table.sort();
    table.dedup();
    let within = |range: &RowRange, key: &[u8]| {
        let after = match &range.start_key {
            Some(StartKey::StartKeyClosed(start)) => key >= &start[..],
            Some(StartKey::StartKeyOpen(start)) => key > &start[..],
            None => true,
        };
        let before = match &range.end_key {
            Some(EndKey::EndKeyClosed(end)) => key <= &end[..] || end.is_empty(),
            Some(EndKey::EndKeyOpen(end)) => key < &end[..] || end.is_empty(),
            None => true,
        };
        after && before
    };
    let rows = request.rows.clone().unwrap_or_default();
    let all = rows == RowSet::default();
    table.retain(|key| {
        let key = key.as_bytes();
        let asked = rows.row_keys.iter().any(|it| it == key)
            || rows.row_ranges.iter().any(|range| within(range, key));
        !key.is_empty() && (all || asked)
    });
    if request.reversed {
        table.reverse();
    }
    if request.rows_limit > 0 {
        table.truncate(request.rows_limit as usize);
    }
    table
}

proptest! {
    /// R9: wherever it is cut, and however often, what came and what is asked for then are what was asked for.
    #[test]
    fn any_request_cut_anywhere(
        row_keys in vec(key(), 0..4),
        row_ranges in vec(any_range(), 0..4),
        reversed in any::<bool>(),
        rows_limit in prop_oneof![Just(0), 1..12_i64],
        cuts in vec(0..8_usize, 1..4),
    ) {
        let row_keys = row_keys.into_iter().map(String::into_bytes).collect();
        let rows = Some(RowSet { row_keys, row_ranges });
        let request = ReadRowsRequest { rows, reversed, rows_limit, ..ReadRowsRequest::default() };
        let expected = answers(&request);
        let mut progress = begin(&request);
        let mut came = Vec::new();
        let mut asked = Some(request);
        for cut in cuts {
            let Some(request) = &asked else { break };
            for key in answers(request).into_iter().take(cut) {
                prop_assert!(progress.message(&response([row(&key)])).is_ok());
                came.push(key);
            }
            asked = left(&mut *progress);
        }
        came.extend(asked.iter().flat_map(answers));
        prop_assert_eq!(came, expected);
    }

    /// R8: any bytes as a request, as messages, or both changed a little, are read or are an error.
    #[test]
    fn any_bytes(
        request in vec(any::<u8>(), 0..60),
        messages in vec(vec(any::<u8>(), 0..60), 0..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut good = asks(&["a", "b"], vec![range("[c", "d)")]).encode_to_vec();
        *at.get_mut(&mut good) = byte;
        let mut bad = response([row("a"), cell("b")]);
        *at.get_mut(&mut bad) = byte;
        for request in [request, good] {
            let Ok(mut progress) = ReadRows.begin(&request) else { continue };
            for message in messages.iter().chain([&bad]) {
                let _ = progress.message(message);
                let _ = progress.end();
            }
            let _ = progress.rest();
        }
    }
}

/// R9: nothing is allocated per message.
mod allocations {
    use steadfast_testkit::alloc::{CountingAllocator, count};

    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator::new();

    #[test]
    fn none_per_message() {
        let mut progress = begin(&ReadRowsRequest::default());
        let messages: Vec<_> = (0..1_000)
            .map(|it| response([row(&format!("row-{it:04}"))]))
            .collect();
        deliver(&mut *progress, &messages[..2]);
        let made = count(|| deliver(&mut *progress, &messages[2..]));
        assert_eq!(made, 0);
        let left = Bytes::from("row-0999");
        let Rest::Send { requests, .. } = progress.rest().unwrap() else {
            panic!("there is more")
        };
        assert!(requests[0].windows(8).any(|it| it == left));
    }
}
