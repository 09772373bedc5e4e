//! StallDetect on real sockets: frozen and muted connections, a process that stands still, and probes that
//! are answered with anything.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use steadfast::{
    Attempt, Balance, BalanceConfig, BalanceLayer, ChannelId, Each, Egress, EgressChannel,
    EgressConfig, Local, LocalKind, Prefer,
};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::{
    Action, Condition, HealthProbe, Ring, StallConfig, StallDetect, StallDetectLayer,
};
use steadfast_testkit::{
    peer::{Answer, Peer, Script, Step},
    proxy::{FaultProxy, Which},
};
use steadfast_tests::{
    HANG,
    echo::{EchoProcess, EchoThread},
    soon,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, transport::Endpoint};
use tower::{Layer, ServiceBuilder};

const SECOND: Duration = Duration::from_secs(1);
const HEALTH: &str = "/grpc.health.v1.Health/Check";

type Stack = Balance<StallDetect<EgressChannel>>;

fn stall(config: StallConfig) -> StallDetectLayer {
    StallDetectLayer::new(config, HealthProbe::new()).unwrap()
}

async fn pool(uri: String, channels: usize, layer: &StallDetectLayer) -> Stack {
    let config = BalanceConfig {
        grow_on_demand: false,
        assumed_streams: 60_000,
        ..BalanceConfig::fixed(channels)
    };
    let pool = ServiceBuilder::new()
        .layer(BalanceLayer::new(config).unwrap())
        .layer(Each(layer.clone()))
        .service(Egress::new(uri, EgressConfig::default()).unwrap());
    soon("warming", pool.warm(channels)).await.unwrap();
    pool
}

fn decided(ring: &Ring, is: fn(&Action) -> bool) -> usize {
    ring.decisions().filter(|(_, it)| is(it)).count()
}

fn local_stalls(layer: &StallDetectLayer) -> usize {
    decided(&layer.ring(), |it| matches!(it, Action::LocalStall(_)))
}

fn quarantines(layer: &StallDetectLayer) -> usize {
    decided(&layer.ring(), |it| matches!(it, Action::Quarantine(..)))
}

fn is_quarantine(error: &Status) -> bool {
    Local::find(error).map(Local::kind) == Some(LocalKind::Quarantine)
}

/// Waits until a condition holds, by looking: nothing tells when a layer's state changes.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon(what, wait).await;
}

/// Runs a scenario again when this process stood still in it, as a busy machine may make it: at most three
/// times.
async fn on_time<R, F: Future<Output = (R, usize)>>(scenario: impl Fn() -> F) -> R {
    for _ in 0..2 {
        let (result, stalls) = scenario().await;
        if stalls == 0 {
            return result;
        }
        println!("this process stood still {stalls} times: once more");
    }
    scenario().await.0
}

type Log = Arc<Mutex<Vec<(Attempt, Instant, Option<(Instant, Option<Status>)>)>>>;

/// Calls at a fixed rate, whatever became of those before.
fn load(pool: &Stack, every: Duration) -> (Log, tokio::task::JoinHandle<()>) {
    let log = Log::default();
    let (pool, calls) = (pool.clone(), Arc::clone(&log));
    let task = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            let attempt = Attempt::new();
            let index = {
                let mut calls = calls.lock().unwrap();
                calls.push((attempt.clone(), now(), None));
                calls.len() - 1
            };
            let (mut client, calls) = (EchoClient::new(pool.clone()), Arc::clone(&calls));
            tokio::spawn(async move {
                let mut request = tonic::Request::new(EchoRequest {
                    delay_ms: 5,
                    ..EchoRequest::default()
                });
                request.extensions_mut().insert(attempt);
                let result = client.unary(request).await;
                calls.lock().unwrap()[index].2 = Some((now(), result.err()));
            });
        }
    });
    (log, task)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing moves, the kernel acknowledges.
    Freeze,
    /// PINGs are acknowledged, and no request is answered.
    Mute,
}

impl Fault {
    fn begin(self, proxy: &FaultProxy, which: Which) {
        match self {
            Self::Freeze => proxy.freeze(which),
            Self::Mute => proxy.mute(which),
        }
    }

