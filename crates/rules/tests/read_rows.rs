//! What ReadRows asks for after a break, request by request.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse, RowFilter, RowRange, RowSet,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
    row_filter::Filter,
    row_range::{
        EndKey::{self, EndKeyClosed, EndKeyOpen},
        StartKey::{self, StartKeyClosed, StartKeyOpen},
    },
};
use prost::Message;
use steadfast_resume::{Pass, Progress, Rest, Rule};
use steadfast_rules::bigtable::ReadRows;

fn keys(keys: &[&str]) -> RowSet {
    RowSet {
        row_keys: keys.iter().map(|key| key.as_bytes().into()).collect(),
        row_ranges: Vec::new(),
    }
}

type Range<'a> = (
    fn(Vec<u8>) -> StartKey,
    &'a str,
    fn(Vec<u8>) -> EndKey,
    &'a str,
);

fn ranges(ranges: &[Range<'_>]) -> RowSet {
    let range = |(open, start, close, end): &Range<'_>| RowRange {
        start_key: Some(open(start.as_bytes().into())),
        end_key: Some(close(end.as_bytes().into())),
    };
    RowSet {
        row_keys: Vec::new(),
        row_ranges: ranges.iter().map(range).collect(),
    }
}

fn range(start: Option<StartKey>, end: Option<EndKey>) -> RowSet {
    RowSet {
        row_keys: Vec::new(),
        row_ranges: vec![RowRange {
            start_key: start,
            end_key: end,
        }],
    }
}

fn both(mut keys: RowSet, ranges: RowSet) -> RowSet {
    keys.row_ranges = ranges.row_ranges;
    keys
}

fn forward(rows: RowSet) -> ReadRowsRequest {
    ReadRowsRequest {
        table_name: "projects/p/instances/i/tables/t".into(),
        app_profile_id: "profile".into(),
        rows: Some(rows),
        filter: Some(RowFilter {
            filter: Some(Filter::CellsPerRowLimitFilter(1)),
        }),
        ..ReadRowsRequest::default()
    }
}

fn reversed(rows: RowSet) -> ReadRowsRequest {
    ReadRowsRequest {
        reversed: true,
        ..forward(rows)
    }
}

fn limited(rows_limit: i64, request: ReadRowsRequest) -> ReadRowsRequest {
    ReadRowsRequest {
        rows_limit,
        ..request
    }
}

fn chunk(key: &str, row_status: Option<RowStatus>) -> CellChunk {
    CellChunk {
        row_key: key.as_bytes().into(),
        family_name: Some("f".into()),
        qualifier: Some(b"q".into()),
        value: b"value".into(),
        row_status,
        ..CellChunk::default()
    }
}

fn whole(key: &str) -> CellChunk {
    chunk(key, Some(RowStatus::CommitRow(true)))
}

fn message(chunks: Vec<CellChunk>, scanned: &str) -> Vec<u8> {
    let response = ReadRowsResponse {
        chunks,
        last_scanned_row_key: scanned.as_bytes().into(),
        ..ReadRowsResponse::default()
    };
    response.encode_to_vec()
}

fn begin(request: &ReadRowsRequest) -> Box<dyn Progress> {
    ReadRows.begin(&request.encode_to_vec()).unwrap()
}

fn deliver(progress: &mut dyn Progress, message: &[u8]) {
    assert_eq!(progress.message(message).unwrap(), Pass::AsIs);
}

/// What is asked for after these rows.
fn after(request: &ReadRowsRequest, rows: &[&str]) -> Rest {
    let mut progress = begin(request);
    for key in rows {
        deliver(&mut *progress, &message(vec![whole(key)], ""));
    }
    progress.rest().unwrap()
}

/// The one request of a `Rest` without messages of its own.
fn asked(rest: &Rest) -> ReadRowsRequest {
    match rest {
        Rest::Send { requests, first } if first.is_empty() => {
            assert_eq!(requests.len(), 1);
            ReadRowsRequest::decode(&requests[0][..]).unwrap()
        }
        other => panic!("no plain request: {other:?}"),
    }
}

