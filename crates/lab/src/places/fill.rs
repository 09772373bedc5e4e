//! Fills a server over the network: creates the table through BigTable's admin API, and writes the rows.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::error::{Error, Result};
use crate::rows::{FAMILY, INSTANCE, Rows, TABLE_ID};

/// The few messages of `google.bigtable.admin.v2` that creating a table needs, with the field numbers of its published definition.
mod admin {
    use std::collections::HashMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct CreateTableRequest {
        #[prost(string, tag = "1")]
        pub(super) parent: String,
        #[prost(string, tag = "2")]
        pub(super) table_id: String,
        #[prost(message, optional, tag = "3")]
        pub(super) table: Option<Table>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Table {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(map = "string, message", tag = "3")]
        pub(super) column_families: HashMap<String, ColumnFamily>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ColumnFamily {}
}

/// Creates the table unless it is there, and writes all rows.
pub(crate) async fn fill(address: &str, rows: Rows) -> Result<()> {
    let failed = |error| {
        Error::because(
            format!("can't connect to the server at {address}; is it running, without TLS?"),
            error,
        )
    };
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(failed)?;
    let channel = endpoint.connect().await.map_err(failed)?;
    match create_table(channel.clone()).await {
        Ok(()) => {}
        // Unimplemented: a server without an admin half, such as the lab's own, has its tables made by the first write.
        Err(status) if matches!(status.code(), Code::AlreadyExists | Code::Unimplemented) => {}
        Err(status) => {
            return Err(Error::because(
                format!("the server at {address} didn't create the table {TABLE_ID} in {INSTANCE}"),
                status,
            ));
        }
    }
    write(channel, rows).await.map_err(|status| {
        Error::because(
            format!("the server at {address} didn't take the rows"),
            status,
        )
    })
}

async fn create_table(channel: Channel) -> Result<(), Status> {
    let families = [(FAMILY.to_owned(), admin::ColumnFamily {})].into();
    let table = admin::Table {
        column_families: families,
        ..admin::Table::default()
    };
    let request = admin::CreateTableRequest {
        parent: INSTANCE.to_owned(),
        table_id: TABLE_ID.to_owned(),
        table: Some(table),
    };
    let mut grpc = Grpc::new(channel);
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    let path =
        PathAndQuery::from_static("/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable");
    let codec = ProstCodec::<admin::CreateTableRequest, admin::Table>::default();
    grpc.unary(Request::new(request), path, codec)
        .await
        .map(drop)
}

async fn write(channel: Channel, rows: Rows) -> Result<(), Status> {
    let mut client = BigtableClient::new(channel);
    for request in rows.requests() {
        let mut answers = client.mutate_rows(request).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            let refused = answer
                .entries
                .into_iter()
                .filter_map(|entry| entry.status)
                .find(|status| status.code != 0);
            if let Some(refused) = refused {
                return Err(Status::new(Code::from_i32(refused.code), refused.message));
            }
        }
    }
    Ok(())
}