    fn end(self, proxy: &FaultProxy, which: Which) {
        match self {
            Self::Freeze => proxy.thaw(which),
            Self::Mute => proxy.unmute(which),
        }
    }
}

/// One of ten connections under 500 calls a second. Says how long the last call on it waited, and how often
/// this process stood still.
async fn one_of_ten(fault: Fault) -> (Duration, usize) {
    let echo = EchoProcess::start().await;
    let proxy = FaultProxy::start(echo.addr()).unwrap();
    let layer = stall(StallConfig::default());
    let pool = pool(proxy.uri(), 10, &layer).await;
    let (log, task) = load(&pool, Duration::from_millis(2));
    sleep(2 * SECOND).await;
    let one = Which::One(0);
    fault.begin(&proxy, one);
    let began = now();
    let shut = || {
        layer
            .snapshot()
            .into_iter()
            .find(|it| it.condition == Condition::Quarantined)
    };
    until("the quarantine", || shut().is_some()).await;
    let id = shut().unwrap().id;
    let quarantined = now();
    sleep(SECOND).await;
    let mut worst = Duration::ZERO;
    for (attempt, since, end) in &*log.lock().unwrap() {
        if attempt.channel() != Some(id) {
            continue;
        }
        assert!(*since <= quarantined, "a call began on it");
        let (ended, error) = end.as_ref().expect("it has ended");
        // What had passed before the fault may have been read after it.
        let Some(error) = error else {
            continue;
        };
        assert!(is_quarantine(error), "{error:?}");
        worst = worst.max(*ended - began);
    }
    assert!(worst > Duration::ZERO, "none waited on it");
    fault.end(&proxy, one);
    until("restoring", || shut().is_none()).await;
    assert!(serves(&pool, id).await);
    task.abort();
    (worst, local_stalls(&layer))
}

/// Whether a call that would rather use this channel comes there and is answered.
async fn serves(pool: &Stack, id: ChannelId) -> bool {
    let attempt = Attempt::new();
    let mut request = tonic::Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    request.extensions_mut().insert(Prefer(id));
    let reply = soon("a call", EchoClient::new(pool.clone()).unary(request)).await;
    reply.is_ok() && attempt.channel() == Some(id)
}

/// S1–S5: a connection frozen under 10 channels at 500 calls a second: what waits on it ends, none begins
/// on it, and thawed it is restored and used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_connection() {
    let worst = on_time(|| one_of_ten(Fault::Freeze)).await;
    println!("the last call ended {worst:?} after the freeze");
    assert!(worst < 5 * SECOND, "{worst:?}");
}

/// S2: the same when PINGs are acknowledged and answers stop: no keepalive would see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_muted_connection() {
    let worst = on_time(|| one_of_ten(Fault::Mute)).await;
    println!("the last call ended {worst:?} after the mute");
    assert!(worst < 5 * SECOND, "{worst:?}");
}

/// Control: on a plain tonic channel such calls wait until the connection thaws.
#[tokio::test]
async fn on_plain_tonic_they_wait() {
    let echo = EchoProcess::start().await;
    for fault in [Fault::Freeze, Fault::Mute] {
        let proxy = FaultProxy::start(echo.addr()).unwrap();
        let endpoint = Endpoint::from_shared(proxy.uri()).unwrap();
        let mut client = EchoClient::new(endpoint.connect().await.unwrap());
        client.unary(EchoRequest::default()).await.unwrap();
        fault.begin(&proxy, Which::One(0));
        let mut call = std::pin::pin!(client.unary(EchoRequest::default()));
        // Nothing tells that nothing happens: twice what stall detection takes.
        assert!(timeout(4 * SECOND, &mut call).await.is_err(), "{fault:?}");
        fault.end(&proxy, Which::One(0));
        soon("the call", call).await.unwrap();
    }
}

/// What a server sends for streams that are dropped, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Late {
    Data(Duration),
    Headers(Duration),
}

