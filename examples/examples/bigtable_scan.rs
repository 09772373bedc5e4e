//! A BigTable scan that doesn't notice that its connections are cut and its server is restarted.
//!
//! A server with BigTable's protocol runs in this process, behind a proxy that cuts the connections of the scan again and
//! again; half-way the server goes away and another one with the same rows takes its place.
//!
//! ```sh
//! cargo run -p steadfast-examples --example bigtable_scan
//! ```

use std::{error::Error, time::Duration};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, bigtable_client::BigtableClient, read_rows_response::cell_chunk::RowStatus,
};
use steadfast::{AttemptsPer, Config, Pool, rules::bigtable::ReadRows};
use steadfast_lab::{
    rows::{Rows, TABLE, key},
    server::Embedded,
};
use steadfast_testkit::proxy::{FaultProxy, Which};
use tokio::time::sleep;

const ROWS: u32 = 5_000;

async fn server() -> Result<Embedded, Box<dyn Error>> {
    let server = Embedded::start().await?;
    let rows = Rows {
        count: ROWS,
        seed: 1,
    };
    for request in rows.requests() {
        server.write(&request)?;
    }
    Ok(server)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (first, second) = (server().await?, server().await?);
    let proxy = FaultProxy::start(first.address())?;
    // A slow line, so that the scan takes a while.
    proxy.throttle(Which::All, 2 << 20);

    let mut config = Config::default();
    // As long as rows come, it is worth another attempt.
    config.resume.attempts_per = AttemptsPer::Progress;
    // All connections are cut at once: an attempt waits for a new one.
    config.balance.wait_for_ready = Some(Duration::from_secs(10));
    let pool = Pool::builder(proxy.uri())
        .config(config)
        .resume(ReadRows)
        .build()?;

    let chaos = async {
        for cut in 1.. {
            sleep(Duration::from_millis(500)).await;
            if cut == 3 {
                first.go_away();
                proxy.set_upstream(second.address());
                println!("the server was replaced");
            }
            proxy.cut(Which::All);
        }
    };
    let scan = async {
        let request = ReadRowsRequest {
            table_name: TABLE.to_owned(),
            ..ReadRowsRequest::default()
        };
        let mut client = BigtableClient::new(pool.clone());
        let mut replies = client.read_rows(request).await?.into_inner();
        let (mut row, mut rows) = (Vec::new(), 0);
        while let Some(reply) = replies.message().await? {
            for chunk in reply.chunks {
                match chunk.row_status {
                    // What came of the row is void: it comes again.
                    Some(RowStatus::ResetRow(true)) => row.clear(),
                    status => {
                        row.extend_from_slice(&chunk.row_key);
                        if status == Some(RowStatus::CommitRow(true)) {
                            assert_eq!(row, key(rows), "each row once, in order");
                            row.clear();
                            rows += 1;
                        }
                    }
                }
            }
        }
        Ok::<u32, Box<dyn Error>>(rows)
    };
    let rows = tokio::select! {
        rows = scan => rows?,
        () = chaos => unreachable!("it never ends"),
    };
    let counts = &pool.resume().snapshot().rules[0];
    println!(
        "{rows} rows in one scan, which went on {} times",
        counts.resumed
    );
    assert_eq!(rows, ROWS);
    Ok(())
}
