//! Google's BigTable emulator: rows written with our client come back right.

use std::{collections::BTreeMap, sync::Arc};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, RowRange, RowSet,
    bigtable_client::BigtableClient,
    read_rows_response::cell_chunk::RowStatus,
    row_range::{EndKey, StartKey},
};
use steadfast::{BoxError, Pool};
use steadfast_tests::{
    bigtable::{INSTANCE, TABLE, create_table, key, value, write},
    services::{self, Service},
    skip, soon,
};
use tokio::{sync::Semaphore, task::JoinSet};

const ROWS: usize = 10_000;
const CALLERS: usize = 256;

/// The rows of one read: a row counts when it is committed.
async fn read(
    mut client: BigtableClient<Pool>,
    rows: RowSet,
    limit: i64,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, BoxError> {
    let request = ReadRowsRequest {
        table_name: TABLE.to_owned(),
        rows: Some(rows),
        rows_limit: limit,
        ..ReadRowsRequest::default()
    };
    let mut replies = client.read_rows(request).await?.into_inner();
    let (mut committed, mut row, mut cell) = (BTreeMap::new(), Vec::new(), Vec::new());
    while let Some(reply) = replies.message().await? {
        for chunk in reply.chunks {
            if !chunk.row_key.is_empty() {
                row = chunk.row_key.to_vec();
            }
            cell.extend_from_slice(&chunk.value);
            if let Some(RowStatus::CommitRow(true)) = chunk.row_status {
                let old = committed.insert(std::mem::take(&mut row), std::mem::take(&mut cell));
                assert!(old.is_none(), "a row came twice");
            }
        }
    }
    Ok(committed)
}

fn range(from: usize, to: usize) -> RowSet {
    RowSet {
        row_ranges: vec![RowRange {
            start_key: Some(StartKey::StartKeyClosed(key(from))),
            end_key: Some(EndKey::EndKeyOpen(key(to))),
        }],
        ..RowSet::default()
    }
}

fn expected(rows: impl IntoIterator<Item = usize>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows.into_iter().map(|n| (key(n), value(n))).collect()
}

/// The whole way, with the real emulator: 10,000 rows written, then read back by point, by range and by
/// scan, 256 callers at once, every row right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_rows() {
    let Some(program) = services::bigtable() else {
        let why = "there is no cbtemulator on PATH or in the Cloud SDK's folders";
        return skip("bigtable", "reading rows from the BigTable emulator", why);
    };
    let emulator = Service::start_bigtable(program).await;
    let pool = Pool::bigtable(emulator.uri(), INSTANCE).unwrap();
    soon("the table", create_table(pool.clone())).await.unwrap();
    let client = BigtableClient::new(pool.clone());

    let mut writes = JoinSet::new();
    for first in (0..ROWS).step_by(500) {
        writes.spawn(write(client.clone(), first..first + 500));
    }
    while let Some(done) = soon("a write", writes.join_next()).await {
        done.unwrap().unwrap();
    }

    let callers = Arc::new(Semaphore::new(CALLERS));
    let mut reads = JoinSet::new();
    for n in 0..ROWS {
        let (client, callers) = (client.clone(), Arc::clone(&callers));
        reads.spawn(async move {
            let _caller = callers.acquire().await.unwrap();
            let point = RowSet {
                row_keys: vec![key(n)],
                ..RowSet::default()
            };
            assert_eq!(read(client.clone(), point, 0).await.unwrap(), expected([n]));
            if n % 50 == 0 {
                let rows = read(client, range(n, n + 120), 0).await.unwrap();
                assert_eq!(rows, expected(n..ROWS.min(n + 120)));
            }
        });
    }
    for _ in 0..4 {
        let client = client.clone();
        reads.spawn(async move {
            let scan = read(client, RowSet::default(), 0).await.unwrap();
            assert_eq!(scan, expected(0..ROWS));
        });
    }
    while let Some(done) = soon("a read", reads.join_next()).await {
        done.unwrap();
    }
    let limited = soon("a limited read", read(client.clone(), RowSet::default(), 7))
        .await
        .unwrap();
    assert_eq!(limited, expected(0..7));
    let missing = RowSet {
        row_keys: vec![b"nowhere".to_vec()],
        ..RowSet::default()
    };
    assert!(
        soon("a missing row", read(client, missing, 0))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(pool.snapshot().in_flight(), 0);
}