/// A server whose streams fall silent after a message, with the probes of its first connection while
/// `silent`; and that goes on sending for streams that the client has reset.
fn stubborn(silent: &Arc<AtomicBool>, late: Late) -> Peer {
    let silent = Arc::clone(silent);
    let answer = move |request: &steadfast_testkit::peer::Request| {
        let stream = request.path.ends_with("ServerStream");
        let opening = match late {
            Late::Data(_) => vec![Step::AwaitRequest, Step::headers(), Step::good_message()],
            Late::Headers(_) => vec![Step::AwaitRequest],
        };
        let rest = match late {
            Late::Data(after) => vec![
                Step::Wait(after),
                Step::good_message(),
                Step::good_message(),
            ],
            Late::Headers(after) => vec![Step::Wait(after), Step::headers(), Step::status(0, "")],
        };
        if stream {
            Answer::steps(opening).after_reset(rest)
        } else if request.connection == 0 && silent.load(Ordering::SeqCst) {
            Answer::silence()
        } else {
            Answer::good()
        }
    };
    Peer::start(Script::new(answer)).unwrap()
}

/// Open streams, all of which wait.
async fn open_streams<S, B>(service: &S, peer: &Peer, count: usize) -> tokio::task::JoinSet<Status>
where
    S: tower::Service<http::Request<tonic::body::Body>, Response = http::Response<B>>
        + Clone
        + Send
        + 'static,
    S::Error: Into<steadfast::BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<steadfast::BoxError> + Send,
{
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..count {
        let mut client = EchoClient::new(service.clone());
        readers.spawn(async move {
            let mut stream = match client.server_stream(EchoRequest::default()).await {
                Ok(stream) => stream.into_inner(),
                Err(status) => return status,
            };
            loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ended well"),
                    Err(status) => return status,
                }
            }
        });
    }
    let opened = peer.wait_until(HANG, |seen| seen.open_streams() >= count);
    opened.await.unwrap();
    readers
}

/// One channel alone, on a connection of Egress or of tonic as it comes.
async fn channel_alone(
    peer: &Peer,
    layer: &StallDetectLayer,
) -> steadfast_core::Metered<StallDetect<EgressChannel>> {
    use steadfast_core::{ChannelLayer, NewChannel};
    let egress = Egress::new(peer.uri(), EgressConfig::default()).unwrap();
    let place = egress.places().remove(0);
    let dial = egress.new_channel(ChannelId::next(), &place);
    layer.layer_channel(soon("a dial", dial).await.unwrap())
}

/// S7: 1,500 open streams ended by one quarantine, and the server sends on for them, DATA or late HEADERS,
/// at once or 5 s later: no GOAWAY of the client, and the probe and a new call on the same connection
/// succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_1500_streams_keeps_the_connection() {
    tokio::join!(
        ending_1500_streams(Late::Data(Duration::ZERO)),
        ending_1500_streams(Late::Headers(Duration::ZERO)),
        ending_1500_streams(Late::Data(5 * SECOND)),
        ending_1500_streams(Late::Headers(5 * SECOND)),
    );
}

async fn ending_1500_streams(late: Late) {
    let silent = Arc::new(AtomicBool::new(false));
    let peer = stubborn(&silent, late);
    let layer = stall(StallConfig {
        resets: Some(4_096),
        ..StallConfig::alone()
    });
    let channel = channel_alone(&peer, &layer).await;
    silent.store(true, Ordering::SeqCst);
    let mut readers = open_streams(&channel, &peer, 1_500).await;
    while let Some(status) = soon("an end", readers.join_next()).await {
        let status = status.unwrap();
        assert!(is_quarantine(&status), "{late:?} {status:?}");
    }
    peer.wait_until(HANG, |seen| seen.resets.len() >= 1_500)
        .await
        .unwrap();
    silent.store(false, Ordering::SeqCst);
    let answered = || layer.snapshot()[0].condition == Condition::Serving;
    until("the probe's answer", answered).await;
    let (Late::Data(after) | Late::Headers(after)) = late;
    // What comes late has come.
    sleep(after + SECOND).await;
    let mut client = EchoClient::new(channel.clone());
    let call = client.unary(EchoRequest::default());
    soon("a call", call).await.unwrap();
    assert_eq!(peer.goaways(), [], "{late:?}");
    assert_eq!(peer.connections(), 1, "{late:?}");
}

