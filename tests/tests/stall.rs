//! StallDetect under Balance: real tonic channels in memory, on a paused clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use steadfast::{
    Attempt, Balance, BalanceConfig, BalanceLayer, ChannelId, Each, Local, LocalKind, Outcome,
    PenaltyConfig, PenaltyWindow, PenaltyWindowLayer, Place, Places,
};
use steadfast_core::{Bottom, now};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_retry::{Budget, Kind, RetryConfig, RetryLayer, RetryOn};
use steadfast_stall::{Condition, HealthProbe, StallConfig, StallDetect, StallDetectLayer};
use steadfast_testkit::{
    memory::{self, DialMode, Network},
    peer::{Answer, GOOD_PAYLOAD, Peer, Request, Script, Step},
    proxy::Which,
};
use tokio::time::{Instant, sleep};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tower::{Layer, ServiceBuilder};

const SECOND: Duration = Duration::from_secs(1);
const HEALTH: &str = "/grpc.health.v1.Health/Check";

type Stack = Balance<StallDetect<PenaltyWindow<Bottom<Channel>>>>;

/// One server with as many connections as are dialled, and a pool to it.
struct Bed {
    network: Network,
    peer: Peer,
    stall: StallDetectLayer,
    penalty: PenaltyWindowLayer,
    pool: Stack,
    /// Whether the server answers probes on connections of this number and later ones.
    mute_from: Arc<AtomicUsize>,
}

impl Bed {
    /// A pool of some channels that are ready.
    async fn new(channels: usize) -> Self {
        let (network, incoming) = memory::network();
        let mute_from = Arc::new(AtomicUsize::new(usize::MAX));
        let mute = Arc::clone(&mute_from);
        let peer = Peer::serve(incoming, move |_| {
            let mute = Arc::clone(&mute);
            Script::new(move |request| answer(request, mute.load(Ordering::SeqCst)))
        });
        let stall = StallDetectLayer::new(StallConfig::default(), HealthProbe::new()).unwrap();
        let penalty = PenaltyWindowLayer::new(PenaltyConfig::default()).unwrap();
        let dial = network.clone();
        let factory = move |_: ChannelId, _: Place| {
            let dial = dial.clone();
            let endpoint = Endpoint::from_static("http://memory");
            async move { endpoint.connect_with_connector(dial).await }
        };
        let config = BalanceConfig {
            grow_on_demand: false,
            ..BalanceConfig::fixed(channels)
        };
        let pool = ServiceBuilder::new()
            .layer(
                BalanceLayer::new(config)
                    .unwrap()
                    .places(Places::list(["a"])),
            )
            .layer(Each(stall.clone()))
            .layer(Each(penalty.clone()))
            .service(factory);
        pool.warm(channels).await.unwrap();
        Self {
            network,
            peer,
            stall,
            penalty,
            pool,
            mute_from,
        }
    }

    fn ids(&self) -> Vec<ChannelId> {
        let channels = self.pool.snapshot().channels;
        channels.iter().map(|channel| channel.id).collect()
    }

    fn conditions(&self) -> BTreeMap<ChannelId, Condition> {
        let states = self.stall.snapshot();
        states.iter().map(|it| (it.id, it.condition)).collect()
    }

    fn quarantined(&self) -> Vec<ChannelId> {
        let conditions = self.conditions().into_iter();
        conditions
            .filter(|(_, it)| *it == Condition::Quarantined)
            .map(|(id, _)| id)
            .collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let began = now();
        while !holds(self) {
            sleep(Duration::from_millis(1)).await;
            let ring = self.stall.ring();
            assert!(began.elapsed() < 900 * SECOND, "{what}:\n{ring}");
        }
        began.elapsed()
    }

    fn load(&self, per_second: u32) -> Load {
        Load::start(&self.pool, SECOND / per_second)
    }

    /// Probes that came over each connection.
    fn probes(&self) -> usize {
        let requests = self.peer.requests();
        requests.iter().filter(|it| it.path == HEALTH).count()
    }
}

