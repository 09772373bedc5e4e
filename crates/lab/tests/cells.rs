//! Cells, refusals and counts of the embedded server, seen by a generated client.

mod common;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::mutation::{
    DeleteFromRow, Mutation as Change,
};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::row_filter::Filter;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowRequest, Mutation, PingAndWarmRequest, ReadRowsRequest, RowFilter,
};
use steadfast_lab::server::Embedded;
use tonic::Code;

use common::{TABLE, client, keys, set, write};

#[tokio::test]
async fn versions_are_newest_first_and_deleted_rows_are_gone() {
    let server = Embedded::start().await.unwrap();
    let mut client = client(&server).await;
    let row = |mutations| MutateRowRequest {
        table_name: TABLE.into(),
        row_key: b"r".to_vec(),
        mutations,
        ..MutateRowRequest::default()
    };
    client
        .mutate_row(row(vec![set("old", 1000), set("new", 2000)]))
        .await
        .unwrap();
    let mut stream = client
        .read_rows(ReadRowsRequest {
            table_name: TABLE.into(),
            ..ReadRowsRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let chunks = stream.message().await.unwrap().unwrap().chunks;
    let seen: Vec<_> = chunks
        .iter()
        .map(|chunk| {
            (
                chunk.timestamp_micros,
                &chunk.value[..],
                chunk.family_name.is_some(),
                chunk.row_status.is_some(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (2000, &b"new"[..], true, false),
            (1000, &b"old"[..], false, true)
        ]
    );
    let newest = RowFilter {
        filter: Some(Filter::CellsPerColumnLimitFilter(1)),
    };
    assert_eq!(
        keys(
            &mut client,
            ReadRowsRequest {
                filter: Some(newest),
                ..ReadRowsRequest::default()
            }
        )
        .await
        .unwrap(),
        ["r"]
    );
    client
        .mutate_row(row(vec![Mutation {
            mutation: Some(Change::DeleteFromRow(DeleteFromRow {})),
        }]))
        .await
        .unwrap();
    assert!(
        keys(&mut client, ReadRowsRequest::default())
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn what_it_cannot_do_is_refused_clearly() {
    let server = Embedded::start().await.unwrap();
    let mut client = client(&server).await;
    assert_eq!(
        keys(&mut client, ReadRowsRequest::default())
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
    write(&mut client, &["a"]).await;
    let regex = RowFilter {
        filter: Some(Filter::ValueRegexFilter(b"x.*".to_vec())),
    };
    let status = keys(
        &mut client,
        ReadRowsRequest {
            filter: Some(regex),
            ..ReadRowsRequest::default()
        },
    )
    .await
    .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("ValueRegexFilter"), "{status}");
}

#[tokio::test]
async fn calls_are_counted_and_a_failing_server_answers_unavailable() {
    let server = Embedded::start().await.unwrap();
    let mut client = client(&server).await;
    client
        .ping_and_warm(PingAndWarmRequest::default())
        .await
        .unwrap();
    assert!(server.first_connection().is_some());
    server.set_failing(true);
    assert_eq!(
        client
            .ping_and_warm(PingAndWarmRequest::default())
            .await
            .unwrap_err()
            .code(),
        Code::Unavailable
    );
    assert_eq!(server.calls(), 2);
    server.mark();
    assert_eq!(server.first_connection(), None);
}