/// Asserts that after these rows of `from` it is `to` that is asked for, with all else as it was.
#[track_caller]
fn becomes(from: &ReadRowsRequest, rows: &[&str], to: RowSet) {
    let rest = asked(&after(from, rows));
    let to = ReadRowsRequest {
        rows: Some(to),
        ..from.clone()
    };
    assert_eq!(rest, to);
}

#[track_caller]
fn complete(from: &ReadRowsRequest, rows: &[&str]) {
    assert_eq!(after(from, rows), Rest::Complete);
}

/// R9: the method.
#[test]
fn the_method_is_read_rows() {
    assert_eq!(ReadRows.method(), "/google.bigtable.v2.Bigtable/ReadRows");
}

/// R9: before the first row the same bytes are sent again.
#[test]
fn nothing_delivered() {
    let request = limited(3, forward(keys(&["b", "a"])));
    assert_eq!(after(&request, &[]), Rest::request(request.encode_to_vec()));
    let table = ReadRowsRequest::default();
    assert_eq!(after(&table, &[]), Rest::request(Vec::new()));
}

/// R9: keys that were delivered, or passed by, aren't asked for again.
#[test]
fn key_sets() {
    let request = forward(keys(&["d", "a", "c", "b"]));
    becomes(&request, &["a", "b"], keys(&["d", "c"]));
    becomes(&request, &["c"], keys(&["d"]));
    becomes(&request, &["a!"], keys(&["d", "c", "b"]));
    complete(&request, &["a", "b", "c", "d"]);
    let request = reversed(keys(&["d", "a", "c", "b"]));
    becomes(&request, &["d", "c"], keys(&["a", "b"]));
    complete(&request, &["d", "c", "b", "a"]);
}

/// R9: no row set, or an empty one, is the whole table.
#[test]
fn the_whole_table() {
    let from = |key: &str| range(Some(StartKeyOpen(key.into())), None);
    let to = |key: &str| range(None, Some(EndKeyOpen(key.into())));
    becomes(&forward(RowSet::default()), &["a", "m"], from("m"));
    becomes(&reversed(RowSet::default()), &["m", "b"], to("b"));
    let unset = ReadRowsRequest::default();
    becomes(&unset, &["m"], from("m"));
    // Nothing sorts before a zero byte: an empty set would be the whole table once more.
    complete(&reversed(RowSet::default()), &["\0"]);
}

/// R9: a forward range begins behind the last row, whatever its start was.
#[test]
fn forward_ranges() {
    for open in [StartKeyOpen as fn(Vec<u8>) -> _, StartKeyClosed] {
        for close in [EndKeyOpen as fn(Vec<u8>) -> _, EndKeyClosed] {
            for (start, end) in [("b", "f"), ("", "f"), ("b", ""), ("", "")] {
                let request = forward(ranges(&[(open, start, close, end)]));
                becomes(&request, &["c"], ranges(&[(StartKeyOpen, "c", close, end)]));
            }
        }
    }
    let unset = forward(range(None, None));
    becomes(&unset, &["c"], range(Some(StartKeyOpen("c".into())), None));
}

/// R9: a range of a reversed scan ends before the last row, whatever its end was.
#[test]
fn reversed_ranges() {
    for open in [StartKeyOpen as fn(Vec<u8>) -> _, StartKeyClosed] {
        for close in [EndKeyOpen as fn(Vec<u8>) -> _, EndKeyClosed] {
            for (start, end) in [("b", "f"), ("", "f"), ("b", ""), ("", "")] {
                let request = reversed(ranges(&[(open, start, close, end)]));
                becomes(&request, &["e"], ranges(&[(open, start, EndKeyOpen, "e")]));
            }
        }
    }
    let unset = reversed(range(None, None));
    becomes(&unset, &["e"], range(None, Some(EndKeyOpen("e".into()))));
}

