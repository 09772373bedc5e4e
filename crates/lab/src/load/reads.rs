//! Sends the reads of a plan through a client and keeps the books.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Status, Streaming};

use super::arrivals::{LAZY_PAUSE, LAZY_ROWS, Plan, Read, SCAN_ROWS};
use super::ledger::{Ledger, Summary};
use crate::clock;
use crate::error::{Error, Result};
use crate::rows;

/// How long calls may go on after the last arrival before they count as unfinished; the reads that arrived last would count otherwise.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// Callers in the closed loop that finds out what a plain channel can do.
const CALLERS: usize = 32;

/// A service that a generated client can run on, in as many tasks as there are calls.
pub(crate) trait Transport:
    GrpcService<
        Body,
        ResponseBody: http_body::Body<
            Data = Bytes,
            Error: Into<tonic::codegen::StdError> + Send,
        > + Send
                          + 'static,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<T> Transport for T
where
    T: GrpcService<Body> + Clone + Send + 'static,
    T::Future: Send,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
}

/// Sends every read of the plan at its time. It returns while the open calls go on: the caller ends them by ending the process.
pub(crate) async fn offer<T: Transport>(client: BigtableClient<T>, plan: Plan) -> Summary {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let start = clock::now();
    for arrival in plan.arrivals() {
        let scheduled = start + arrival.at;
        sleep_until(scheduled).await;
        let (client, ledger) = (client.clone(), Arc::clone(&ledger));
        let (request, rows) = match arrival.read {
            Read::Point(row) => (rows::point(row), 1),
            Read::Scan(row) => (rows::scan(row, SCAN_ROWS), SCAN_ROWS),
            Read::LazyScan(row) => {
                tokio::spawn(read_late(client, row, ledger));
                continue;
            }
        };
        let number = books(&ledger).arrive(scheduled);
        tokio::spawn(measured(client, request, rows, number, ledger));
    }
    sleep_until(start + plan.length).await;
    let none_open = async {
        while books(&ledger).open() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // Running out of grace is the finding itself: the calls are counted just below.
    let _ = timeout(GRACE, none_open).await;
    books(&ledger).close(clock::now())
}

/// How many of the plan's reads a second the client can do when callers wait for each answer before they ask again.
pub(crate) async fn capacity<T: Transport>(client: BigtableClient<T>, plan: Plan) -> Result<f64> {
    let end = clock::now() + plan.length;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let client = client.clone();
        // Every caller draws its own reads; the plan's rate only makes sure that they don't run out.
        let plan = Plan {
            seed: plan.seed.wrapping_add(caller as u64),
            length: Duration::MAX,
            ..plan
        };
        callers.spawn(async move {
            let mut done = 0_u32;
            for arrival in plan.arrivals() {
                if clock::now() >= end {
                    break;
                }
                match arrival.read {
                    Read::Point(row) => read(client.clone(), rows::point(row), 1, || {}).await?,
                    Read::Scan(row) | Read::LazyScan(row) => {
                        read(client.clone(), rows::scan(row, SCAN_ROWS), SCAN_ROWS, || {}).await?
                    }
                }
                done += 1;
            }
            Ok::<_, Status>(done)
        });
    }
    let mut done = 0;
    for result in callers.join_all().await {
        done += result.map_err(|status| {
            Error::because(
                "can't measure what a plain channel can do: a read failed with no fault on",
                status,
            )
        })?;
    }
    Ok(f64::from(done) / plan.length.as_secs_f64())
}

fn books(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn measured<T: Transport>(
    client: BigtableClient<T>,
    request: ReadRowsRequest,
    rows: u32,
    number: u64,
    ledger: Arc<Mutex<Ledger>>,
) {
    let result = read(client, request, rows, || {
        books(&ledger).received(number, clock::now());
    })
    .await;
    let now = clock::now();
    match result {
        Ok(()) => books(&ledger).answered(number, now),
        Err(_) => books(&ledger).failed(number, now),
    }
}

async fn read<T: Transport>(
    mut client: BigtableClient<T>,
    request: ReadRowsRequest,
    rows: u32,
    received: impl Fn(),
) -> Result<(), Status> {
    let stream = client.read_rows(request).await?.into_inner();
    received();
    read_all(stream, rows, received).await
}

/// A scan whose caller does something else before it reads. It isn't measured, as it is slow by its own choice, but its errors are counted.
async fn read_late<T: Transport>(
    mut client: BigtableClient<T>,
    row: u32,
    ledger: Arc<Mutex<Ledger>>,
) {
    let late = async {
        let stream = client
            .read_rows(rows::scan(row, LAZY_ROWS))
            .await?
            .into_inner();
        sleep(LAZY_PAUSE).await;
        read_all(stream, LAZY_ROWS, || {}).await
    };
    if late.await.is_err() {
        books(&ledger).failed_unmeasured();
    }
}

/// Reads to the end and checks that all rows came.
async fn read_all(
    mut stream: Streaming<ReadRowsResponse>,
    rows: u32,
    received: impl Fn(),
) -> Result<(), Status> {
    let mut committed = 0;
    while let Some(message) = stream.message().await? {
        received();
        committed += message
            .chunks
            .iter()
            .filter(|chunk| matches!(chunk.row_status, Some(RowStatus::CommitRow(true))))
            .count();
    }
    if committed == rows as usize {
        Ok(())
    } else {
        Err(Status::data_loss(format!(
            "{committed} rows came instead of {rows}"
        )))
    }
}
