//! The latencies: a tonic server on loopback, a connection for each flow, and callers that call again as soon as they
//! have their answer.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use comfy_table::Table;
use hdrhistogram::Histogram;
use serde::Serialize;
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_sparse::{SparseConfig, SparseFlowLayer, Watermark};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
    time::sleep,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, Server},
};

use super::super::{progress, table_of};
use crate::{
    clock::now,
    error::{Error, Result},
};

const PLACES: u32 = 16;
/// Calls that a busy connection keeps outstanding.
const BULK_WINDOW: u32 = 16;
const WINDOWS: std::ops::RangeInclusive<u32> = 1..=8;
const JITTER: f64 = 0.03;
/// Calls of each busy connection, and some more, before anything counts: until they have spent their first credit.
const WARM_UP: u32 = 64 + 16;

/// The disciplines, and the watermark that makes each of them: where everyone is always sparse, all are in one ring.
const DISCIPLINES: [(&str, u32); 3] = [
    ("one-ring", 1_000_000),
    ("exact-zero", 1),
    ("watermark-4", 4),
];

/// One cell; also the shape of a row in the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    discipline: &'static str,
    bulk_flows: u32,
    window: u32,
    p50_ms: f64,
    p99_ms: f64,
    /// The median of a caller alone, one call at a time.
    floor_ms: f64,
    /// The calls of busy connections, of all that ended.
    bulk_share: f64,
    total_per_s: f64,
}

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// How long a call holds its place on average.
    pub(super) work: Duration,
    /// How long each run is, after its warm-up.
    pub(super) length: Duration,
}

