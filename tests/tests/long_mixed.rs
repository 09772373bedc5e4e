//! Mixed traffic over a pool while connections, servers and places come and go: afterwards nothing is left
//! over, and no call hung.
//!
//! The traffic and the faults follow a fixed seed and a fixed order; how they interleave is up to the
//! machine, so no figure but the bounds below is asserted.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use steadfast::{BalanceConfig, Config, Place, Places, Pool, Standing};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::{
    alloc::{CountingAllocator, live_bytes},
    proxy::{AcceptMode, FaultProxy, Which},
};
use steadfast_tests::{echo::EchoProcess, soon};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tonic::{Code, Request, Status};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const SEED: u64 = 0x57ea_dfa5;
const CALLERS: u64 = 64;
/// Every call is given up after this.
const LIMIT: Duration = Duration::from_millis(500);
/// A call that ends later than this behind its limit hung: ten times what a busy machine needs.
const SLACK: Duration = Duration::from_secs(5);
/// How much more may be allocated when the pool is quiet again than after a first second without faults,
/// for the whole process: clients, servers and proxies. Buffers of connections are kept.
const KEPT: u64 = 8 << 20;
/// And how much more when the pool is gone than before it was made: the proxies' and the servers' books,
/// and what the runtime and h2 keep for reuse.
const LEFT: u64 = 4 << 20;

/// How many calls of a kind ended in which way.
#[derive(Default)]
struct Ledger {
    ends: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    successes: AtomicU64,
    /// The latest end of a call behind its limit, in microseconds.
    overrun: AtomicU64,
    stop: AtomicBool,
}

impl Ledger {
    fn note(&self, kind: &'static str, end: &'static str) {
        *self.ends.lock().unwrap().entry((kind, end)).or_default() += 1;
        if end == "ok" {
            self.successes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn successes(&self) -> u64 {
        self.successes.load(Ordering::SeqCst)
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((kind, end), count) in &*self.ends.lock().unwrap() {
            write!(f, "{kind} {end} {count}, ")?;
        }
        let overrun = Duration::from_micros(self.overrun.load(Ordering::SeqCst));
        write!(f, "latest end {overrun:?} behind its limit")
    }
}

fn echo(bytes: usize, count: u32, delay_ms: u32) -> EchoRequest {
    EchoRequest {
        payload: vec![7; bytes],
        count,
        delay_ms,
        code: 0,
    }
}

/// Reads a stream: at most `most` messages, with a pause before each. Says how many came.
async fn read(
    client: &mut EchoClient<Pool>,
    request: EchoRequest,
    most: u32,
    pause: Duration,
) -> Result<u32, Status> {
    let mut replies = client.server_stream(request).await?.into_inner();
    let mut count = 0;
    while count < most {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let Some(reply) = replies.message().await? else {
            break;
        };
        assert_eq!(reply.index, count, "in order, and none missing");
        count += 1;
    }
    Ok(count)
}

/// One call of a random kind. Says which, and how it ended.
async fn one_call(
    client: &mut EchoClient<Pool>,
    random: &mut fastrand::Rng,
) -> (&'static str, Result<(), Status>) {
    match random.u32(..100) {
        0..45 => {
            let size = random.usize(..2_000);
            let answer = client.unary(echo(size, 0, 0)).await;
            let answer = answer.map(|reply| assert_eq!(reply.into_inner().payload.len(), size));
            ("unary", answer)
        }
        45..65 => {
            let answer = read(client, echo(1_000, 20, 0), 99, Duration::ZERO).await;
            ("stream", answer.map(|count| assert_eq!(count, 20)))
        }
        65..75 => {
            let pause = Duration::from_millis(3);
            let answer = read(client, echo(16_000, 10, 0), 99, pause).await;
            ("slow reader", answer.map(|count| assert_eq!(count, 10)))
        }
        75..85 => {
            let answer = read(
                client,
                echo(100, 1_000, 1),
                random.u32(1..4),
                Duration::ZERO,
            )
            .await;
            ("dropped stream", answer.map(drop))
        }
        85..93 => {
            // Given up at any point: before a channel is found, before the head, or never.
            let patience = Duration::from_micros(random.u64(..3_000));
            let answer = timeout(patience, client.unary(echo(100, 0, 1))).await;
            let answer = answer.map_or(Ok(()), |answer| answer.map(drop));
            ("dropped call", answer)
        }
        _ => {
            let mut request = Request::new(echo(100, 0, 200));
            request.set_timeout(Duration::from_millis(random.u64(1..40)));
            let error = client.unary(request).await.expect_err("it takes 200 ms");
            let timed_out = [Code::DeadlineExceeded, Code::Cancelled].contains(&error.code());
            ("deadline", if timed_out { Ok(()) } else { Err(error) })
        }
    }
}

async fn caller(number: u64, pool: Pool, ledger: Arc<Ledger>) {
    let mut random = fastrand::Rng::with_seed(SEED + number);
    let mut client = EchoClient::new(pool);
    while !ledger.stop.load(Ordering::SeqCst) {
        let began = now();
        match timeout(LIMIT, one_call(&mut client, &mut random)).await {
            Ok((kind, Ok(()))) => ledger.note(kind, "ok"),
            Ok((kind, Err(_))) => {
                ledger.note(kind, "failed");
                // A pool that fails at once would otherwise be asked without end.
                sleep(Duration::from_millis(2)).await;
            }
            Err(_) => ledger.note("any", "given up"),
        }
        let overrun = (now() - began).saturating_sub(LIMIT);
        let overrun = u64::try_from(overrun.as_micros()).unwrap();
        ledger.overrun.fetch_max(overrun, Ordering::SeqCst);
        sleep(Duration::from_micros(random.u64(..4_000))).await;
    }
}

/// What is done to the servers, and undone after a while.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Cut(usize),
    Reset(usize),
    Freeze(usize),
    /// Its connections are reset, and new ones too.
    Refuse(usize),
    /// New connections are taken and never answered.
    Ignore(usize),
    Remove(usize),
    CutAll,
    FreezeAll,
}

const FAULTS: [Fault; 8] = [
    Fault::Cut(0),
    Fault::Freeze(1),
    Fault::Remove(2),
    Fault::Reset(1),
    Fault::Refuse(0),
    Fault::CutAll,
    Fault::Ignore(2),
    Fault::FreezeAll,
];

struct World {
    _servers: Vec<EchoProcess>,
    proxies: Vec<FaultProxy>,
    places: watch::Sender<Vec<Place>>,
}

impl World {
    async fn start() -> (Self, watch::Receiver<Vec<Place>>) {
        let mut servers = Vec::new();
        let mut proxies = Vec::new();
        for _ in 0..3 {
            let server = EchoProcess::start().await;
            proxies.push(FaultProxy::start(server.addr()).unwrap());
            servers.push(server);
        }
        let (places, followed) = watch::channel(Vec::new());
        let world = Self {
            _servers: servers,
            proxies,
            places,
        };
        world.set_places(None);
        (world, followed)
    }

