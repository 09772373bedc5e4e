//! A whole pool over a connection that freezes: who notices, and who is told what.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use steadfast::{Condition, Config, Local, LocalKind, Pool, RetryOn};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::proxy::{FaultProxy, Which};
use steadfast_tests::{
    echo::EchoProcess,
    soon,
    whole::{builder, channel_at, channels, local_stalls, on, on_time, ready, serves, until},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Request, Status};

const SECOND: Duration = Duration::from_secs(1);
/// What the budget pays for in ten seconds when it pays for one repetition a second and for none beyond.
const RESERVE: usize = 10;
/// Reads that begin right after the freeze, and writes. A channel's share of both is less than 20: so many
/// streams may be reset before a tonic server has seen them, or it ends the connection when it thaws.
const READS: usize = 48;
const WRITES: usize = 24;

/// The default times; a budget that can be counted, and a server's Unavailable that draws on it.
fn config() -> Config {
    let mut config = steadfast_tests::whole::quick(4);
    config.stall = Config::default().stall;
    config.retry.budget_percent = 0;
    config.retry.budget_per_second = 1;
    config.retry.retry_on = RetryOn {
        unavailable: true,
        ..RetryOn::default()
    };
    config
}

/// An echo server behind four proxies, each of which is a place with one channel.
struct Bed {
    _echo: EchoProcess,
    proxies: Vec<FaultProxy>,
    pool: Pool,
}

impl Bed {
    async fn new(config: Config) -> Self {
        let echo = EchoProcess::start().await;
        let start = |_| FaultProxy::start(echo.addr()).unwrap();
        let proxies: Vec<_> = (0..4).map(start).collect();
        let places: Vec<_> = proxies.iter().map(FaultProxy::uri).collect();
        let pool = ready(builder(&places, config), 4).await;
        Self {
            _echo: echo,
            proxies,
            pool,
        }
    }
}

/// Counts a server's overload, as a rate limiter or a circuit breaker above the pool does.
#[derive(Clone, Default)]
struct Breaker {
    /// Those that say so and weren't made here.
    counted: Arc<AtomicUsize>,
    /// Those that say so.
    by_code: Arc<AtomicUsize>,
}