/// Reads take 30 ms, streams go on for ever, probes are answered at once if they are.
fn answer(request: &Request, mute_from: usize) -> Answer {
    match request.path.as_str() {
        HEALTH if request.connection as usize >= mute_from => Answer::silence(),
        HEALTH => Answer::message(Bytes::new()),
        "/steadfast.test.Echo/ServerStream" => {
            Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()])
        }
        _ if request.header("x-fail").is_some() => Answer::status(14, "overloaded"),
        _ => Answer::steps([
            Step::AwaitRequest,
            Step::Wait(Duration::from_millis(30)),
            Step::headers(),
            Step::Message(Bytes::from_static(GOOD_PAYLOAD)),
            Step::status(0, ""),
        ]),
    }
}

/// What became of one call.
struct Call {
    began: Instant,
    ended: Option<Instant>,
    attempt: Attempt,
    error: Option<Status>,
}

/// Calls that come at a fixed rate, whatever became of those before.
struct Load {
    calls: Arc<Mutex<Vec<Call>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(pool: &Stack, every: Duration) -> Self {
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let (pool, log) = (pool.clone(), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            loop {
                ticks.tick().await;
                let attempt = Attempt::new();
                let index = {
                    let mut log = log.lock().unwrap();
                    log.push(Call {
                        began: now(),
                        ended: None,
                        attempt: attempt.clone(),
                        error: None,
                    });
                    log.len() - 1
                };
                let (mut client, log) = (EchoClient::new(pool.clone()), Arc::clone(&log));
                tokio::spawn(async move {
                    let mut request = tonic::Request::new(EchoRequest::default());
                    request.extensions_mut().insert(attempt);
                    let result = client.unary(request).await;
                    let call = &mut log.lock().unwrap()[index];
                    call.ended = Some(now());
                    call.error = result.err();
                });
            }
        });
        Self { calls, task }
    }

    fn each<R>(&self, look: impl FnMut(&Call) -> R) -> Vec<R> {
        self.calls.lock().unwrap().iter().map(look).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_quarantine(error: &Status) -> bool {
    let mark = Local::find(error).map(Local::kind);
    error.code() == Code::Unavailable && mark == Some(LocalKind::Quarantine)
}

/// S1–S5: a connection frozen under 10 channels at 500 requests a second. Whenever in a tick it happens,
/// every call that waits on it has ended 2.1 s later, none begins on it afterwards, and no other fails;
/// thawed, it is restored and used.
#[tokio::test(start_paused = true)]
async fn a_frozen_connection_costs_two_seconds() {
    let bed = Bed::new(10).await;
    let load = bed.load(500);
    for (connection, offset) in [(0, 0), (5, 17), (9, 36)] {
        sleep(5 * SECOND + Duration::from_millis(offset)).await;
        bed.network.freeze(Which::One(connection));
        let frozen = now();
        bed.until("the quarantine", |bed| !bed.quarantined().is_empty())
            .await;
        let quarantined = now();
        let [id] = bed.quarantined()[..] else {
            panic!("{:?}", bed.conditions());
        };
        sleep(8 * SECOND).await;
        let on_it = |call: &Call| call.attempt.channel() == Some(id);
        let cut = load.each(|call| {
            let waited = on_it(call) && call.ended.is_none_or(|ended| ended > frozen);
            if !waited || call.began > quarantined {
                return None;
            }
            let ended = call.ended.expect("it has ended");
            assert!(is_quarantine(call.error.as_ref().unwrap()));
            assert_eq!(
                call.attempt.outcome(),
                Some(Outcome::Local(LocalKind::Quarantine))
            );
            Some(ended - frozen)
        });
        let cut: Vec<Duration> = cut.into_iter().flatten().collect();
        let worst = *cut.iter().max().unwrap();
        println!(
            "connection {connection}: {} calls ended, the last after {worst:?}",
            cut.len()
        );
        assert!(worst <= Duration::from_millis(2_100), "{cut:?}");
        load.each(|call| {
            let late = call.began > quarantined;
            assert!(!(late && on_it(call)), "one began on it");
            assert!(!late || call.error.is_none(), "{:?}", call.error);
        });
        bed.network.thaw(Which::One(connection));
        let thawed = now();
        let took = bed
            .until("restoring", |bed| bed.quarantined().is_empty())
            .await;
        assert!(took <= 13 * SECOND, "{took:?}");
        sleep(SECOND).await;
        let used = load.each(|call| call.began > thawed && on_it(call));
        assert!(used.into_iter().any(|used| used), "restored, and not used");
    }
    assert!(bed.probes() >= 10 + 3);
}

/// S4: one read that is stalled before its headers, the only one that waits, with all other time-outs at
/// an hour: it ends with the quarantine.
#[tokio::test(start_paused = true)]
async fn a_read_stalled_before_its_headers_is_ended() {
    let bed = Bed::new(3).await;
    let load = bed.load(50);
    sleep(3 * SECOND).await;
    let attempt = Attempt::new();
    let mut request = tonic::Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    request.set_timeout(3_600 * SECOND);
    // Nobody else comes on its channel: it is held back, and frozen with the read on it.
    let mut client = EchoClient::new(bed.pool.clone());
    let read = tokio::spawn(async move {
        let result = client.unary(request).await;
        (result, now())
    });
    sleep(Duration::from_millis(10)).await;
    let id = attempt.channel().unwrap();
    let position = bed.ids().iter().position(|it| *it == id).unwrap();
    bed.network.freeze(Which::One(position as u64));
    drop(load);
    let _load = bed.load(50);
    bed.until("the quarantine", |bed| bed.quarantined() == [id])
        .await;
    let quarantined = now();
    let (result, ended) = read.await.unwrap();
    assert!(is_quarantine(&result.unwrap_err()));
    assert!(
        ended - quarantined <= Duration::from_millis(5),
        "{:?}",
        ended - quarantined
    );
}

/// S2: probes are nobody's calls: not in flight, no pick, no penalty, whatever came of them.
#[tokio::test(start_paused = true)]
async fn probes_are_not_counted() {
    let bed = Bed::new(4).await;
    let load = bed.load(100);
    sleep(3 * SECOND).await;
    bed.network.freeze(Which::One(0));
    sleep(30 * SECOND).await;
    drop(load);
    sleep(5 * SECOND).await;
    let snapshot = bed.pool.snapshot();
    assert_eq!(snapshot.in_flight(), 0);
    assert!(bed.penalty.snapshot().is_empty());
    let probes = bed.stall.ring().decisions().count();
    assert!(probes >= 5, "{}", bed.stall.ring());
    // Each pick is a request that a server saw or that went into the frozen connection.
    let picks: u64 = snapshot.channels.iter().map(|it| it.picks).sum();
    let seen = bed.peer.requests();
    let calls = seen.iter().filter(|it| it.path != HEALTH).count() as u64;
    assert!(
        picks >= calls && picks <= calls + 100,
        "{picks} picks, {calls} calls"
    );
}

/// S5, B6: a repeat offender is replaced: the new channel answers a probe first, then the old one goes,
/// and nobody notices. The next is replaced a minute later at the earliest.
#[tokio::test(start_paused = true)]
async fn a_repeat_offender_is_replaced() {
    let bed = Bed::new(6).await;
    let load = bed.load(300);
    sleep(3 * SECOND).await;
    let before = bed.ids();
    let mut replaced: Vec<ChannelId> = Vec::new();
    for connection in [0_u64, 1] {
        let old = before[connection as usize];
        let mut quarantines = 0;
        while bed.ids().contains(&old) {
            bed.network.freeze(Which::One(connection));
            let gone = |bed: &Bed| !bed.ids().contains(&old);
            bed.until("a quarantine", |bed| {
                gone(bed) || bed.quarantined() == [old]
            })
            .await;
            quarantines += 1;
            // Its minute may be used by the one before it.
            if quarantines >= 3 {
                bed.until("a replacement", gone).await;
            }
            bed.network.thaw(Which::One(connection));
            bed.until("its end", |bed| bed.quarantined().is_empty())
                .await;
        }
        assert_eq!(quarantines, 3);
        let is_new = |id: &ChannelId| !before.contains(id) && !replaced.contains(id);
        let new = bed.ids().into_iter().find(is_new).unwrap();
        replaced.push(new);
        assert_eq!(bed.ids().len(), 6);
    }
    let asked: Vec<Duration> = bed
        .stall
        .ring()
        .decisions()
        .filter(|(_, it)| matches!(it, steadfast_stall::Action::Replace(..)))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[1] - asked[0] >= 60 * SECOND, "{asked:?}");
    assert!(
        bed.ids()
            .iter()
            .all(|id| *id != before[0] && *id != before[1])
    );
    sleep(5 * SECOND).await;
    let used = load.each(|call| {
        call.attempt
            .channel()
            .is_some_and(|id| replaced.contains(&id))
    });
    assert!(used.into_iter().any(|used| used));
}