    fn set_places(&self, but: Option<usize>) {
        let proxies = self.proxies.iter().enumerate();
        let left = proxies.filter(|(index, _)| Some(*index) != but);
        let places = left.map(|(_, proxy)| Place::from(proxy.uri()));
        self.places.send_replace(places.collect());
    }

    fn begin(&self, fault: Fault) {
        match fault {
            Fault::Cut(at) => self.proxies[at].cut(Which::All),
            Fault::Reset(at) => self.proxies[at].reset(Which::All),
            Fault::Freeze(at) => self.proxies[at].freeze(Which::All),
            Fault::Refuse(at) => {
                self.proxies[at].set_accept_mode(AcceptMode::Reset);
                self.proxies[at].reset(Which::All);
            }
            Fault::Ignore(at) => {
                self.proxies[at].set_accept_mode(AcceptMode::Ignore);
                self.proxies[at].cut(Which::All);
            }
            Fault::Remove(at) => self.set_places(Some(at)),
            Fault::CutAll => self.proxies.iter().for_each(|proxy| proxy.cut(Which::All)),
            Fault::FreezeAll => self
                .proxies
                .iter()
                .for_each(|proxy| proxy.freeze(Which::All)),
        }
    }

    fn end(&self, fault: Fault) {
        match fault {
            Fault::Cut(_) | Fault::Reset(_) | Fault::CutAll => {}
            Fault::Freeze(at) => self.proxies[at].thaw(Which::All),
            Fault::Refuse(at) => self.proxies[at].set_accept_mode(AcceptMode::Serve),
            Fault::Ignore(at) => {
                // Those that it took are closed, as by a server that restarts.
                self.proxies[at].set_accept_mode(AcceptMode::Serve);
                self.proxies[at].cut(Which::All);
            }
            Fault::Remove(_) => self.set_places(None),
            Fault::FreezeAll => self.proxies.iter().for_each(|proxy| proxy.thaw(Which::All)),
        }
    }
}

/// Waits for what nothing announces, up to the hang bound.
async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = async {
        while !reached() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, wait).await;
}