/// R9: at the end of a range it depends on the bound whether something is left.
#[test]
fn the_ends_of_ranges() {
    let closed = forward(ranges(&[(StartKeyClosed, "b", EndKeyClosed, "f")]));
    complete(&closed, &["b", "f"]);
    becomes(
        &closed,
        &["b", "e"],
        ranges(&[(StartKeyOpen, "e", EndKeyClosed, "f")]),
    );
    let open = forward(ranges(&[(StartKeyOpen, "b", EndKeyOpen, "f")]));
    complete(&open, &["f"]);
    // No key lies between one and the same with a zero byte.
    complete(
        &forward(ranges(&[(StartKeyOpen, "b", EndKeyOpen, "e\0")])),
        &["e"],
    );
    let next = forward(ranges(&[(StartKeyOpen, "b", EndKeyClosed, "e\0")]));
    becomes(
        &next,
        &["e"],
        ranges(&[(StartKeyOpen, "e", EndKeyClosed, "e\0")]),
    );

    let closed = reversed(ranges(&[(StartKeyClosed, "b", EndKeyClosed, "f")]));
    complete(&closed, &["f", "b"]);
    becomes(
        &closed,
        &["f"],
        ranges(&[(StartKeyClosed, "b", EndKeyOpen, "f")]),
    );
    let open = reversed(ranges(&[(StartKeyOpen, "b", EndKeyOpen, "f")]));
    complete(&open, &["b\0"]);
    becomes(
        &open,
        &["b\0\0"],
        ranges(&[(StartKeyOpen, "b", EndKeyOpen, "b\0\0")]),
    );
}

/// R9: of several ranges those done with are dropped, one is cut, and those to come stay as they are.
#[test]
fn several_ranges() {
    let all = [
        (
            StartKeyClosed as fn(Vec<u8>) -> _,
            "p",
            EndKeyOpen as fn(Vec<u8>) -> _,
            "t",
        ),
        (StartKeyOpen, "a", EndKeyClosed, "c"),
        (StartKeyOpen, "f", EndKeyClosed, "m"),
    ];
    let cut: Range<'_> = (StartKeyOpen, "g", EndKeyClosed, "m");
    becomes(&forward(ranges(&all)), &["b", "g"], ranges(&[all[0], cut]));
    let between = &["b", "f"];
    becomes(&forward(ranges(&all)), between, ranges(&[all[0], all[2]]));
    complete(&forward(ranges(&all)), &["b", "t"]);

    let cut: Range<'_> = (StartKeyOpen, "f", EndKeyOpen, "g");
    becomes(&reversed(ranges(&all)), &["q", "g"], ranges(&[all[1], cut]));
    becomes(&reversed(ranges(&all)), &["n"], ranges(&[all[1], all[2]]));
    complete(&reversed(ranges(&all)), &["q", "a"]);
}

/// R9: ranges that overlap are both cut.
#[test]
fn ranges_that_overlap() {
    let request = forward(ranges(&[
        (StartKeyClosed, "a", EndKeyOpen, "m"),
        (StartKeyClosed, "c", EndKeyOpen, "z"),
    ]));
    let left = ranges(&[
        (StartKeyOpen, "d", EndKeyOpen, "m"),
        (StartKeyOpen, "d", EndKeyOpen, "z"),
    ]);
    becomes(&request, &["a", "d"], left);
}

/// R9: keys and ranges in one set.
#[test]
fn keys_and_ranges() {
    let set = both(
        keys(&["a", "d", "x"]),
        ranges(&[
            (StartKeyClosed, "c", EndKeyOpen, "f"),
            (StartKeyClosed, "u", EndKeyOpen, "w"),
        ]),
    );
    let left = both(
        keys(&["x"]),
        ranges(&[
            (StartKeyOpen, "d", EndKeyOpen, "f"),
            (StartKeyClosed, "u", EndKeyOpen, "w"),
        ]),
    );
    becomes(&forward(set.clone()), &["a", "c", "d"], left);
    becomes(&forward(set.clone()), &["w"], keys(&["x"]));
    complete(&forward(set.clone()), &["x"]);
    let left = both(
        keys(&["a"]),
        ranges(&[(StartKeyClosed, "c", EndKeyOpen, "d")]),
    );
    becomes(&reversed(set.clone()), &["x", "d"], left);
    complete(&reversed(set), &["a"]);
}

