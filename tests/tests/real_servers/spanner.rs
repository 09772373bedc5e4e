//! Spanner's emulator, which sends no tokens: what breaks before the first message is resumed, what breaks later ends
//! with an error that says why.

use googleapis_tonic_google_spanner_v1::google::spanner::v1::{
    CommitRequest, CreateSessionRequest, ExecuteSqlRequest, Mutation, PartialResultSet,
    TransactionOptions,
    commit_request::Transaction,
    mutation::{Operation, Write},
    spanner_client::SpannerClient,
    transaction_options::{Mode, ReadWrite},
};
use prost_types::{ListValue, Value, value::Kind};
use steadfast::{Pool, rules::spanner::ExecuteStreamingSql};
use steadfast_core::now;
use steadfast_testkit::proxy::FaultProxy;
use steadfast_tests::{
    services::{self, Service},
    skip,
};
use tokio::task::JoinSet;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use super::{TIME, chaos::inflict, config, resumed, unary};

const PROJECT: &str = "projects/p";
const INSTANCE: &str = "projects/p/instances/in";
const DATABASE: &str = "projects/p/instances/in/databases/db";
const ROWS: usize = 10_000;
const QUERIES: usize = 8;

/// What of the admin APIs a database needs; the published crate has the data API only.
mod admin {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CreateInstance {
        #[prost(string, tag = "1")]
        pub(crate) parent: String,
        #[prost(string, tag = "2")]
        pub(crate) instance_id: String,
        #[prost(message, optional, tag = "3")]
        pub(crate) instance: Option<Instance>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Instance {
        #[prost(string, tag = "2")]
        pub(crate) config: String,
        #[prost(string, tag = "3")]
        pub(crate) display_name: String,
        #[prost(int32, tag = "5")]
        pub(crate) node_count: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CreateDatabase {
        #[prost(string, tag = "1")]
        pub(crate) parent: String,
        #[prost(string, tag = "2")]
        pub(crate) create_statement: String,
        #[prost(string, repeated, tag = "3")]
        pub(crate) extra_statements: Vec<String>,
    }

    /// `google.longrunning.Operation`: the emulator's are done at once.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Operation {}
}

fn text(text: impl Into<String>) -> Value {
    Value {
        kind: Some(Kind::StringValue(text.into())),
    }
}

fn value(row: usize) -> String {
    format!("value of row {row} ").repeat(1 + row % 20)
}

/// A database with a table of all rows, made past the proxy; the session that reads it.
async fn fill(emulator: &Service) -> String {
    let endpoint = Endpoint::from_shared(emulator.uri()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let instance = admin::Instance {
        config: "projects/p/instanceConfigs/emulator-config".to_owned(),
        display_name: "in".to_owned(),
        node_count: 1,
    };
    let create = admin::CreateInstance {
        parent: PROJECT.to_owned(),
        instance_id: "in".to_owned(),
        instance: Some(instance),
    };
    let path = "/google.spanner.admin.instance.v1.InstanceAdmin/CreateInstance";
    let _: admin::Operation = unary(channel.clone(), path, create).await.unwrap();
    let table = "CREATE TABLE entries (id INT64 NOT NULL, value STRING(MAX)) PRIMARY KEY (id)";
    let create = admin::CreateDatabase {
        parent: INSTANCE.to_owned(),
        create_statement: "CREATE DATABASE db".to_owned(),
        extra_statements: vec![table.to_owned()],
    };
    let path = "/google.spanner.admin.database.v1.DatabaseAdmin/CreateDatabase";
    let _: admin::Operation = unary(channel.clone(), path, create).await.unwrap();
    let mut client = SpannerClient::new(channel);
    let session = session(&mut client).await;
    for first in (0..ROWS).step_by(1_000) {
        let row = |row: usize| ListValue {
            values: vec![text(row.to_string()), text(value(row))],
        };
        let write = Write {
            table: "entries".to_owned(),
            columns: vec!["id".to_owned(), "value".to_owned()],
            values: (first..first + 1_000).map(row).collect(),
        };
        let once = TransactionOptions {
            mode: Some(Mode::ReadWrite(ReadWrite::default())),
            ..TransactionOptions::default()
        };
        let commit = CommitRequest {
            session: session.clone(),
            mutations: vec![Mutation {
                operation: Some(Operation::Insert(write)),
            }],
            transaction: Some(Transaction::SingleUseTransaction(once)),
            ..CommitRequest::default()
        };
        client.commit(commit).await.unwrap();
    }
    session
}

async fn session(client: &mut SpannerClient<Channel>) -> String {
    let request = CreateSessionRequest {
        database: DATABASE.to_owned(),
        ..CreateSessionRequest::default()
    };
    client
        .create_session(request)
        .await
        .unwrap()
        .into_inner()
        .name
}

/// The values of a result, of which one may lie in several messages.
#[derive(Default)]
struct Values {
    all: Vec<String>,
    /// Whether the last one goes on.
    open: bool,
}

impl Values {
    fn take(&mut self, part: PartialResultSet) {
        for value in part.values {
            let Some(Kind::StringValue(text)) = value.kind else {
                panic!("{value:?} is no text")
            };
            match (std::mem::take(&mut self.open), self.all.last_mut()) {
                (true, Some(last)) => last.push_str(&text),
                _ => self.all.push(text),
            }
        }
        self.open = part.chunked_value;
    }

    /// How many rows there are: each once, in order, and right.
    fn rows(&self) -> usize {
        for (row, values) in self.all.chunks_exact(2).enumerate() {
            assert_eq!(values[0], row.to_string());
            let whole = (row + 1) * 2 < self.all.len() || !self.open;
            if whole {
                assert_eq!(values[1], value(row));
            }
        }
        self.all.len() / 2
    }
}

/// One query: what came, and how it ended.
async fn query(pool: Pool, session: String) -> (Values, Result<(), Status>) {
    let request = ExecuteSqlRequest {
        session,
        sql: "SELECT id, value FROM entries ORDER BY id".to_owned(),
        ..ExecuteSqlRequest::default()
    };
    let mut values = Values::default();
    let mut client = SpannerClient::new(pool);
    let ended = async {
        let mut parts = client.execute_streaming_sql(request).await?.into_inner();
        while let Some(part) = parts.message().await? {
            values.take(part);
        }
        Ok(())
    };
    let ended = ended.await;
    (values, ended)
}

/// R9: each query that ends with OK is whole; one that doesn't had begun, says that no token was given, and has each row
/// at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_for_a_minute() {
    let Some(program) = services::spanner() else {
        let why = "there is no emulator_main on PATH or in the Cloud SDK's folders";
        return skip(
            "spanner",
            "queries of the Spanner emulator behind faults",
            why,
        );
    };
    let emulator = Service::start_spanner(program).await;
    let session = fill(&emulator).await;
    let proxy = FaultProxy::start(emulator.addr()).unwrap();
    let pool = Pool::builder(proxy.uri())
        .config(config())
        .without_env()
        .resume(ExecuteStreamingSql)
        .build()
        .unwrap();
    pool.warm(6).await.unwrap();
    let (values, ended) = query(pool.clone(), session.clone()).await;
    ended.unwrap();
    assert_eq!(values.rows(), ROWS);
    let end = now() + TIME;
    let mut queries = JoinSet::new();
    for _ in 0..QUERIES {
        let (pool, session) = (pool.clone(), session.clone());
        queries.spawn(async move {
            let (mut whole, mut cut) = (0, 0);
            while now() < end {
                let (values, ended) = query(pool.clone(), session.clone()).await;
                match ended {
                    Ok(()) => {
                        assert_eq!(values.rows(), ROWS);
                        whole += 1;
                    }
                    Err(error) => {
                        let text = error.message();
                        assert!(text.contains("no resume token was given"), "{error:?}");
                        assert!(!values.all.is_empty() && values.rows() <= ROWS);
                        cut += 1;
                    }
                }
            }
            (whole, cut)
        });
    }
    inflict(&proxy, 2, TIME).await;
    let (mut whole, mut cut) = (0, 0);
    while let Some(done) = queries.join_next().await {
        let done = done.expect("no query was wrong");
        (whole, cut) = (whole + done.0, cut + done.1);
    }
    println!("{whole} queries whole, {cut} cut after their first message");
    assert!(whole >= QUERIES && cut > 0 && resumed(&pool) > 0);
}