/// Whether nothing is open or under way, and each place has a channel that may be picked.
fn is_quiet(pool: &Pool) -> bool {
    let now = pool.snapshot();
    let ready = |channel: &steadfast::ChannelSnapshot| channel.standing == Standing::Open;
    let places: std::collections::BTreeSet<_> =
        now.channels.iter().map(|channel| &channel.place).collect();
    let settled = now.draining.is_empty() && now.connecting.is_empty();
    now.in_flight() == 0
        && now.waiting == 0
        && settled
        && places.len() == 3
        && now.channels.iter().all(ready)
}

/// 64 callers, and one fault after another for at least `length`, each lasting for `each`.
async fn mixed(length: Duration, each: Duration) {
    let (world, places) = World::start().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (tasks_before, bytes_before) = (tasks(), live_bytes());
    let config = Config {
        balance: BalanceConfig {
            initial: 6,
            min: 6,
            max: 12,
            resize_interval: Duration::from_secs(1),
            connect_budget: Duration::from_secs(1),
            drain_limit: Duration::from_secs(2),
            ..BalanceConfig::default()
        },
        ..Config::default()
    };
    let pool = Pool::builder(world.proxies[0].uri())
        .config(config)
        .places(Places::watch(places))
        .build()
        .unwrap();
    soon("warming", pool.warm(6)).await.unwrap();

    let ledger = Arc::new(Ledger::default());
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        callers.spawn(caller(number, pool.clone(), Arc::clone(&ledger)));
    }
    sleep(Duration::from_secs(1).min(each)).await;
    until("a start", || ledger.successes() > 10 * CALLERS).await;
    let bytes_busy = live_bytes();

    let began = now();
    let mut faults = 0;
    for fault in FAULTS.into_iter().cycle() {
        if now() - began >= length && faults >= FAULTS.len() {
            break;
        }
        let before = ledger.successes();
        world.begin(fault);
        sleep(each).await;
        if !matches!(fault, Fault::FreezeAll) {
            // The others go on, or the pool is back already.
            let during = format!("successes during {fault:?}");
            until(&during, || ledger.successes() > before + 10).await;
        }
        world.end(fault);
        let before = ledger.successes();
        let after = format!("successes after {fault:?}");
        until(&after, || ledger.successes() > before + CALLERS).await;
        faults += 1;
    }

    ledger.stop.store(true, Ordering::SeqCst);
    while let Some(done) = soon("the callers' end", callers.join_next()).await {
        done.unwrap();
    }
    println!("{faults} faults in {:?}: {ledger}", now() - began);
    let overrun = Duration::from_micros(ledger.overrun.load(Ordering::SeqCst));
    assert!(overrun < SLACK, "a call ended {overrun:?} behind its limit");
    // Nothing is left of the calls. Channels whose dials failed come back with their backoff.
    let open = pool.snapshot();
    assert_eq!((open.in_flight(), open.waiting), (0, 0), "{open:?}");
    until("every channel to be ready", || is_quiet(&pool)).await;
    let quiet = pool.snapshot();
    let kept = live_bytes().saturating_sub(bytes_busy);
    println!(
        "quiet: {} channels, {} tasks, {} KiB allocated, {} KiB more than in the first second",
        quiet.channels.len(),
        tasks(),
        live_bytes() >> 10,
        kept >> 10,
    );
    assert!(kept <= KEPT, "{kept} bytes more than under load at first");

    let report = soon("closing", pool.close(Duration::from_secs(1))).await;
    assert_eq!((report.finished, report.cut), (0, 0));
    drop(pool);
    until("the connections' tasks to end", || tasks() <= tasks_before).await;
    let left = live_bytes().saturating_sub(bytes_before);
    println!("gone: {} tasks, {} KiB left over", tasks(), left >> 10);
    assert!(left <= LEFT, "{left} bytes more than before the pool");
}

/// B1, B5, B7, B12, X6: five minutes of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: five minutes; run by .ci/run --long"]
async fn long_five_mixed_minutes() {
    mixed(Duration::from_secs(300), Duration::from_secs(2)).await;
}

/// B1, B5, B7, B12, X6: each fault once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_once() {
    mixed(Duration::ZERO, Duration::from_millis(600)).await;
}