/// R9: `rows_limit` is what is left of it, in one request and over several breaks.
#[test]
fn rows_limit() {
    let left = || range(Some(StartKeyOpen("c".into())), None);
    let request = limited(5, forward(RowSet::default()));
    let rest = asked(&after(&request, &["a", "b", "c"]));
    assert_eq!(rest, limited(2, forward(left())));
    complete(&request, &["a", "b", "c", "d", "e"]);

    let mut progress = begin(&request);
    deliver(&mut *progress, &message(vec![whole("a")], ""));
    assert_eq!(asked(&progress.rest().unwrap()).rows_limit, 4);
    deliver(&mut *progress, &message(vec![whole("b"), whole("c")], ""));
    assert_eq!(
        asked(&progress.rest().unwrap()),
        limited(2, forward(left()))
    );
}

/// R9: a limit that no server takes isn't turned into another one.
#[test]
fn a_negative_rows_limit() {
    let rest = asked(&after(&limited(-1, forward(keys(&["a", "b"]))), &["a"]));
    assert_eq!(rest, forward(keys(&["b"])));
}

/// R9: rows that a filter left out are progress, and don't count toward the limit.
#[test]
fn filtered_rows() {
    let request = limited(2, forward(keys(&["a", "b", "c", "d"])));
    let mut progress = begin(&request);
    deliver(&mut *progress, &message(vec![whole("a")], ""));
    deliver(&mut *progress, &message(Vec::new(), "c"));
    let rest = asked(&progress.rest().unwrap());
    assert_eq!(rest, limited(1, forward(keys(&["d"]))));
    // Of what was scanned already nothing is unlearnt.
    deliver(&mut *progress, &message(Vec::new(), "b"));
    assert_eq!(asked(&progress.rest().unwrap()), rest);
    deliver(&mut *progress, &message(Vec::new(), "d"));
    assert_eq!(progress.rest().unwrap(), Rest::Complete);
}

/// R9: of a row that was delivered in part the caller hears `reset_row`, once, and it is asked for again.
#[test]
fn a_partly_delivered_row() {
    let request = forward(keys(&["a", "b", "c"]));
    let mut progress = begin(&request);
    deliver(
        &mut *progress,
        &message(vec![whole("a"), chunk("b", None)], ""),
    );
    let Rest::Send { requests, first } = progress.rest().unwrap() else {
        panic!("it goes on");
    };
    let asked_again = ReadRowsRequest::decode(&requests[0][..]).unwrap();
    assert_eq!(asked_again, forward(keys(&["b", "c"])));
    let reset = CellChunk {
        row_status: Some(RowStatus::ResetRow(true)),
        ..CellChunk::default()
    };
    let undo = ReadRowsResponse {
        chunks: vec![reset],
        ..ReadRowsResponse::default()
    };
    assert_eq!(first, [undo.encode_to_vec()]);

    // The next attempt breaks before its first message: nothing is left to undo.
    assert_eq!(asked(&progress.rest().unwrap()), asked_again);
    deliver(&mut *progress, &message(vec![whole("b")], ""));
    assert_eq!(asked(&progress.rest().unwrap()), forward(keys(&["c"])));
}