/// The disciplines run side by side, each with a server and callers of its own: whatever else the machine does, it
/// does to all of them.
pub(super) async fn run(bulk_flows: &[u32], options: Options) -> Result<Vec<Row>> {
    let bar = progress((bulk_flows.len() * WINDOWS.count()) as u64 + 1);
    bar.set_message("alone");
    let (_, alone, ..) = measure(options, ("alone", 4), 0, 1).await?;
    bar.inc(1);
    let mut rows = Vec::new();
    for &bulk in bulk_flows {
        for window in WINDOWS {
            bar.set_message(format!("K={bulk}, W={window}"));
            let mut runs = JoinSet::new();
            for discipline in DISCIPLINES {
                runs.spawn(measure(options, discipline, bulk, window));
            }
            while let Some(run) = runs.join_next().await {
                let run = run.map_err(|error| Error::because("a run of the bench", error))?;
                let (discipline, victim, busy, length) = run?;
                let total = victim.len() + busy;
                rows.push(Row {
                    discipline,
                    bulk_flows: bulk,
                    window,
                    p50_ms: ms(&victim, 0.5),
                    p99_ms: ms(&victim, 0.99),
                    floor_ms: ms(&alone, 0.5),
                    bulk_share: busy as f64 / total as f64,
                    total_per_s: total as f64 / length.as_secs_f64(),
                });
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn ms(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1000.0
}

/// The discipline, the interactive caller's latencies, the busy callers' calls, and the time in which they ended.
async fn measure(
    options: Options,
    (discipline, watermark): (&'static str, u32),
    bulk: u32,
    window: u32,
) -> Result<(&'static str, Histogram<u64>, u64, Duration)> {
    let (uri, server) = serve(watermark, options.work).await?;
    let load = Arc::new(Load::new());
    let mut callers = JoinSet::new();
    for _ in 0..bulk {
        start(
            &mut callers,
            &load,
            connect(&uri).await?,
            BULK_WINDOW,
            false,
        );
    }
    start(&mut callers, &load, connect(&uri).await?, window, true);
    sleep(options.work * WARM_UP * (bulk + 1) / PLACES).await;
    load.counts.store(true, Ordering::Relaxed);
    let began = now();
    sleep(options.length).await;
    load.counts.store(false, Ordering::Relaxed);
    let took = now() - began;
    callers.shutdown().await;
    server.abort();
    if let Some(error) = load.error() {
        return Err(Error::because("a call of the bench failed", error));
    }
    let bulk = load.bulk.load(Ordering::Relaxed);
    Ok((discipline, load.latencies(), bulk, took))
}

/// What the callers write down.
struct Load {
    counts: AtomicBool,
    bulk: AtomicU64,
    victim: Mutex<Histogram<u64>>,
    error: Mutex<Option<Status>>,
}

impl Load {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 60_000_000, 3);
        Self {
            counts: AtomicBool::new(false),
            bulk: AtomicU64::new(0),
            victim: Mutex::new(latencies.expect("the bounds are in order")),
            error: Mutex::new(None),
        }
    }

    fn latencies(&self) -> Histogram<u64> {
        let victim = self.victim.lock().unwrap_or_else(PoisonError::into_inner);
        victim.clone()
    }

    fn error(&self) -> Option<Status> {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.take()
    }

    fn ended(&self, is_victim: bool, latency: Duration) {
        if !self.counts.load(Ordering::Relaxed) {
            return;
        }
        if is_victim {
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            let mut victim = self.victim.lock().unwrap_or_else(PoisonError::into_inner);
            victim.saturating_record(micros);
        } else {
            self.bulk.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Callers on one connection, as many as it keeps calls outstanding.
fn start(
    callers: &mut JoinSet<()>,
    load: &Arc<Load>,
    channel: Channel,
    window: u32,
    is_victim: bool,
) {
    for _ in 0..window {
        let mut client = GreeterClient::new(channel.clone());
        let load = Arc::clone(load);
        callers.spawn(async move {
            loop {
                let began = now();
                if let Err(status) = client.say_hello(HelloRequest::default()).await {
                    let mut error = load.error.lock().unwrap_or_else(PoisonError::into_inner);
                    error.get_or_insert(status);
                    return;
                }
                load.ended(is_victim, now() - began);
            }
        });
    }
}

async fn connect(uri: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(uri.to_owned());
    let endpoint = endpoint.map_err(|error| Error::because("the bench server's URI", error))?;
    let channel = endpoint.connect().await;
    channel.map_err(|error| Error::because(format!("can't connect to {uri}"), error))
}

/// A server whose calls wait for places, on a port of its own.
async fn serve(watermark: u32, work: Duration) -> Result<(String, JoinHandle<()>)> {
    let config = SparseConfig {
        places: PLACES,
        watermark: Watermark::Calls(watermark),
        ..SparseConfig::default()
    };
    let layer = SparseFlowLayer::server(config);
    let layer = layer.map_err(|error| Error::because("the bench's own settings", error))?;
    let bind = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    };
    let (address, listener) = bind
        .await
        .map_err(|error| Error::because("can't listen on a port of 127.0.0.1", error))?;
    let router = Server::builder()
        .layer(layer)
        .add_service(GreeterServer::new(Slow(work)));
    let server = tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        if let Err(error) = router.serve_with_incoming(incoming).await {
            eprintln!("the bench server ended: {error}");
        }
    });
    Ok((format!("http://{address}"), server))
}

/// It works as long as this, more or less.
struct Slow(Duration);

#[tonic::async_trait]
impl Greeter for Slow {
    async fn say_hello(
        &self,
        _request: Request<HelloRequest>,
    ) -> std::result::Result<Response<HelloReply>, Status> {
        sleep(self.0.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))).await;
        Ok(Response::new(HelloReply::default()))
    }
}

/// The rows for people: a line for each discipline, a column for each window, median and 99th percentile.
pub(super) fn table(rows: &[Row], bulk: u32) -> Table {
    let heads = WINDOWS.map(|window| format!("W={window}"));
    let mut table = table_of(std::iter::once(format!("K={bulk}, ms")).chain(heads));
    for (discipline, _) in DISCIPLINES {
        let own = rows.iter().filter(|row| row.discipline == discipline);
        let own = own.filter(|row| row.bulk_flows == bulk);
        let cells = own.map(|row| format!("{:.1} ({:.0})", row.p50_ms, row.p99_ms));
        table.add_row(std::iter::once(discipline.to_owned()).chain(cells));
    }
    if let Some(row) = rows.first() {
        table.add_row(["alone".to_owned(), format!("{:.1}", row.floor_ms)]);
    }
    table
}