/// S5, B6: when the replacement can't connect, or never answers its probe, the old channel stays, and is
/// restored when it is well.
#[tokio::test(start_paused = true)]
async fn a_failed_replacement_leaves_the_old_one() {
    for never_answers in [false, true] {
        let bed = Bed::new(4).await;
        let _load = bed.load(40);
        sleep(3 * SECOND).await;
        let before = bed.ids();
        if never_answers {
            bed.mute_from.store(4, Ordering::SeqCst);
        } else {
            bed.network.set_dial_mode(DialMode::Refuse);
        }
        bed.network.freeze(Which::One(0));
        let dials = bed.network.state().dials;
        sleep(185 * SECOND).await;
        assert_eq!(bed.ids(), before);
        let tried = bed.network.state().dials - dials;
        assert!((2..=3).contains(&tried), "{tried} dials in three minutes");
        assert_eq!(bed.quarantined(), [before[0]]);
        bed.network.thaw(Which::One(0));
        bed.until("restoring", |bed| bed.quarantined().is_empty())
            .await;
        assert_eq!(bed.ids(), before);
    }
}

/// B6: the layer's probe warms new channels: one that doesn't answer it never joins.
#[tokio::test(start_paused = true)]
async fn new_channels_are_warmed_with_its_probe() {
    let bed = Bed::new(2).await;
    assert_eq!(bed.probes(), 2, "one for each channel");
    bed.mute_from.store(2, Ordering::SeqCst);
    let third = tokio::time::timeout(60 * SECOND, bed.pool.warm(3)).await;
    assert!(third.is_err() || third.unwrap().is_err());
    assert_eq!(bed.ids().len(), 2);
}