/// S7: 1,200 of 1,500 dropped by their callers: the other 300 go on to their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_1200_of_1500_leaves_300() {
    let held = |request: &steadfast_testkit::peer::Request| match request.index {
        0..1_200 => Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()])
            .after_reset([Step::good_message(), Step::good_message()]),
        _ => Answer::steps([
            Step::AwaitRequest,
            Step::headers(),
            Step::Hold,
            Step::good_message(),
            Step::status(0, ""),
        ]),
    };
    let peer = Peer::start(Script::new(held)).unwrap();
    let layer = stall(StallConfig {
        enabled: false,
        ..StallConfig::alone()
    });
    let channel = channel_alone(&peer, &layer).await;
    let dropped = open_streams(&channel, &peer, 1_200).await;
    let mut kept = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let mut client = EchoClient::new(channel.clone());
        kept.spawn(async move {
            let stream = client.server_stream(EchoRequest::default()).await;
            let mut stream = stream?.into_inner();
            while stream.message().await?.is_some() {}
            Ok::<_, Status>(())
        });
    }
    peer.wait_until(HANG, |seen| seen.held == 300)
        .await
        .unwrap();
    drop(dropped);
    peer.wait_until(HANG, |seen| seen.resets.len() >= 1_200)
        .await
        .unwrap();
    peer.release_all();
    while let Some(done) = soon("an end", kept.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(peer.goaways(), []);
}

/// S7: on a transport that forgets what it has dropped, tonic's as it comes, the channel is given up: its
/// callers end at once, others notice nothing, and a new one is dialled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_forgetful_transport_the_channel_is_given_up() {
    let silent = Arc::new(AtomicBool::new(false));
    let bad = stubborn(&silent, Late::Data(Duration::ZERO));
    let good = Peer::start(Script::good()).unwrap();
    let layer = stall(StallConfig::default());
    let config = BalanceConfig {
        grow_on_demand: false,
        assumed_streams: 60_000,
        ..BalanceConfig::fixed(2)
    };
    let places = steadfast::Places::list([bad.uri(), good.uri()]);
    let factory = |_: ChannelId, place: steadfast::Place| async move {
        Endpoint::from_shared(place.to_string())?.connect().await
    };
    let pool = ServiceBuilder::new()
        .layer(BalanceLayer::new(config).unwrap().places(places))
        .layer(Each(layer.clone()))
        .service(factory);
    soon("warming", pool.warm(2)).await.unwrap();
    let channels = pool.snapshot().channels;
    let of = |uri: String| {
        channels
            .iter()
            .find(|it| it.place.as_str() == uri)
            .unwrap()
            .id
    };
    let (bad_id, good_id) = (of(bad.uri()), of(good.uri()));
    let to = |id: ChannelId| {
        let pool = pool.clone();
        tower::service_fn(move |mut request: http::Request<tonic::body::Body>| {
            request.extensions_mut().insert(Prefer(id));
            tower::ServiceExt::oneshot(pool.clone(), request)
        })
    };
    let neighbour = tokio::spawn({
        let mut client = EchoClient::new(to(good_id));
        async move {
            loop {
                client.unary(EchoRequest::default()).await.unwrap();
                sleep(Duration::from_millis(20)).await;
            }
        }
    });
    silent.store(true, Ordering::SeqCst);
    let mut readers = open_streams(&to(bad_id), &bad, 1_500).await;
    while let Some(status) = soon("an end", readers.join_next()).await {
        let status = status.unwrap();
        assert!(is_quarantine(&status), "{status:?}");
    }
    silent.store(false, Ordering::SeqCst);
    let replaced = bad.wait_until(HANG, |seen| seen.connections.len() == 2);
    replaced.await.unwrap();
    let given_up = decided(&layer.ring(), |it| matches!(it, Action::GiveUp(_, 1_500)));
    assert_eq!(given_up, 1, "{}", layer.ring());
    let new = || {
        let channels = pool.snapshot().channels;
        channels
            .iter()
            .any(|it| it.place.as_str() == bad.uri() && it.id != bad_id)
    };
    until("the new channel", new).await;
    assert!(!neighbour.is_finished(), "its neighbour failed");
    neighbour.abort();
}

