//! What people reported of connections that got stuck, with StallDetect under Balance: real tonic channels in
//! memory, on a paused clock. Without it, see `reports_silent`.

use std::time::Duration;

use steadfast::{
    Attempt, Balance, BalanceConfig, BalanceLayer, ChannelId, Each, Local, LocalKind, Place,
    Places, Standing,
};
use steadfast_core::{Bottom, now};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::{Action, Condition, HealthProbe, StallConfig, StallDetect, StallDetectLayer};
use steadfast_testkit::{
    memory::{self, Network},
    peer::{Answer, Peer, Request, Script, Step},
};
use tokio::time::{sleep, timeout};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tower::ServiceBuilder;

const SECOND: Duration = Duration::from_secs(1);
const HEALTH: &str = "/grpc.health.v1.Health/Check";

type Stack = Balance<StallDetect<Bottom<Channel>>>;

struct Bed {
    network: Network,
    peer: Peer,
    layer: StallDetectLayer,
    pool: Stack,
}

impl Bed {
    async fn new(
        channels: usize,
        config: StallConfig,
        scripts: impl Fn(u64) -> Script + Send + Sync + 'static,
    ) -> Self {
        let (network, incoming) = memory::network();
        let peer = Peer::serve(incoming, scripts);
        let layer = StallDetectLayer::new(config, HealthProbe::new()).unwrap();
        let dial = network.clone();
        let factory = move |_: ChannelId, _: Place| {
            let dial = dial.clone();
            async move {
                Endpoint::from_static("http://memory")
                    .connect_with_connector(dial)
                    .await
            }
        };
        let balance = BalanceLayer::new(BalanceConfig::fixed(channels)).unwrap();
        let pool = ServiceBuilder::new()
            .layer(balance.places(Places::list(["a"])))
            .layer(Each(layer.clone()))
            .service(factory);
        pool.warm(channels).await.unwrap();
        Self {
            network,
            peer,
            layer,
            pool,
        }
    }

    /// Callers one after another on all channels, so that each but the stuck one keeps receiving.
    fn busy(&self, callers: usize) -> tokio::task::JoinSet<()> {
        let pause = Duration::from_millis(100);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let pool = self.pool.clone();
            tasks.spawn(async move {
                loop {
                    let _ = EchoClient::new(pool.clone())
                        .unary(EchoRequest::default())
                        .await;
                    sleep(pause).await;
                }
            });
        }
        tasks
    }

    fn quarantines(&self) -> usize {
        let ring = self.layer.ring();
        let quarantined = ring
            .decisions()
            .filter(|(_, it)| matches!(it, Action::Quarantine(..)));
        quarantined.count()
    }
}

fn is_quarantine(status: &Status) -> bool {
    Local::find(status).map(Local::kind) == Some(LocalKind::Quarantine)
}

/// The first connection's warm-up and `answers` more are good, and then it is deaf; the others are good.
fn deaf_first(answers: u64) -> impl Fn(u64) -> Script + Send + Sync + 'static {
    move |connection| match connection {
        0 => Script::deaf(1 + answers),
        _ => Script::good(),
    }
}

/// A channel that keeps its dead socket while each call on it times out after 120 ms: it is quarantined
/// after one window of silence, calls succeed elsewhere, and once it has been dead for a minute one
/// replacement is dialled.
#[tokio::test(start_paused = true)]
async fn a_dead_socket_under_short_deadlines() {
    let bed = Bed::new(3, StallConfig::default(), deaf_first(1)).await;
    let mut lost = 0;
    let began = now();
    while began.elapsed() < 10 * SECOND {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let pool = bed.pool.clone();
            calls.spawn(async move {
                let call = EchoClient::new(pool).unary(EchoRequest::default()).await;
                call.is_ok()
            });
        }
        // Each has its 120 ms.
        while let Ok(Some(done)) = timeout(Duration::from_millis(120), calls.join_next()).await {
            lost += usize::from(!done.unwrap());
        }
        lost += calls.len();
        sleep(Duration::from_millis(30)).await;
    }
    assert_eq!(bed.quarantines(), 1, "{}", bed.layer.ring());
    assert!(
        lost <= 2 * 30,
        "{lost} lost: two of six for two seconds at most"
    );
    let dials = bed.network.state().dials;
    assert_eq!(dials, 3);
    let _busy = bed.busy(4);
    sleep(120 * SECOND).await;
    assert_eq!(bed.network.state().dials, dials + 1, "one replacement");
}

/// Two hundred callers time out on a dead connection at once: no thrashing, one replacement.
#[tokio::test(start_paused = true)]
async fn two_hundred_timeouts_make_one_replacement() {
    let config = StallConfig::default();
    let bed = Bed::new(4, config, deaf_first(0)).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let pool = bed.pool.clone();
        calls.spawn(async move {
            let mut client = EchoClient::new(pool);
            let _ = timeout(3 * SECOND, client.unary(EchoRequest::default())).await;
        });
    }
    let _busy = bed.busy(6);
    sleep(180 * SECOND).await;
    assert_eq!(bed.network.state().dials, 5, "{}", bed.layer.ring());
}

