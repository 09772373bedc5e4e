//! Writing to an embedded server and reading back.

#![allow(
    dead_code,
    reason = "each test file uses a part of it, so an expectation would fail in some"
)]

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::mutation::{
    Mutation as Change, SetCell,
};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowsRequest, Mutation, ReadRowsRequest, mutate_rows_request,
};
use steadfast_lab::server::Embedded;
use tonic::Status;
use tonic::transport::Channel;

pub(crate) const TABLE: &str = "projects/p/instances/i/tables/t";

pub(crate) async fn client(server: &Embedded) -> BigtableClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", server.address())).unwrap();
    BigtableClient::new(
        endpoint
            .connect()
            .await
            .expect("the server listens before start() returns"),
    )
}

pub(crate) fn set(value: &str, timestamp: i64) -> Mutation {
    let cell = SetCell {
        family_name: "cf".into(),
        column_qualifier: b"q".to_vec(),
        timestamp_micros: timestamp,
        value: value.into(),
    };
    Mutation {
        mutation: Some(Change::SetCell(cell)),
    }
}

pub(crate) async fn write(client: &mut BigtableClient<Channel>, keys: &[&str]) {
    let entries = keys.iter().map(|key| mutate_rows_request::Entry {
        row_key: key.as_bytes().to_vec(),
        mutations: vec![set(key, 1000)],
        idempotency: None,
    });
    let request = MutateRowsRequest {
        table_name: TABLE.into(),
        entries: entries.collect(),
        ..MutateRowsRequest::default()
    };
    let mut answers = client.mutate_rows(request).await.unwrap().into_inner();
    let answer = answers
        .message()
        .await
        .unwrap()
        .expect("MutateRows answers with a message");
    assert_eq!(answer.entries.len(), keys.len());
    assert!(
        answer
            .entries
            .iter()
            .all(|entry| entry.status.as_ref().is_some_and(|status| status.code == 0))
    );
}

/// The keys of the rows in the order in which they came.
pub(crate) async fn keys(
    client: &mut BigtableClient<Channel>,
    request: ReadRowsRequest,
) -> Result<Vec<String>, Status> {
    let request = ReadRowsRequest {
        table_name: TABLE.into(),
        ..request
    };
    let mut stream = client.read_rows(request).await?.into_inner();
    let mut keys = Vec::new();
    while let Some(message) = stream.message().await? {
        keys.extend(
            message
                .chunks
                .into_iter()
                .filter(|chunk| !chunk.row_key.is_empty())
                .map(|chunk| String::from_utf8(chunk.row_key).unwrap()),
        );
    }
    Ok(keys)
}
