//! The BigTable methods of the embedded server, dispatched by path on tonic's own codec: the published message crate has no server half.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowRequest, MutateRowResponse, MutateRowsRequest, MutateRowsResponse, PingAndWarmRequest,
    PingAndWarmResponse, ReadRowsRequest, ReadRowsResponse, mutate_rows_response,
};
use googleapis_tonic_google_bigtable_v2::google::rpc;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::SLOWER;
use super::incoming::OfConnection;
use super::read::Reader;
use super::table::{Tables, mutate};

/// The one message that answers MutateRows.
type Once<M> = tokio_stream::Iter<std::iter::Once<Result<M, Status>>>;

/// What all connections of one server share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) tables: Tables,
    pub(crate) failing: AtomicBool,
}

/// The service tonic's server runs for each request.
#[derive(Debug, Clone)]
pub(crate) struct Bigtable {
    pub(crate) shared: Arc<Shared>,
}

impl tower::Service<http::Request<Body>> for Bigtable {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if self.shared.failing.load(Ordering::Relaxed) {
            let status = Status::unavailable("this server was told to fail");
            return Box::pin(ready(Ok(status.into_http())));
        }
        let shared = Arc::clone(&self.shared);
        let connection = request.extensions().get::<OfConnection>().cloned();
        Box::pin(async move {
            if let Some(connection) = connection {
                if connection.is_slow() {
                    tokio::time::sleep(SLOWER).await;
                }
                connection.speaks().await;
            }
            Ok(dispatch(shared, request).await)
        })
    }
}

async fn dispatch(shared: Arc<Shared>, request: http::Request<Body>) -> http::Response<Body> {
    match request.uri().path() {
        "/google.bigtable.v2.Bigtable/ReadRows" => {
            let method = service_fn(|request: Request<ReadRowsRequest>| ready(read_rows(&shared, request.get_ref())));
            Grpc::new(ProstCodec::<ReadRowsResponse, ReadRowsRequest>::default()).server_streaming(method, request).await
        }
        "/google.bigtable.v2.Bigtable/MutateRows" => {
            let method = service_fn(|request: Request<MutateRowsRequest>| ready(Ok(mutate_rows(&shared, request.get_ref()))));
            Grpc::new(ProstCodec::<MutateRowsResponse, MutateRowsRequest>::default()).server_streaming(method, request).await
        }
        "/google.bigtable.v2.Bigtable/MutateRow" => {
            let method = service_fn(|request: Request<MutateRowRequest>| ready(mutate_row(&shared, request.get_ref())));
            Grpc::new(ProstCodec::<MutateRowResponse, MutateRowRequest>::default()).unary(method, request).await
        }
        "/google.bigtable.v2.Bigtable/PingAndWarm" => {
            let method = service_fn(|_: Request<PingAndWarmRequest>| ready(Ok::<_, Status>(Response::new(PingAndWarmResponse {}))));
            Grpc::new(ProstCodec::<PingAndWarmResponse, PingAndWarmRequest>::default()).unary(method, request).await
        }
        other => Status::unimplemented(format!("the embedded server has no {other}; it has ReadRows, MutateRow, MutateRows and PingAndWarm")).into_http(),
    }
}

fn read_rows(
    shared: &Shared,
    request: &ReadRowsRequest,
) -> Result<Response<tokio_stream::Iter<Reader>>, Status> {
    let table = shared.tables.existing(&request.table_name)?;
    let reader = Reader::new(table, request)?;
    Ok(Response::new(tokio_stream::iter(reader)))
}

fn mutate_row(
    shared: &Shared,
    request: &MutateRowRequest,
) -> Result<Response<MutateRowResponse>, Status> {
    mutate(
        &shared.tables.for_writing(&request.table_name),
        &request.row_key,
        &request.mutations,
    )?;
    Ok(Response::new(MutateRowResponse {}))
}

/// Each entry succeeds or fails on its own; the answer names them by their index.
fn mutate_rows(shared: &Shared, request: &MutateRowsRequest) -> Response<Once<MutateRowsResponse>> {
    let table = shared.tables.for_writing(&request.table_name);
    let entries = request.entries.iter().zip(0..).map(|(entry, index)| {
        let status = mutate(&table, &entry.row_key, &entry.mutations)
            .err()
            .map_or_else(rpc::Status::default, |status| rpc::Status {
                code: status.code().into(),
                message: status.message().to_owned(),
                ..rpc::Status::default()
            });
        mutate_rows_response::Entry {
            index,
            status: Some(status),
        }
    });
    let answer = MutateRowsResponse {
        entries: entries.collect(),
        ..MutateRowsResponse::default()
    };
    Response::new(tokio_stream::iter(std::iter::once(Ok(answer))))
}