/// A soft limit before the hard one: a channel that is silent for 100 ms gets no new request while another
/// has room, but its open ones go on and succeed if the answer comes before the probe's time is over.
#[tokio::test(start_paused = true)]
async fn no_new_requests_before_the_hard_limit() {
    let config = StallConfig {
        silence: Duration::from_millis(100),
        answer: Duration::from_millis(500),
        tick: Duration::from_millis(10),
        ..StallConfig::default()
    };
    let after = |time| {
        Answer::steps([
            Step::AwaitRequest,
            Step::Wait(Duration::from_millis(time)),
            Step::headers(),
            Step::good_message(),
            Step::status(0, ""),
        ])
    };
    // Its probes, but for the warm-up, are no better than its answers.
    let scripts = move |connection| {
        Script::new(
            move |request: &Request| match (connection, &*request.path) {
                (0, HEALTH) if request.index > 0 => Answer::silence(),
                (_, HEALTH) => Answer::good(),
                (0, _) => after(300),
                _ => after(5),
            },
        )
    };
    let bed = Bed::new(2, config, scripts).await;
    // Which one leads where is found out by trying.
    let mut tried = 0;
    let (id, open) = loop {
        let attempt = Attempt::new();
        let mut request = tonic::Request::new(EchoRequest::default());
        request.extensions_mut().insert(attempt.clone());
        request
            .metadata_mut()
            .insert("x-slow", "1".parse().unwrap());
        let mut client = EchoClient::new(bed.pool.clone());
        let open = tokio::spawn(async move { client.unary(request).await });
        sleep(Duration::from_millis(2)).await;
        let last = bed.peer.requests().last().cloned().unwrap();
        if last.connection == 0 {
            break (attempt.channel().unwrap(), open);
        }
        open.await.unwrap().unwrap();
        tried += 1;
        assert!(tried < 100);
    };
    let _busy = bed.busy(2);
    let suspect = || {
        let states = bed.layer.snapshot();
        states.iter().find(|it| it.id == id).unwrap().condition == Condition::Suspect
    };
    while !suspect() {
        sleep(Duration::from_millis(1)).await;
        assert!(!open.is_finished());
    }
    let on_it = || {
        let requests = bed.peer.requests();
        requests
            .iter()
            .filter(|it| it.connection == 0 && it.path != HEALTH)
            .count()
    };
    let before = on_it();
    let standing = bed
        .pool
        .snapshot()
        .channels
        .iter()
        .find(|it| it.id == id)
        .unwrap()
        .standing;
    assert_eq!(standing, Standing::Reserve);
    sleep(Duration::from_millis(150)).await;
    assert_eq!(on_it(), before, "no new request");
    open.await.unwrap().unwrap();
    sleep(SECOND).await;
    assert_eq!(
        bed.quarantines(),
        0,
        "what came meanwhile is better than an answer"
    );
}

/// A server that accepts a request, acknowledges PINGs and never answers: keepalive is content, and the
/// probe, which is a request, isn't.
#[tokio::test(start_paused = true)]
async fn a_server_that_only_acknowledges_pings() {
    let first_is_mute = |connection| match connection {
        0 => Script::new(|request: &Request| match request.index {
            // Its warm-up.
            0 => Answer::good(),
            _ => Answer::silence(),
        }),
        _ => Script::good(),
    };
    let bed = Bed::new(3, StallConfig::default(), first_is_mute).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let pool = bed.pool.clone();
        calls.spawn(async move { EchoClient::new(pool).unary(EchoRequest::default()).await });
    }
    let _busy = bed.busy(4);
    let began = now();
    let (mut good, mut cut) = (0, 0);
    while let Some(call) = calls.join_next().await {
        match call.unwrap() {
            Ok(_) => good += 1,
            Err(status) => {
                assert!(is_quarantine(&status), "{status:?}");
                cut += 1;
            }
        }
    }
    assert!(good >= 8 && cut >= 1, "{good} good, {cut} cut");
    assert!(
        began.elapsed() <= Duration::from_millis(2_150),
        "{:?}",
        began.elapsed()
    );
}

/// A long stream and a unary call on a connection that falls silent, neither with a deadline: both end
/// within the window, and the next calls go elsewhere.
#[tokio::test(start_paused = true)]
async fn a_stream_and_a_call_without_deadlines() {
    let first_stops = |connection| match connection {
        0 => Script::new(|request: &Request| match request.index {
            0 => Answer::good(),
            _ => Answer::steps([Step::AwaitRequest, Step::headers(), Step::good_message()]),
        }),
        _ => Script::new(|request: &Request| match &*request.path {
            "/steadfast.test.Echo/ServerStream" => Answer::steps([
                Step::AwaitRequest,
                Step::headers(),
                Step::Wait(30 * SECOND),
                Step::status(0, ""),
            ]),
            _ => Answer::good(),
        }),
    };
    let bed = Bed::new(3, StallConfig::default(), first_stops).await;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let pool = bed.pool.clone();
        streams.spawn(async move {
            let stream = EchoClient::new(pool)
                .server_stream(EchoRequest::default())
                .await;
            let mut stream = stream?.into_inner();
            while stream.message().await?.is_some() {}
            Ok::<_, Status>(())
        });
    }
    let _busy = bed.busy(6);
    let began = now();
    let mut cut = 0;
    while let Some(ended) = streams.join_next().await {
        if let Err(status) = ended.unwrap() {
            assert!(is_quarantine(&status), "{status:?}");
            assert!(
                began.elapsed() <= Duration::from_millis(2_200),
                "{:?}",
                began.elapsed()
            );
            cut += 1;
        }
    }
    assert!(cut >= 1, "{}", bed.layer.ring());
    assert_eq!(
        bed.quarantines(),
        1,
        "idle streams that answer their probes go on: {}",
        bed.layer.ring()
    );
}