/// S7, S9: around one plain channel that forgets, nobody comes on it before the server has had its say: what
/// it sends at once, or 5 s later, hurts no call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_on_a_forgetful_transport() {
    let silent = Arc::new(AtomicBool::new(true));
    let peer = stubborn(&silent, Late::Data(5 * SECOND));
    let layer = stall(StallConfig::alone());
    let endpoint = Endpoint::from_shared(peer.uri()).unwrap();
    let channel = layer.layer(endpoint.connect().await.unwrap());
    let mut readers = open_streams(&channel, &peer, 1_500).await;
    while let Some(status) = soon("an end", readers.join_next()).await {
        assert!(is_quarantine(&status.unwrap()));
    }
    silent.store(false, Ordering::SeqCst);
    let answered = || layer.snapshot()[0].condition == Condition::Serving;
    until("restoring", answered).await;
    for _ in 0..20 {
        let mut client = EchoClient::new(channel.clone());
        soon("a call", client.unary(EchoRequest::default()))
            .await
            .unwrap();
        sleep(Duration::from_millis(50)).await;
    }
    let goaways = peer.goaways();
    println!("the client gave up {} connections meanwhile", goaways.len());
}

/// X6: a probe that is answered with anything: an answer without an end, a huge one, one that isn't gRPC, a
/// reset, details that are no base64. Those with a status are answers, the others aren't, and nothing
/// worse happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_answers_to_the_probe() {
    let endless = {
        let mut steps = vec![Step::AwaitRequest, Step::headers()];
        for _ in 0..200 {
            steps.push(Step::Wait(Duration::from_millis(20)));
            steps.push(Step::Message(Bytes::from_static(&[0; 1_024])));
        }
        Answer::steps(steps)
    };
    let huge = Answer::steps([
        Step::AwaitRequest,
        Step::headers(),
        Step::Message(vec![0; 32 << 20].into()),
    ]);
    let html = Answer::steps([
        Step::AwaitRequest,
        Step::Headers {
            status: 200,
            fields: vec![("content-type".to_owned(), "text/html".to_owned())],
            end: false,
        },
        Step::Data {
            bytes: Bytes::from_static(b"<html>"),
            end: true,
        },
    ]);
    let details = Answer::steps([
        Step::AwaitRequest,
        Step::Headers {
            status: 200,
            fields: vec![
                ("grpc-status".to_owned(), "13".to_owned()),
                ("grpc-status-details-bin".to_owned(), "%%%".to_owned()),
            ],
            end: true,
        },
    ]);
    let reset = Answer::steps([Step::AwaitRequest, Step::Rst(2)]);
    let refused = Answer::steps([Step::AwaitRequest, Step::Rst(7)]);
    let unknown = Answer::steps([Step::AwaitRequest, Step::trailers_only(99, "")]);
    for (name, probe, answered) in [
        ("endless", endless, false),
        ("huge", huge, false),
        ("html", html, false),
        ("details", details, true),
        ("reset", reset, true),
        ("refused", refused, true),
        ("unknown status", unknown, true),
    ] {
        let answer = move |request: &steadfast_testkit::peer::Request| match &*request.path {
            HEALTH => probe.clone(),
            _ => Answer::silence(),
        };
        let peer = Peer::start(Script::new(answer)).unwrap();
        let layer = stall(StallConfig::alone());
        let channel = channel_alone(&peer, &layer).await;
        let mut client = EchoClient::new(channel.clone());
        let call = tokio::spawn(async move { client.unary(EchoRequest::default()).await });
        if answered {
            let probes = |seen: &steadfast_testkit::peer::PeerState| {
                seen.requests.iter().filter(|it| it.path == HEALTH).count() >= 2
            };
            peer.wait_until(HANG, probes).await.unwrap();
            assert!(!call.is_finished(), "{name}");
            assert_eq!(quarantines(&layer), 0, "{name}");
            call.abort();
        } else {
            let status = soon(name, call).await.unwrap().unwrap_err();
            assert!(is_quarantine(&status), "{name}: {status:?}");
        }
        assert_eq!(peer.connections(), 1, "{name}");
    }
}

