//! The rules against a scripted server that can do what the emulators can't: tokens, reversed scans, rows that a filter left
//! out, and half rows.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsRequest, ReadRowsResponse,
    bigtable_client::BigtableClient,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
    row_range::{EndKey, StartKey},
};
use googleapis_tonic_google_spanner_v1::google::spanner::v1::{
    ExecuteSqlRequest, PartialResultSet, ReadRequest, spanner_client::SpannerClient,
};
use prost::Message;
use steadfast::{
    BalanceConfig, Pool,
    rules::{
        bigtable::ReadRows,
        spanner::{ExecuteStreamingSql, StreamingRead},
    },
};
use steadfast_testkit::peer::{Answer, Peer, Script, Step};
use steadfast_tests::{lower_layers, soon};
use tonic::Status;

/// A server whose n-th stream gets the steps that this makes of its request, and a pool of three channels.
fn server(steps: impl Fn(usize, &[u8]) -> Vec<Step> + Send + Sync + 'static) -> (Peer, Pool) {
    let (attempts, steps) = (Arc::new(AtomicUsize::new(0)), Arc::new(steps));
    let script = Script::new(move |_| {
        let attempt = attempts.fetch_add(1, Ordering::SeqCst);
        let steps = Arc::clone(&steps);
        Answer::steps([Step::respond(move |body| {
            [vec![Step::headers()], steps(attempt, &body[5..])].concat()
        })])
    });
    let peer = Peer::start(script).unwrap();
    let mut config = lower_layers();
    config.balance = BalanceConfig::fixed(3);
    config.resume.max_attempts = 10;
    let pool = Pool::builder(peer.uri())
        .config(config)
        .without_env()
        .resume(ReadRows)
        .resume(ExecuteStreamingSql)
        .resume(StreamingRead)
        .build()
        .unwrap();
    (peer, pool)
}

fn message(message: &impl Message) -> Step {
    Step::Message(message.encode_to_vec().into())
}

const PARTS: usize = 12;

/// The parts behind this token, of which each that `tokens` names brings one. The stream breaks after so many, if it does.
fn parts(token: &[u8], tokens: fn(usize) -> bool, breaks: Option<usize>) -> Vec<Step> {
    let from = match std::str::from_utf8(token).unwrap() {
        "" => 0,
        token => token.parse::<usize>().unwrap() + 1,
    };
    let until = breaks.map_or(PARTS, |after| PARTS.min(from + after));
    let part = |number: usize| PartialResultSet {
        values: vec![prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(number.to_string())),
        }],
        resume_token: if tokens(number) {
            number.to_string().into_bytes()
        } else {
            Vec::new()
        },
        ..PartialResultSet::default()
    };
    let mut steps: Vec<_> = (from..until).map(|number| message(&part(number))).collect();
    steps.push(match breaks {
        Some(_) => Step::Rst(2),
        None => Step::status(0, ""),
    });
    steps
}

/// What a query, or a read, brings, and how it ends.
async fn results(pool: &Pool, reads: bool) -> (Vec<String>, Result<(), Status>) {
    let mut client = SpannerClient::new(pool.clone());
    let mut came = Vec::new();
    let ended = async {
        let mut stream = match reads {
            true => client.streaming_read(ReadRequest::default()).await?,
            false => {
                client
                    .execute_streaming_sql(ExecuteSqlRequest::default())
                    .await?
            }
        }
        .into_inner();
        while let Some(part) = stream.message().await? {
            for value in part.values {
                let Some(prost_types::value::Kind::StringValue(text)) = value.kind else {
                    panic!("{value:?}")
                };
                came.push(text);
            }
        }
        Ok(())
    };
    let ended = soon("the results", ended).await;
    (came, ended)
}

/// R9: with tokens on all messages a stream goes on wherever it breaks; with one on every third, behind those; without, only
/// before the first message. What can't go on ends with an error that says so, and brings nothing twice.
#[tokio::test]
async fn spanner_goes_on_by_token() {
    type Row = (fn(usize) -> bool, fn(usize) -> bool);
    let rows: [Row; 3] = [
        (|_| true, |_| true),
        (|number| number % 3 == 2, |breaks| breaks % 3 == 0),
        (|_| false, |breaks| breaks == 0),
    ];
    for reads in [false, true] {
        for (tokens, goes_on) in rows {
            for breaks in [0, 1, 2, 3, 4, 6, 11] {
                let (peer, pool) = server(move |attempt, request| {
                    let token = match reads {
                        true => ReadRequest::decode(request).unwrap().resume_token,
                        false => ExecuteSqlRequest::decode(request).unwrap().resume_token,
                    };
                    // The second attempt breaks in the same way.
                    parts(&token, tokens, (attempt < 2).then_some(breaks))
                });
                let (came, ended) = results(&pool, reads).await;
                let whole: Vec<_> = (0..PARTS).map(|it| it.to_string()).collect();
                if goes_on(breaks) {
                    ended.unwrap();
                    assert_eq!(came, whole, "{breaks}");
                    assert_eq!(peer.requests().len(), 3);
                } else {
                    let error = ended.unwrap_err();
                    assert!(
                        error.message().contains("no resume token was given"),
                        "{error:?}"
                    );
                    assert_eq!(came, whole[..breaks], "{breaks}");
                }
            }
        }
    }
}

