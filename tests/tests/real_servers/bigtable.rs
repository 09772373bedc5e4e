//! BigTable: scans of 10,000 rows, 64 at once.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, bigtable_client::BigtableClient, read_rows_response::cell_chunk::RowStatus,
};
use steadfast::{
    Pool,
    rules::bigtable::{PingAndWarm, ReadRows},
};
use steadfast_core::now;
use steadfast_testkit::proxy::FaultProxy;
use steadfast_tests::{
    bigtable::{INSTANCE, TABLE, create_table, key, value, write},
    services::{self, Service},
    skip,
};
use tokio::task::JoinSet;
use tonic::{Status, transport::Endpoint};

use super::{TIME, chaos::inflict, config, resumed};

const ROWS: usize = 10_000;
const SCANS: usize = 64;

/// A table with all rows, written past the proxy.
async fn fill(emulator: &Service) {
    let endpoint = Endpoint::from_shared(emulator.uri()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    create_table(channel.clone()).await.unwrap();
    for first in (0..ROWS).step_by(1_000) {
        let client = BigtableClient::new(channel.clone());
        write(client, first..first + 1_000).await.unwrap();
    }
}

/// One scan: each row must come once, in order, and be right.
async fn scan(pool: Pool) -> Result<(), Status> {
    let request = ReadRowsRequest {
        table_name: TABLE.to_owned(),
        ..ReadRowsRequest::default()
    };
    let mut client = BigtableClient::new(pool);
    let mut replies = client.read_rows(request).await?.into_inner();
    let (mut rows, mut begun, mut cell) = (0, Vec::new(), Vec::new());
    while let Some(reply) = replies.message().await? {
        for chunk in reply.chunks {
            if let Some(RowStatus::ResetRow(true)) = chunk.row_status {
                (begun, cell) = (Vec::new(), Vec::new());
                continue;
            }
            begun.extend_from_slice(&chunk.row_key);
            cell.extend_from_slice(&chunk.value);
            if let Some(RowStatus::CommitRow(true)) = chunk.row_status {
                assert_eq!(std::mem::take(&mut begun), key(rows));
                assert_eq!(std::mem::take(&mut cell), value(rows));
                rows += 1;
            }
        }
    }
    assert_eq!(rows, ROWS, "a scan that ends with OK is whole");
    Ok(())
}

/// R9, R4: nothing is lost, nothing comes twice, and no scan fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_for_a_minute() {
    let Some(program) = services::bigtable() else {
        let why = "there is no cbtemulator on PATH or in the Cloud SDK's folders";
        return skip(
            "bigtable",
            "scans of the BigTable emulator behind faults",
            why,
        );
    };
    let emulator = Service::start_bigtable(program).await;
    fill(&emulator).await;
    let proxy = FaultProxy::start(emulator.addr()).unwrap();
    let pool = Pool::builder(proxy.uri())
        .config(config())
        .without_env()
        .probe(PingAndWarm::new(INSTANCE))
        .resume(ReadRows)
        .build()
        .unwrap();
    pool.warm(6).await.unwrap();
    let end = now() + TIME;
    let mut scans = JoinSet::new();
    for _ in 0..SCANS {
        let pool = pool.clone();
        scans.spawn(async move {
            let mut whole = 0;
            while now() < end {
                scan(pool.clone()).await.unwrap();
                whole += 1;
            }
            whole
        });
    }
    inflict(&proxy, 1, TIME).await;
    let mut whole = 0;
    while let Some(done) = scans.join_next().await {
        whole += done.expect("no scan failed");
    }
    println!("{whole} scans of {ROWS} rows");
    assert!(whole >= SCANS && resumed(&pool) > 20);
    assert_eq!(pool.snapshot().in_flight(), 0);
}