/// R9: the same inside a cell, and before any row was whole.
#[test]
fn a_cell_delivered_in_part() {
    let piece = CellChunk {
        value_size: 1_000,
        ..chunk("a", None)
    };
    let request = forward(keys(&["a"]));
    let mut progress = begin(&request);
    deliver(&mut *progress, &message(vec![piece], ""));
    let Rest::Send { requests, first } = progress.rest().unwrap() else {
        panic!("it goes on");
    };
    assert_eq!(requests, [request.encode_to_vec()]);
    assert_eq!(first.len(), 1);
    deliver(&mut *progress, &message(vec![whole("a")], ""));
    assert_eq!(progress.rest().unwrap(), Rest::Complete);
}

/// R9: a half row that wasn't asked for can be neither undone nor finished.
#[test]
fn a_row_that_was_not_asked_for() {
    for request in [
        forward(keys(&["a"])),
        limited(1, forward(keys(&["a", "b"]))),
    ] {
        let mut progress = begin(&request);
        deliver(
            &mut *progress,
            &message(vec![whole("a"), chunk("b", None)], ""),
        );
        let rest = progress.rest().unwrap();
        assert!(matches!(rest, Rest::Cannot(_)), "{rest:?}");
    }
}

/// R4: what the next attempt delivers must come after what was delivered.
#[test]
fn a_row_that_comes_again_ends_the_stream() {
    let mut progress = begin(&forward(RowSet::default()));
    deliver(&mut *progress, &message(vec![whole("a"), whole("b")], ""));
    progress.rest().unwrap();
    let error = progress
        .message(&message(vec![whole("b")], ""))
        .unwrap_err();
    assert!(error.to_string().contains("isn't after"), "{error}");
}

/// R9: fields of the request that this rule doesn't know are sent again too, and a row set in two parts is one.
#[test]
fn fields_that_are_not_known_stay() {
    let part = |set: RowSet| ReadRowsRequest {
        rows: Some(set),
        ..ReadRowsRequest::default()
    };
    let mut request = part(keys(&["a", "b"])).encode_to_vec();
    let unknown = [0xa2, 0x06, 1, 42, 0xad, 0x06, 1, 2, 3, 4];
    request.extend(unknown);
    request.extend(part(keys(&["c"])).encode_to_vec());
    // Field 15 in a row set of its own.
    request.extend([2 << 3 | 2, 2, 15 << 3, 99]);
    let mut progress = ReadRows.begin(&request).unwrap();
    deliver(&mut *progress, &message(vec![whole("a")], ""));
    let Rest::Send { requests, .. } = progress.rest().unwrap() else {
        panic!("it goes on");
    };
    let asked = &requests[0];
    assert!(asked.windows(unknown.len()).any(|window| window == unknown));
    assert!(asked.windows(2).any(|window| window == [15 << 3, 99]));
    let rest = ReadRowsRequest::decode(&asked[..]).unwrap();
    assert_eq!(rest, part(keys(&["b", "c"])));
}

/// R8: a request that can't be read isn't begun.
#[test]
fn a_request_that_cannot_be_read() {
    for request in [
        &b"\x12"[..],
        b"\x10\x01",
        b"\x22\x01a",
        b"\x3a\x00",
        b"\xff",
    ] {
        assert!(ReadRows.begin(request).is_err(), "{request:?}");
    }
    // Nor is a row set, when it is needed.
    let mut progress = ReadRows.begin(b"\x12\x02\x08\x01").unwrap();
    deliver(&mut *progress, &message(vec![whole("a")], ""));
    assert!(progress.rest().is_err());
}

/// R4, R9: OK inside a row is no end of a scan.
#[test]
fn ok_inside_a_row_is_an_error() {
    let mut scan = ReadRows.begin(&[]).unwrap();
    scan.end().unwrap();
    for (chunks, whole) in [(vec![whole("a")], true), (vec![chunk("b", None)], false)] {
        let response = ReadRowsResponse {
            chunks,
            ..ReadRowsResponse::default()
        };
        assert_eq!(scan.message(&response.encode_to_vec()).unwrap(), Pass::AsIs);
        assert_eq!(scan.end().is_ok(), whole);
    }
}
