//! One of four servers frozen, without time-outs: who gets stuck, and who goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use steadfast::{BalanceConfig, BoxError, Config, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::proxy::{FaultProxy, Which};
use steadfast_tests::{echo::EchoProcess, soon};
use tokio::{sync::Notify, task::JoinSet};
use tonic::transport::{Channel, Endpoint};
use tower::Service;

/// What callers have done so far.
#[derive(Default)]
struct Progress {
    /// Calls that each caller has finished.
    finished: Vec<AtomicUsize>,
    changed: Notify,
}

impl Progress {
    fn of(callers: usize) -> Arc<Self> {
        Arc::new(Self {
            finished: (0..callers).map(|_| AtomicUsize::new(0)).collect(),
            changed: Notify::new(),
        })
    }

    fn counts(&self) -> Vec<usize> {
        self.finished
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    }

    async fn until(&self, what: &str, reached: impl Fn(&[usize]) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if reached(&self.counts()) {
                    return;
                }
                changed.await;
            }
        };
        soon(what, wait).await;
    }
}

/// Callers that call one after another, for ever and without a time-out.
fn start<S, B>(service: S, progress: &Arc<Progress>) -> JoinSet<()>
where
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>>
        + Clone
        + Send
        + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let mut callers = JoinSet::new();
    for caller in 0..progress.finished.len() {
        let mut client = EchoClient::new(service.clone());
        let progress = Arc::clone(progress);
        callers.spawn(async move {
            loop {
                // A failed call is one that isn't stuck.
                let _ = client
                    .unary(EchoRequest {
                        delay_ms: 1,
                        ..EchoRequest::default()
                    })
                    .await;
                progress.finished[caller].fetch_add(1, Ordering::SeqCst);
                progress.changed.notify_waiters();
            }
        });
    }
    callers
}

/// Four servers, each behind a proxy.
async fn servers() -> (Vec<EchoProcess>, Vec<FaultProxy>) {
    let mut servers = Vec::new();
    let mut proxies = Vec::new();
    for _ in 0..4 {
        let server = EchoProcess::start().await;
        proxies.push(FaultProxy::start(server.addr()).unwrap());
        servers.push(server);
    }
    (servers, proxies)
}

/// B2: with the pool at most ceil(callers / 4) + 1 callers are stuck on the frozen server, and all others
/// go on.
async fn few_are_stuck_on_the_pool(callers: usize) {
    let (_servers, proxies) = servers().await;
    let config = Config {
        balance: BalanceConfig::fixed(4),
        ..steadfast_tests::lower_layers()
    };
    let places = Places::list(proxies.iter().map(FaultProxy::uri));
    let pool = Pool::builder(proxies[0].uri())
        .config(config)
        .places(places)
        .build()
        .unwrap();
    soon("warming", pool.warm(4)).await.unwrap();
    let progress = Progress::of(callers);
    let _callers = start(pool, &progress);
    progress
        .until("a start", |counts| counts.iter().all(|count| *count >= 5))
        .await;
    proxies[0].freeze(Which::All);
    // Long enough for each caller that isn't stuck to come by the frozen server many times.
    let before = progress.counts();
    let bound = callers.div_ceil(4) + 1;
    let moved = |counts: &[usize]| {
        counts
            .iter()
            .zip(&before)
            .filter(|(now, before)| **now >= **before + 100)
            .count()
    };
    let expected = callers - bound;
    progress
        .until("going on", |counts| moved(counts) >= expected)
        .await;
    // And those go on still: each finishes another hundred.
    let before = progress.counts();
    let on = |counts: &[usize]| {
        counts
            .iter()
            .zip(&before)
            .filter(|(now, before)| **now >= **before + 100)
            .count()
    };
    progress
        .until("going on still", |counts| on(counts) >= expected)
        .await;
}

/// B2: the bound for 8 callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_of_8_are_stuck() {
    few_are_stuck_on_the_pool(8).await;
}

/// B2: the bound for 64 callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_of_64_are_stuck() {
    few_are_stuck_on_the_pool(64).await;
}

/// Control: on tonic's balance all callers end up stuck, because it doesn't know what is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_stuck_on_tonics_balance() {
    let (_servers, proxies) = servers().await;
    let endpoints = proxies
        .iter()
        .map(|proxy| Endpoint::from_shared(proxy.uri()).unwrap());
    let balance = Channel::balance_list(endpoints);
    let progress = Progress::of(8);
    let _callers = start(balance, &progress);
    progress
        .until("a start", |counts| counts.iter().all(|count| *count >= 5))
        .await;
    proxies[0].freeze(Which::All);
    let stuck = async {
        loop {
            let before = progress.counts();
            // Nothing tells that nothing happens: a second without one finished call of 1 ms.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if progress.counts() == before {
                return;
            }
        }
    };
    soon("all getting stuck", stuck).await;
}