/// A limiter of the kind that is put above a pool: it lowers its rate when the server says that it is
/// overloaded, and not for what this side made itself.
#[derive(Clone, Default)]
struct Limiter {
    lowered: Arc<AtomicUsize>,
}

impl Limiter {
    fn judge<T>(&self, result: &Result<T, Status>) {
        if let Err(status) = result
            && status.code() == Code::Unavailable
            && Local::find(status).is_none()
        {
            self.lowered.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A retry budget that counts what is drawn.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Budget for Counted {
    fn deposit(&self) {}

    fn withdraw(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// S4: a write that a quarantine ends leaves a rate limiter above the pool, the retry budget and the
/// penalty as they are; a server's Unavailable lowers them. The mark is seen through the generated client.
#[tokio::test(start_paused = true)]
async fn a_quarantine_is_no_overload() {
    let bed = Bed::new(3).await;
    let (limiter, budget) = (Limiter::default(), Arc::new(Counted::default()));
    let drawn = || budget.0.load(Ordering::SeqCst);
    let retry = || {
        let layer = RetryLayer::new(RetryConfig {
            retry_on: RetryOn {
                unavailable: true,
                ..RetryOn::default()
            },
            ..RetryConfig::default()
        });
        layer.unwrap().with_budget(Arc::clone(&budget) as _)
    };
    // No method is named: these are writes.
    let writes = retry().layer(bed.pool.clone());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let mut client = EchoClient::new(writes.clone());
        tasks.spawn(async move {
            loop {
                client.unary(EchoRequest::default()).await?;
                sleep(Duration::from_millis(50)).await;
            }
            #[expect(unreachable_code, reason = "it says what the task gives")]
            Ok::<(), Status>(())
        });
    }
    sleep(3 * SECOND).await;
    bed.network.freeze(Which::One(0));
    bed.until("the quarantine", |bed| !bed.quarantined().is_empty())
        .await;
    sleep(SECOND).await;
    let mut cut = 0;
    while let Some(ended) = tasks.try_join_next() {
        let result = ended.unwrap();
        limiter.judge(&result);
        let status = result.unwrap_err();
        let source = std::error::Error::source(&status).expect("its source is the mark");
        let mark = source.downcast_ref::<Local>().unwrap();
        assert_eq!(mark.kind(), LocalKind::Quarantine);
        cut += 1;
    }
    assert!(cut >= 5, "{cut}");
    assert_eq!((limiter.lowered.load(Ordering::SeqCst), drawn()), (0, 0));
    assert!(bed.penalty.snapshot().is_empty());
    let reads = retry().idempotent("/steadfast.test.Echo/Unary", Kind::Held);
    let mut client = EchoClient::new(reads.unwrap().layer(bed.pool.clone()));
    let mut fails = tonic::Request::new(EchoRequest::default());
    fails.metadata_mut().insert("x-fail", "14".parse().unwrap());
    let refused = client.unary(fails).await;
    limiter.judge(&refused);
    assert_eq!((limiter.lowered.load(Ordering::SeqCst), drawn()), (1, 2));
    assert!(!bed.penalty.snapshot().is_empty());
}

/// S4, B1: many open streams end at once with the quarantine, and nothing is left in flight.
#[tokio::test(start_paused = true)]
async fn open_streams_end_at_once() {
    let bed = Bed::new(2).await;
    let _load = bed.load(100);
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let (pool, ended) = (bed.pool.clone(), Arc::clone(&ended));
        readers.spawn(async move {
            let attempt = Attempt::new();
            let mut request = tonic::Request::new(EchoRequest::default());
            request.extensions_mut().insert(attempt.clone());
            let stream = EchoClient::new(pool).server_stream(request).await;
            let mut stream = stream.unwrap().into_inner();
            stream.message().await.unwrap();
            let status = stream.message().await.unwrap_err();
            assert!(is_quarantine(&status));
            ended
                .lock()
                .unwrap()
                .push((attempt.channel().unwrap(), now()));
        });
    }
    sleep(3 * SECOND).await;
    bed.network.freeze(Which::One(0));
    bed.until("the quarantine", |bed| !bed.quarantined().is_empty())
        .await;
    let (at, id) = (now(), bed.quarantined()[0]);
    sleep(Duration::from_millis(5)).await;
    let ended = ended.lock().unwrap();
    assert!(ended.len() >= 25, "{}", ended.len());
    assert!(
        ended
            .iter()
            .all(|(channel, when)| *channel == id && *when >= at - Duration::from_millis(2))
    );
    let channels = bed.pool.snapshot().channels;
    let cut = channels.iter().find(|channel| channel.id == id).unwrap();
    assert_eq!(cut.in_flight, 0);
}

/// S1: with everything frozen, nothing is quarantined: it is the server, or this side.
#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_not_a_channels_fault() {
    let bed = Bed::new(4).await;
    // So few that they find free streams.
    let load = bed.load(10);
    sleep(3 * SECOND).await;
    bed.network.freeze(Which::All);
    sleep(20 * SECOND).await;
    assert!(
        bed.conditions()
            .values()
            .all(|it| *it == Condition::Serving)
    );
    bed.network.thaw(Which::All);
    sleep(5 * SECOND).await;
    assert!(
        load.each(|call| call.error.is_none())
            .into_iter()
            .all(|fine| fine)
    );
}

/// X4, control: without the layer, those calls wait until the thaw.
#[tokio::test(start_paused = true)]
async fn without_it_they_wait_for_the_thaw() {
    let (network, incoming) = memory::network();
    let _peer = Peer::serve(incoming, |_| {
        Script::new(|request| answer(request, usize::MAX))
    });
    let endpoint = Endpoint::from_static("http://memory");
    let channel = endpoint
        .connect_with_connector(network.clone())
        .await
        .unwrap();
    network.freeze(Which::One(0));
    let thawed = Arc::new(AtomicBool::new(false));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (channel, thawed) = (channel.clone(), Arc::clone(&thawed));
        calls.spawn(async move {
            EchoClient::new(channel)
                .unary(EchoRequest::default())
                .await
                .unwrap();
            assert!(thawed.load(Ordering::SeqCst));
        });
    }
    sleep(60 * SECOND).await;
    assert!(calls.try_join_next().is_none());
    thawed.store(true, Ordering::SeqCst);
    network.thaw(Which::One(0));
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
}

/// The type of a pool with the layer can be named, and the layer is what `Each` takes in any order.
#[test]
fn the_stack_can_be_named() {
    fn is<T>() {}
    is::<Stack>();
    is::<Balance<PenaltyWindow<StallDetect<Bottom<Channel>>>>>();
    fn takes(layer: StallDetectLayer) -> Each<StallDetectLayer> {
        Each(layer)
    }
    let _: Each<StallDetectLayer> = takes(StallDetectLayer::default());
}