/// S10: a runtime that is blocked for 3 s under load, one thread or all of several: nothing is quarantined,
/// and it is counted.
#[test]
fn a_blocked_runtime_quarantines_nothing() {
    for workers in [1, 2] {
        let mut builder = if workers == 1 {
            tokio::runtime::Builder::new_current_thread()
        } else {
            tokio::runtime::Builder::new_multi_thread()
        };
        let runtime = builder
            .worker_threads(workers)
            .enable_all()
            .build()
            .unwrap();
        let server = EchoThread::start();
        runtime.block_on(async {
            let layer = stall(StallConfig::default());
            let pool = pool(server.uri().to_owned(), 4, &layer).await;
            let (log, task) = load(&pool, Duration::from_millis(5));
            sleep(2 * SECOND).await;
            let blocked = (0..workers).map(|_| tokio::spawn(async { block(3 * SECOND) }));
            for blocked in blocked.collect::<Vec<_>>() {
                blocked.await.unwrap();
            }
            // A second of silence, one for a probe, and some more.
            sleep(3 * SECOND).await;
            task.abort();
            let ring = layer.ring();
            assert_eq!(quarantines(&layer), 0, "{workers} workers:\n{ring}");
            assert!(local_stalls(&layer) >= 1, "{workers} workers:\n{ring}");
            let failed = log
                .lock()
                .unwrap()
                .iter()
                .filter_map(|(_, _, end)| end.clone()?.1)
                .count();
            assert_eq!(failed, 0);
        });
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "to block the runtime is what the test is about"
)]
fn block(time: Duration) {
    std::thread::sleep(time);
}

/// The variable that makes a client of this test binary: the server's URI.
const CLIENT: &str = "STEADFAST_STALL_CLIENT";

/// S10: the client's process is stopped for 5 s under load, as by SIGSTOP: nothing is quarantined, and it is
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_client_quarantines_nothing() {
    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };
    use std::process::{Command, Stdio};
    let echo = EchoProcess::start().await;
    let mut client = Command::new(std::env::current_exe().unwrap());
    client
        .args([
            "--exact",
            "the_client_that_is_stopped",
            "--nocapture",
            "--ignored",
        ])
        .env(CLIENT, echo.uri())
        .stdout(Stdio::piped());
    let client = client.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(client.id()).unwrap());
    until("the client's calls", || echo.calls() > 200).await;
    kill(pid, Signal::SIGSTOP).unwrap();
    sleep(5 * SECOND).await;
    kill(pid, Signal::SIGCONT).unwrap();
    let output = tokio::task::spawn_blocking(move || client.wait_with_output());
    let output = soon("the client", output).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text
        .lines()
        .find(|line| line.starts_with("stalls="))
        .expect(&text);
    println!("{line}");
    let number = |name: &str| -> usize {
        let found = line.split(' ').find_map(|part| part.strip_prefix(name));
        found.unwrap().parse().unwrap()
    };
    assert_eq!(
        (number("quarantines="), number("failed=")),
        (0, 0),
        "{text}"
    );
    assert!(number("stalls=") >= 1, "{text}");
}

/// Not a test: the process that is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part of a_stopped_client_quarantines_nothing"]
async fn the_client_that_is_stopped() {
    let Ok(uri) = std::env::var(CLIENT) else {
        return;
    };
    let layer = stall(StallConfig::default());
    let pool = pool(uri, 4, &layer).await;
    let (log, task) = load(&pool, Duration::from_millis(5));
    until("the stop", || local_stalls(&layer) > 0).await;
    sleep(4 * SECOND).await;
    task.abort();
    let failed = log
        .lock()
        .unwrap()
        .iter()
        .filter_map(|(_, _, end)| end.clone()?.1)
        .count();
    let (stalls, quarantines) = (local_stalls(&layer), quarantines(&layer));
    println!("{}", layer.ring());
    println!("\nstalls={stalls} quarantines={quarantines} failed={failed}");
}