/// Of a table with the rows 00 to 39, of which those with an odd number are left out by a filter.
fn scan(request: &[u8], attempt: usize) -> Vec<Step> {
    let request = ReadRowsRequest::decode(request).unwrap();
    let range = request
        .rows
        .unwrap_or_default()
        .row_ranges
        .first()
        .cloned()
        .unwrap_or_default();
    let mut rows: Vec<u32> = (0..40)
        .filter(|row| {
            let key = key(*row);
            let after = match &range.start_key {
                Some(StartKey::StartKeyOpen(start)) => key > *start,
                Some(StartKey::StartKeyClosed(start)) => key >= *start,
                None => true,
            };
            let before = match &range.end_key {
                Some(EndKey::EndKeyOpen(end)) => key < *end,
                Some(EndKey::EndKeyClosed(end)) => key <= *end,
                None => true,
            };
            after && before
        })
        .collect();
    if request.reversed {
        rows.reverse();
    }
    let mut steps = Vec::new();
    // Each attempt but the last brings a few, then half a row, and breaks.
    let (mut left, last) = (request.rows_limit, attempt >= 4);
    for (number, row) in rows.into_iter().enumerate() {
        if left == 0 && request.rows_limit > 0 {
            break;
        }
        if !last && number == 9 {
            steps.push(Step::Rst(2));
            return steps;
        }
        if row % 2 == 1 {
            steps.push(message(&ReadRowsResponse {
                last_scanned_row_key: key(row),
                ..ReadRowsResponse::default()
            }));
            continue;
        }
        let half = CellChunk {
            row_key: key(row),
            family_name: Some("f".into()),
            qualifier: Some(b"q".to_vec()),
            value_size: 4,
            value: b"va".to_vec(),
            ..CellChunk::default()
        };
        let rest = CellChunk {
            value: b"lu".to_vec(),
            row_status: Some(RowStatus::CommitRow(true)),
            ..CellChunk::default()
        };
        let chunk = |chunk: CellChunk| ReadRowsResponse {
            chunks: vec![chunk],
            ..ReadRowsResponse::default()
        };
        steps.push(message(&chunk(half)));
        if !last && number == 8 {
            steps.push(Step::Rst(2));
            return steps;
        }
        steps.push(message(&chunk(rest)));
        left -= 1;
    }
    steps.push(Step::status(0, ""));
    steps
}

fn key(row: u32) -> Vec<u8> {
    format!("{row:02}").into_bytes()
}

/// R9: a scan forward and one in reverse, with and without a limit, through half rows and rows that were left out.
#[tokio::test]
async fn bigtable_goes_on_behind_the_last_row() {
    for (reversed, rows_limit) in [(false, 0), (true, 0), (false, 13), (true, 13)] {
        let (peer, pool) = server(|attempt, request| scan(request, attempt));
        let request = ReadRowsRequest {
            reversed,
            rows_limit,
            ..ReadRowsRequest::default()
        };
        let mut client = BigtableClient::new(pool);
        let (mut rows, mut resets, mut value, mut row) = (Vec::new(), 0, Vec::new(), Vec::new());
        let reading = async {
            let mut stream = client.read_rows(request).await?.into_inner();
            while let Some(response) = stream.message().await? {
                for chunk in response.chunks {
                    row.extend(chunk.row_key);
                    value.extend(chunk.value);
                    match chunk.row_status {
                        Some(RowStatus::ResetRow(true)) => {
                            resets += 1;
                            (row, value) = (Vec::new(), Vec::new());
                        }
                        Some(RowStatus::CommitRow(true)) => {
                            assert_eq!(std::mem::take(&mut value), b"valu");
                            rows.push(std::mem::take(&mut row));
                        }
                        _ => {}
                    }
                }
            }
            Ok::<(), Status>(())
        };
        soon("the scan", reading).await.unwrap();
        let mut expected: Vec<_> = (0..40).step_by(2).map(key).collect();
        if reversed {
            expected.reverse();
        }
        if rows_limit > 0 {
            expected.truncate(rows_limit as usize);
        }
        assert_eq!(rows, expected);
        assert!(
            resets > 0 && peer.requests().len() > 3,
            "{resets} rows were undone"
        );
    }
}
