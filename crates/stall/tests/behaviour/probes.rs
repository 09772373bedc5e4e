//! S2, S3, S12: what is an answer, when a probe is asked, and what it is when it can't be prepared.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use http::Request;
use steadfast_core::{
    BottomLayer, BoxError, ChannelLayer, Metered, Place, Prepared, Probe, Standing,
};
use steadfast_stall::{Action, Condition, StallConfig, StallDetectLayer};
use tokio::time::{Duration, sleep};
use tower::Service;

use crate::common::{Asked, Fleet, SECOND, Server, request, settle, spawn_call};

/// A fleet whose first channel answers nobody but, perhaps, the probe.
async fn mute(asked: Asked) -> Fleet {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].when_asked(asked);
    fleet
}

/// S2: any status is an answer, and a channel that answers stays in service.
#[tokio::test(start_paused = true)]
async fn any_status_keeps_a_channel_in_service() {
    for asked in [
        Asked::Status(0),
        Asked::Status(7),
        Asked::Status(12),
        Asked::Status(14),
        Asked::Http(404),
        Asked::Http(503),
    ] {
        let fleet = mute(asked).await;
        let waits = spawn_call(&fleet.channels[0], "/hangs");
        sleep(60 * SECOND).await;
        assert_eq!(fleet.condition(0), Condition::Serving, "{asked:?}");
        let standing = fleet.channels[0].meter().read().standing();
        assert_eq!(standing, Standing::Open, "in reserve no longer");
        // S12: one a second, and the time it takes.
        assert!(
            fleet.servers[0].probes() <= 60,
            "{}",
            fleet.servers[0].probes()
        );
        waits.abort();
    }
}

/// S2: headers alone are no answer, nor is a connection that closes, nor silence.
#[tokio::test(start_paused = true)]
async fn headers_and_closings_are_no_answer() {
    for asked in [Asked::HeadOnly, Asked::Closes, Asked::Never] {
        let fleet = mute(asked).await;
        spawn_call(&fleet.channels[0], "/hangs");
        let took = fleet.until(0, Condition::Quarantined).await;
        assert!(took <= 3 * SECOND, "{asked:?} {took:?}");
    }
}

/// S12: while everything is idle nothing is probed, however long.
#[tokio::test(start_paused = true)]
async fn no_probe_while_everything_is_idle() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    fleet.servers.iter().for_each(|server| server.freeze());
    let idle = Fleet::new(4);
    sleep(3_600 * SECOND).await;
    assert_eq!((fleet.probes(), idle.probes()), (0, 0));
}

/// S12: switched off, no probe is sent, for warming neither.
#[tokio::test(start_paused = true)]
async fn probes_can_be_switched_off() {
    let off = StallConfig {
        probes: false,
        ..StallConfig::default()
    };
    let mut fleet = Fleet::with(4, off);
    fleet.keep_busy(1..4);
    sleep(3 * SECOND).await;
    assert!(fleet.channels.iter().all(|it| it.warm_up().is_none()));
    fleet.servers[0].freeze();
    let waits = spawn_call(&fleet.channels[0], "/ok");
    sleep(30 * SECOND).await;
    assert_eq!(fleet.probes(), 0);
    let ring = fleet.layer.ring();
    assert!(
        ring.decisions()
            .any(|(_, it)| matches!(it, Action::Spare(..)))
    );
    assert!(!waits.is_finished());
    waits.abort();
}

/// How a token is fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fetch {
    Takes(Duration),
    Fails,
    Hangs,
}

/// Where tokens come from.
#[derive(Clone)]
struct Tokens(Arc<Mutex<Fetch>>, Arc<AtomicUsize>);

impl Tokens {
    fn new(fetch: Fetch) -> Self {
        Self(Arc::new(Mutex::new(fetch)), Arc::default())
    }

    fn set(&self, fetch: Fetch) {
        *self.0.lock().unwrap() = fetch;
    }

    async fn fetch(self) -> Result<(), BoxError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let fetch = *self.0.lock().unwrap();
        match fetch {
            Fetch::Takes(time) => sleep(time).await,
            // As the token server's own failure looks.
            Fetch::Fails => return Err(tonic::ConnectError("no token server".into()).into()),
            Fetch::Hangs => pending().await,
        }
        Ok(())
    }
}

/// A probe that needs a token.
impl Probe for Tokens {
    type Body = ();

    fn prepare(&self, _: &Place) -> Prepared<()> {
        let fetch = self.clone().fetch();
        Box::pin(async move {
            fetch.await?;
            Ok(request("/probe"))
        })
    }
}

/// A layer below that fetches a token for each call.
#[derive(Clone)]
struct Auth<S>(S, Tokens);