impl Breaker {
    fn judge<T>(&self, result: &Result<T, Status>) {
        let Err(status) = result else { return };
        if status.code() != Code::Unavailable {
            return;
        }
        self.by_code.fetch_add(1, Ordering::SeqCst);
        if Local::find(status).is_none() {
            self.counted.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counts(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (read(&self.counted), read(&self.by_code))
    }
}

/// How calls ended: what failed, and the longest wait.
#[derive(Debug, Default)]
struct Ends {
    failed: Vec<Status>,
    worst: Duration,
}

/// Calls at once, spread over the channels: unary ones, which are idempotent, or uploads, which aren't.
fn start(bed: &Bed, breaker: &Breaker, reads: bool) -> JoinSet<(Instant, Result<(), Status>)> {
    let (mut calls, count) = (JoinSet::new(), if reads { READS } else { WRITES });
    for channel in channels(&bed.pool).into_iter().cycle().take(count) {
        let (mut client, breaker) = (EchoClient::new(bed.pool.clone()), breaker.clone());
        calls.spawn(async move {
            let result = if reads {
                client.unary(on(channel).0).await.map(drop)
            } else {
                let (preferring, _) = on(channel);
                let (_, extensions, message) = preferring.into_parts();
                let mut upload = Request::new(tokio_stream::once(message));
                *upload.extensions_mut() = extensions;
                client.client_stream(upload).await.map(drop)
            };
            breaker.judge(&result);
            (now(), result)
        });
    }
    calls
}

async fn ends(mut calls: JoinSet<(Instant, Result<(), Status>)>, began: Instant) -> Ends {
    let mut ends = Ends::default();
    while let Some(call) = soon("a call", calls.join_next()).await {
        let (ended, result) = call.unwrap();
        ends.worst = ends.worst.max(ended - began);
        ends.failed.extend(result.err());
    }
    ends
}

/// One of four connections frozen with calls on it. Says what became of them, and how often this process
/// stood still.
async fn frozen() -> ((Ends, Ends), usize) {
    let bed = Bed::new(config()).await;
    let breaker = Breaker::default();
    let frozen = channel_at(&bed.pool, &bed.proxies[0].uri());
    let _busy = steadfast_tests::whole::busy(&bed.pool);
    // Its other callers, and the channel's first second.
    sleep(SECOND).await;
    bed.proxies[0].freeze(Which::One(0));
    let began = now();
    let (reads, writes) = (start(&bed, &breaker, true), start(&bed, &breaker, false));
    let (reads, writes) = tokio::join!(ends(reads, began), ends(writes, began));
    let stalls = local_stalls(&bed.pool);
    // Each channel had its share of both.
    assert_eq!(writes.failed.len(), WRITES / 4);
    let retry = bed.pool.retry().snapshot();
    assert!(
        retry.repeated > RESERVE as u64,
        "more than the budget pays for: {retry:?}"
    );
    assert_eq!(retry.denied, 0, "{retry:?}");
    let (counted, by_code) = breaker.counts();
    assert_eq!((counted, by_code), (0, writes.failed.len()));
    assert!(bed.pool.penalty().snapshot().is_empty());

    // Control: what the server says itself is overload, to all three.
    let mut client = EchoClient::new(bed.pool.clone());
    let refused = soon("a call", client.unary(refuse())).await;
    breaker.judge(&refused);
    let (counted, _) = breaker.counts();
    assert_eq!(
        (counted, refused.unwrap_err().code()),
        (1, Code::Unavailable)
    );
    assert!(!bed.pool.penalty().snapshot().is_empty());
    let budget = bed.pool.retry().budget().unwrap();
    let left = std::iter::from_fn(|| budget.withdraw().then_some(())).count();
    assert_eq!(
        left,
        RESERVE - 2,
        "the refused call drew two, the others none"
    );

    bed.proxies[0].thaw(Which::One(0));
    let well = || {
        let states = bed.pool.stall().snapshot();
        states.iter().all(|it| it.condition == Condition::Serving)
    };
    until("restoring", well).await;
    assert!(serves(&bed.pool, frozen).await);
    ((reads, writes), stalls)
}

fn refuse() -> EchoRequest {
    EchoRequest {
        code: 14,
        ..EchoRequest::default()
    }
}

/// S1–S5, T2, P2: one of four connections freezes with calls on it. The idempotent ones succeed elsewhere
/// within 2.5 s; the others end with the local mark in what a generated client gets. A circuit breaker above
/// the pool, the retry budget and the penalty take no notice, and do of a server's Unavailable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_calls_never_notice_a_frozen_connection() {
    let ((reads, writes), punctual) = on_time(frozen).await;
    println!("reads took {:?}, writes {:?}", reads.worst, writes.worst);
    assert!(reads.failed.is_empty(), "{:?}", reads.failed);
    // Where the machine itself was late, twice as long.
    let limit = Duration::from_millis(2_500) * if punctual { 1 } else { 2 };
    assert!(reads.worst > SECOND, "none was on the frozen connection");
    assert!(reads.worst <= limit && writes.worst <= limit);
    for status in writes.failed {
        let source = std::error::Error::source(&status).expect("its source is the mark");
        let mark = source.downcast_ref::<Local>().expect("the mark");
        assert_eq!(mark.kind(), LocalKind::Quarantine, "{status}");
        assert_eq!(status.code(), Code::Unavailable);
    }
}

/// Control of the test above: with stall detection off the calls on the frozen connection go on waiting, and
/// only the thaw ends them; nothing is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_stall_detection_they_wait_for_the_thaw() {
    let mut config = config();
    config.stall.enabled = false;
    let bed = Bed::new(config).await;
    bed.proxies[0].freeze(Which::One(0));
    let (began, breaker) = (now(), Breaker::default());
    let mut reads = start(&bed, &breaker, true);
    let mut served = 0;
    // Nothing tells that nothing happens: half as long again as stall detection takes.
    while let Ok(Some(call)) = timeout(3 * SECOND, reads.join_next()).await {
        call.unwrap().1.unwrap();
        served += 1;
    }
    assert_eq!(served, READS - READS / 4);
    bed.proxies[0].thaw(Which::One(0));
    let late = ends(reads, began).await;
    assert!(late.failed.is_empty() && late.worst >= 3 * SECOND);
    assert_eq!(bed.pool.retry().snapshot().repeated, 0);
}
