//! `bench penalty`: one of four servers fails at once, the others take 5 ms. How much of the load does the
//! failing one attract, and how many calls a second succeed?
//!
//! A closed loop: each caller calls again as soon as it has its answer, so a server that fails at once
//! draws callers in, the more the faster it fails. The contenders take turns at each number of callers.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use comfy_table::Table;
use serde::{Deserialize, Serialize};
use steadfast::{BalanceConfig, BoxError, Config, PenaltyConfig, PenaltyMode, Places, Pool};
use steadfast_proto::{HelloRequest, greeter_client::GreeterClient};
use tokio::{task::JoinSet, time::sleep};
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::Service;

use super::{median, progress, servers::Servers, table_of};
use crate::{
    clock::now,
    error::{Error, Result},
};

/// Callers, each with one call at a time.
const CALLERS: [usize; 5] = [8, 32, 64, 128, 512];
/// Load before each measurement: connections are up, and the first failures have happened.
const WARM_UP: Duration = Duration::from_millis(300);

/// How the callers connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// tonic's own balance.
    TonicBalance,
    /// Our pool without a penalty.
    None,
    /// A flat penalty of 10 requests, as BigTable's Go client has it.
    #[serde(rename = "flat-10")]
    Flat10,
    /// A flat penalty of 25 requests.
    #[serde(rename = "flat-25")]
    Flat25,
    /// The failing channel is held in reserve.
    Reserve,
    /// Our pool over the three good servers only: as good as it gets.
    ThreeGood,
}

const CONTENDERS: [Contender; 6] = [
    Contender::TonicBalance,
    Contender::None,
    Contender::Flat10,
    Contender::Flat25,
    Contender::Reserve,
    Contender::ThreeGood,
];

/// One contender at one number of callers; also the shape of a row in the JSON file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contender: Contender,
    pub(crate) callers: usize,
    /// Calls that reached the failing server, of all calls. Counted by the servers.
    pub(crate) bad_share: f64,
    /// Calls that succeeded, a second.
    pub(crate) ok_rps: f64,
}

/// Measures everything. Each figure is the median of `runs` runs of `seconds`, in turn.
pub(crate) async fn run(program: &Path, seconds: f64, runs: usize) -> Result<Vec<Row>> {
    let mut servers = Servers::start(program).await?;
    let steps = (CALLERS.len() * CONTENDERS.len() * runs) as u64;
    let bar = progress(steps);
    let mut rows = Vec::new();
    for callers in CALLERS {
        let mut measured = vec![Vec::new(); CONTENDERS.len()];
        for _ in 0..runs {
            for (contender, measured) in CONTENDERS.into_iter().zip(&mut measured) {
                bar.set_message(format!("{contender}, {callers} callers"));
                measured.push(measure(&mut servers, contender, callers, seconds).await?);
                bar.inc(1);
            }
        }
        rows.extend(
            CONTENDERS
                .into_iter()
                .zip(measured)
                .map(|(contender, measured)| Row {
                    contender,
                    callers,
                    bad_share: median(measured.iter().map(|(share, _)| *share).collect()),
                    ok_rps: median(measured.iter().map(|(_, rate)| *rate).collect()),
                }),
        );
    }
    bar.finish_and_clear();
    servers.end().await;
    Ok(rows)
}

/// The failing server's share, and successes a second.
async fn measure(
    servers: &mut Servers,
    contender: Contender,
    callers: usize,
    seconds: f64,
) -> Result<(f64, f64)> {
    let load = match contender {
        Contender::TonicBalance => {
            let endpoints = servers.uris.iter().cloned().map(Endpoint::from_shared);
            let endpoints: std::result::Result<Vec<_>, _> = endpoints.collect();
            let endpoints =
                endpoints.map_err(|error| Error::because("a bench server's URI", error))?;
            Load::start(&Channel::balance_list(endpoints.into_iter()), callers)
        }
        _ => Load::start(&pool(contender, &servers.uris)?, callers),
    };
    sleep(WARM_UP).await;
    let (calls, ok, began) = (servers.calls().await?, load.ok(), now());
    sleep(Duration::from_secs_f64(seconds)).await;
    let (calls_after, ok_after, ended) = (servers.calls().await?, load.ok(), now());
    load.end().await;
    let calls: Vec<u64> = calls_after
        .iter()
        .zip(&calls)
        .map(|(after, before)| after - before)
        .collect();
    let all: u64 = calls.iter().sum();
    let bad_share = calls[0] as f64 / all.max(1) as f64;
    Ok((
        bad_share,
        (ok_after - ok) as f64 / (ended - began).as_secs_f64(),
    ))
}

fn pool(contender: Contender, uris: &[String]) -> Result<Pool> {
    let uris = if contender == Contender::ThreeGood {
        &uris[1..]
    } else {
        uris
    };
    let mut penalty = PenaltyConfig {
        enabled: contender != Contender::None,
        ..PenaltyConfig::default()
    };
    penalty.mode = PenaltyMode::Flat;
    match contender {
        Contender::Flat10 => penalty.weight = Some(10),
        Contender::Flat25 => penalty.weight = Some(25),
        Contender::Reserve => penalty.mode = PenaltyMode::Reserve,
        _ => {}
    }
    let config = Config {
        balance: BalanceConfig::fixed(uris.len()),
        penalty,
        ..Config::default()
    };
    let places = Places::list(uris.iter().cloned());
    let builder = Pool::builder(uris[0].clone()).places(places).config(config);
    builder
        .build()
        .map_err(|error| Error::because("can't build the pool", error))
}

/// Callers at work.
struct Load {
    ok: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    fn start<S, B>(service: &S, callers: usize) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let (ok, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let mut client = GreeterClient::new(service.clone());
            let (ok, stop) = (Arc::clone(&ok), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if client.say_hello(HelloRequest::default()).await.is_ok() {
                        ok.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        Self {
            ok,
            stop,
            callers: tasks,
        }
    }

    fn ok(&self) -> u64 {
        self.ok.load(Ordering::Relaxed)
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.callers.join_all().await;
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TonicBalance => "tonic-balance",
            Self::None => "none",
            Self::Flat10 => "flat-10",
            Self::Flat25 => "flat-25",
            Self::Reserve => "reserve",
            Self::ThreeGood => "three-good",
        })
    }
}

/// The rows for people: a line per contender, two columns per number of callers.
pub(crate) fn table(rows: &[Row]) -> Table {
    let heads = CALLERS
        .iter()
        .flat_map(|callers| [format!("{callers}: bad"), "ok/s".to_owned()]);
    let mut table = table_of(std::iter::once("callers".to_owned()).chain(heads));
    for contender in CONTENDERS {
        let own = rows.iter().filter(|row| row.contender == contender);
        let cells = own.flat_map(|row| {
            [
                format!("{:.2} %", row.bad_share * 100.0),
                format!("{:.0}", row.ok_rps),
            ]
        });
        table.add_row(std::iter::once(contender.to_string()).chain(cells));
    }
    table
}
