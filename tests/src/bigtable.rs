//! A table of BigTable's, whichever server has it: numbered rows, and their values.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowsRequest, Mutation,
    bigtable_client::BigtableClient,
    mutate_rows_request::Entry,
    mutation::{self, SetCell},
};
use prost::Message;
use steadfast::BoxError;
use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
};

/// The instance's full name.
pub const INSTANCE: &str = "projects/p/instances/i";
/// The table's.
pub const TABLE: &str = "projects/p/instances/i/tables/rows";

/// The two messages of the admin API that a table needs; the published crate has the data API only.
#[derive(Clone, PartialEq, Message)]
struct CreateTable {
    #[prost(string, tag = "1")]
    parent: String,
    #[prost(string, tag = "2")]
    table_id: String,
    #[prost(message, optional, tag = "3")]
    table: Option<Table>,
}

#[derive(Clone, PartialEq, Message)]
struct Table {
    #[prost(map = "string, message", tag = "3")]
    families: HashMap<String, Family>,
}

#[derive(Clone, PartialEq, Message)]
struct Family {}

/// A row's key.
#[must_use]
pub fn key(row: usize) -> Vec<u8> {
    format!("row-{row:05}").into_bytes()
}

/// Its value.
#[must_use]
pub fn value(row: usize) -> Vec<u8> {
    let value = format!("value of row {row} ");
    value.repeat(1 + row % 20).into_bytes()
}

/// One call of a method that has no generated client here.
///
/// # Errors
/// What the call ended with.
pub async fn unary<S, Q, A>(service: S, path: &'static str, request: Q) -> Result<A, Status>
where
    S: GrpcService<Body>,
    S::Error: Into<BoxError>,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(service);
    let ready = client.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let path = http::uri::PathAndQuery::from_static(path);
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let answer = client.unary(Request::new(request), path, codec).await?;
    Ok(answer.into_inner())
}

/// Makes the table, with the family `f`.
///
/// # Errors
/// What the call ended with.
pub async fn create_table<S>(service: S) -> Result<(), Status>
where
    S: GrpcService<Body>,
    S::Error: Into<BoxError>,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    let families = [("f".to_owned(), Family {})].into();
    let create = CreateTable {
        parent: INSTANCE.to_owned(),
        table_id: "rows".to_owned(),
        table: Some(Table { families }),
    };
    let path = "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable";
    unary::<_, _, Table>(service, path, create).await.map(drop)
}

/// Writes these rows.
///
/// # Errors
/// What the call, or one of its rows, ended with.
pub async fn write<S>(mut client: BigtableClient<S>, rows: Range<usize>) -> Result<(), Status>
where
    S: GrpcService<Body>,
    S::Error: Into<BoxError>,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    let entry = |row| Entry {
        row_key: key(row),
        mutations: vec![Mutation {
            mutation: Some(mutation::Mutation::SetCell(SetCell {
                family_name: "f".to_owned(),
                column_qualifier: b"q".to_vec(),
                timestamp_micros: 1_000,
                value: value(row),
            })),
        }],
        ..Entry::default()
    };
    let request = MutateRowsRequest {
        table_name: TABLE.to_owned(),
        entries: rows.map(entry).collect(),
        ..MutateRowsRequest::default()
    };
    let mut replies = client.mutate_rows(request).await?.into_inner();
    while let Some(reply) = replies.message().await? {
        for entry in reply.entries {
            let status = entry.status.unwrap_or_default();
            if status.code != 0 {
                return Err(Status::new(status.code.into(), status.message));
            }
        }
    }
    Ok(())
}