impl<S> Service<Request<()>> for Auth<S>
where
    S: Service<Request<()>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let Self(mut inner, tokens) = self.clone();
        Box::pin(async move {
            // Calls have their token; only the probe needs a new one.
            if request.uri().path() == "/probe" {
                tokens.fetch().await?;
            }
            inner.call(request).await
        })
    }
}

struct Bed {
    fleet: Fleet,
    tokens: Tokens,
    silent: Server,
    healthy: Server,
}

/// Two more channels beside a busy fleet: one falls silent, one was quarantined and is well again; both
/// need a token to be asked, in the probe's preparation or in a layer below.
async fn bed(below: bool) -> (Bed, [usize; 2]) {
    let tokens = Tokens::new(Fetch::Takes(Duration::ZERO));
    let layer = if below {
        StallDetectLayer::new(StallConfig::default(), crate::common::probe).unwrap()
    } else {
        StallDetectLayer::new(StallConfig::default(), tokens.clone()).unwrap()
    };
    let mut fleet = Fleet::of(layer.clone(), 4);
    fleet.keep_busy(0..4);
    let (silent, healthy) = (Server::new(), Server::new());
    // Under a layer of its own kind the type is another; so the two are driven from here.
    for server in [&silent, &healthy] {
        let bottom = BottomLayer.layer_channel(Metered::new(server.clone()));
        let tokens = tokens.clone();
        let authed = bottom.map(|it| Auth(it, tokens));
        let mut channel = layer.layer_channel(authed);
        tokio::spawn(async move {
            loop {
                let ready = std::future::poll_fn(|cx| channel.poll_ready(cx)).await;
                if ready.is_ok() {
                    let _ = channel.call(request("/ok")).await;
                }
                sleep(Duration::from_millis(10)).await;
            }
        });
    }
    let bed = Bed {
        fleet,
        tokens,
        silent,
        healthy,
    };
    sleep(3 * SECOND).await;
    let states = bed.fleet.layer.snapshot();
    assert_eq!(states.len(), 6);
    (bed, [4, 5])
}

impl Bed {
    fn condition(&self, nth: usize) -> Condition {
        self.fleet.layer.snapshot()[nth].condition
    }

    async fn until(&self, nth: usize, condition: Condition) {
        for _ in 0..100_000 {
            if self.condition(nth) == condition {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!(
            "{:?}\n{}",
            self.fleet.layer.snapshot(),
            self.fleet.layer.ring()
        );
    }
}

/// S3: while tokens can't be had, a suspect that is silent stays in service and a quarantined channel that
/// is well stays out; when they can, the next probes quarantine the one and restore the other. Also when
/// the token is fetched by a layer below, and when it takes longer than a probe may.
#[tokio::test(start_paused = true)]
async fn no_token_no_verdict() {
    for below in [false, true] {
        for trouble in [Fetch::Fails, Fetch::Hangs] {
            let (bed, [silent, healthy]) = bed(below).await;
            bed.healthy.freeze();
            bed.until(healthy, Condition::Quarantined).await;
            bed.tokens.set(trouble);
            bed.healthy.thaw();
            bed.silent.freeze();
            let before = bed.tokens.1.load(Ordering::SeqCst);
            for _ in 0..60 {
                sleep(SECOND).await;
                let states = (bed.condition(silent), bed.condition(healthy));
                let in_service = [Condition::Serving, Condition::Suspect].contains(&states.0);
                assert!(
                    in_service && states.1 == Condition::Quarantined,
                    "{below} {trouble:?} {states:?}"
                );
            }
            let tried = bed.tokens.1.load(Ordering::SeqCst) - before;
            assert!(
                (6..=120).contains(&tried),
                "{below} {trouble:?}: {tried} tries"
            );
            // Longer than a probe's answer may take: it isn't in that time.
            bed.tokens.set(Fetch::Takes(3 * SECOND));
            bed.until(silent, Condition::Quarantined).await;
            bed.until(healthy, Condition::Serving).await;
        }
    }
}

/// S2, B6: what the layer brings to warm a new channel is its probe, with the time that the pool gives.
#[tokio::test(start_paused = true)]
async fn its_probe_warms_new_channels() {
    let fleet = Fleet::new(2);
    let warm = fleet.channels[0].warm_up().unwrap();
    let verdict = warm(5 * SECOND).await;
    assert!(matches!(verdict, steadfast_core::Verdict::Answered(_)));
    fleet.servers[0].freeze();
    let began = steadfast_core::now();
    let verdict = warm(5 * SECOND).await;
    assert!(matches!(verdict, steadfast_core::Verdict::NoAnswer(_)));
    assert_eq!(began.elapsed().as_secs(), 5);
    settle().await;
    assert_eq!(fleet.layer.ring().decisions().count(), 0);
}
