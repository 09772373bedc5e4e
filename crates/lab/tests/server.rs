//! Rows of the embedded server, read by a generated client: points, ranges, limits, both directions.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_range::{EndKey, StartKey};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, RowRange, RowSet,
};
use steadfast_lab::rows::{self, Rows};
use steadfast_lab::server::Embedded;

mod common;

use common::{client, keys, write};

fn range(start: Option<StartKey>, end: Option<EndKey>) -> ReadRowsRequest {
    let rows = RowSet {
        row_keys: Vec::new(),
        row_ranges: vec![RowRange {
            start_key: start,
            end_key: end,
        }],
    };
    ReadRowsRequest {
        rows: Some(rows),
        ..ReadRowsRequest::default()
    }
}

#[tokio::test]
async fn rows_written_come_back_by_point_and_by_every_kind_of_range() {
    let server = Embedded::start().await.unwrap();
    let mut client = client(&server).await;
    write(&mut client, &["c", "a", "b", "d"]).await;
    let (b, c) = (b"b".to_vec(), b"c".to_vec());
    let point = RowSet {
        row_keys: vec![b.clone(), b"missing".to_vec()],
        row_ranges: Vec::new(),
    };
    assert_eq!(
        keys(
            &mut client,
            ReadRowsRequest {
                rows: Some(point),
                ..ReadRowsRequest::default()
            }
        )
        .await
        .unwrap(),
        ["b"]
    );
    let ranges = [
        (None, None, "abcd"),
        (Some(StartKey::StartKeyClosed(b.clone())), None, "bcd"),
        (Some(StartKey::StartKeyOpen(b.clone())), None, "cd"),
        (None, Some(EndKey::EndKeyClosed(c.clone())), "abc"),
        (None, Some(EndKey::EndKeyOpen(c.clone())), "ab"),
        (
            Some(StartKey::StartKeyClosed(b.clone())),
            Some(EndKey::EndKeyClosed(c.clone())),
            "bc",
        ),
        (
            Some(StartKey::StartKeyOpen(b.clone())),
            Some(EndKey::EndKeyOpen(c)),
            "",
        ),
        (
            Some(StartKey::StartKeyClosed(b.clone())),
            Some(EndKey::EndKeyOpen(b)),
            "",
        ),
        (
            Some(StartKey::StartKeyOpen(Vec::new())),
            Some(EndKey::EndKeyOpen(Vec::new())),
            "abcd",
        ),
    ];
    for (start, end, expected) in ranges {
        let request = range(start, end);
        let forward = keys(&mut client, request.clone()).await.unwrap().concat();
        assert_eq!(forward, expected, "{request:?}");
        let backward = keys(
            &mut client,
            ReadRowsRequest {
                reversed: true,
                ..request.clone()
            },
        )
        .await
        .unwrap()
        .concat();
        assert_eq!(
            backward,
            expected.chars().rev().collect::<String>(),
            "reversed {request:?}"
        );
    }
}

#[tokio::test]
async fn a_limit_counts_rows_from_the_end_that_is_read_first() {
    let server = Embedded::start().await.unwrap();
    let mut client = client(&server).await;
    write(&mut client, &["a", "b", "c", "d"]).await;
    let limited = ReadRowsRequest {
        rows_limit: 2,
        ..ReadRowsRequest::default()
    };
    assert_eq!(
        keys(&mut client, limited.clone()).await.unwrap(),
        ["a", "b"]
    );
    assert_eq!(
        keys(
            &mut client,
            ReadRowsRequest {
                reversed: true,
                ..limited
            }
        )
        .await
        .unwrap(),
        ["d", "c"]
    );
}

#[tokio::test]
async fn a_scan_comes_in_several_messages_and_every_row_once() {
    let server = Embedded::start().await.unwrap();
    let filling = Rows {
        count: 1000,
        seed: 3,
    };
    for request in filling.requests() {
        server.write(&request).unwrap();
    }
    let mut client = client(&server).await;
    for reversed in [false, true] {
        let mut stream = client
            .read_rows(ReadRowsRequest {
                reversed,
                ..rows::scan(10, 500)
            })
            .await
            .unwrap()
            .into_inner();
        let (mut messages, mut seen) = (0, Vec::new());
        while let Some(message) = stream.message().await.unwrap() {
            messages += 1;
            seen.extend(message.chunks.into_iter().map(|chunk| chunk.row_key));
        }
        let expected: Vec<_> = if reversed {
            (500..1000).rev().map(rows::key).collect()
        } else {
            (10..510).map(rows::key).collect()
        };
        assert_eq!(seen, expected);
        assert!(messages > 5, "{messages} messages");
    }
}
