//! Whole pools, as `steadfast::Pool` builds them, on real sockets: with short times, so that tests are short.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use steadfast::{
    Attempt, BalanceConfig, ChannelId, Config, Kind, Local, LocalKind, Places, Pool, PoolBuilder,
    Prefer,
};
use steadfast_core::now;
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use steadfast_stall::Action;
use tokio::{task::JoinSet, time::sleep};
use tonic::{Request, Response, Status};

use crate::soon;

/// The echo service's unary call: idempotent in the pools of [`builder`].
pub const UNARY: &str = "/steadfast.test.Echo/Unary";
/// Its server-streaming call: idempotent in them, too.
pub const STREAM: &str = "/steadfast.test.Echo/ServerStream";
/// Its client-streaming call: not idempotent, a write.
pub const UPLOAD: &str = "/steadfast.test.Echo/ClientStream";
/// What the default probe asks.
pub const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// A fixed number of channels, with all layers on. A channel that falls silent is out after 0.6 s instead of
/// 2 s; what is too long for a tick is shortened with it.
#[must_use]
pub fn quick(channels: usize) -> Config {
    let mut config = Config {
        balance: BalanceConfig::fixed(channels),
        ..Config::default()
    };
    config.stall.silence = Duration::from_millis(300);
    config.stall.answer = Duration::from_millis(300);
    config.stall.tick = Duration::from_millis(20);
    config.stall.tolerance = Duration::from_millis(100);
    config.stall.reprobe = Duration::from_millis(300);
    config.stall.reprobe_most = Duration::from_secs(1);
    config
}

/// A pool over these places that reads no environment, in which unary calls and streams are idempotent.
#[must_use]
pub fn builder(places: &[String], config: Config) -> PoolBuilder {
    Pool::builder(places[0].clone())
        .places(Places::list(places.iter().cloned()))
        .config(config)
        .without_env()
        .retry([(UNARY, Kind::Held), (STREAM, Kind::Streaming)])
}

/// The pool, once all its channels are ready.
///
/// # Panics
/// When it isn't soon.
pub async fn ready(builder: PoolBuilder, channels: usize) -> Pool {
    let pool = builder.build().expect("good settings");
    soon("warming", pool.warm(channels)).await.expect("ready");
    pool
}

/// One unary call, bounded.
///
/// # Errors
/// What the call ended with.
pub async fn unary(pool: &Pool) -> Result<Response<EchoReply>, Status> {
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(EchoRequest::default())).await
}

/// A request that would rather use this channel, and the handle that tells which one it got.
#[must_use]
pub fn on(channel: ChannelId) -> (Request<EchoRequest>, Attempt) {
    let attempt = Attempt::new();
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    request.extensions_mut().insert(Prefer(channel));
    (request, attempt)
}

/// Whether a call comes to this channel and is answered there.
pub async fn serves(pool: &Pool, channel: ChannelId) -> bool {
    let (request, attempt) = on(channel);
    let mut client = EchoClient::new(pool.clone());
    let reply = soon("a call", client.unary(request)).await;
    reply.is_ok() && attempt.channel() == Some(channel)
}

/// The channels of the pool, oldest first.
#[must_use]
pub fn channels(pool: &Pool) -> Vec<ChannelId> {
    let mut ids: Vec<_> = pool.snapshot().channels.iter().map(|it| it.id).collect();
    ids.sort();
    ids
}

/// The only channel that leads to this place.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn channel_at(pool: &Pool, place: &str) -> ChannelId {
    let channels = pool.snapshot().channels;
    let at = channels.iter().find(|it| it.place.to_string() == place);
    at.expect("a channel of this place").id
}

/// Keeps a call going on each channel, whatever becomes of it, until the set is dropped: a channel is taken
/// for silent only while others receive something.
#[must_use]
pub fn busy(pool: &Pool) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for channel in channels(pool) {
        let pool = pool.clone();
        callers.spawn(async move {
            let mut client = EchoClient::new(pool);
            loop {
                let _ = client.unary(on(channel).0).await;
                sleep(Duration::from_millis(10)).await;
            }
        });
    }
    callers
}

/// How many decisions of this kind the pool's stall detection has made of late.
#[must_use]
pub fn decided(pool: &Pool, is: impl Fn(&Action) -> bool) -> usize {
    let ring = pool.stall().ring();
    ring.decisions().filter(|(_, action)| is(action)).count()
}

/// How many channels were put in quarantine of late.
#[must_use]
pub fn quarantines(pool: &Pool) -> usize {
    decided(pool, |action| matches!(action, Action::Quarantine(..)))
}

/// How often this process stood still of late: what a test measured then says nothing.
#[must_use]
pub fn local_stalls(pool: &Pool) -> usize {
    decided(pool, |action| matches!(action, Action::LocalStall(_)))
}

/// Whether an error of a generated client is the local mark of a quarantine.
#[must_use]
pub fn is_quarantine(status: &Status) -> bool {
    Local::find(status).map(Local::kind) == Some(LocalKind::Quarantine)
}

/// Waits until a condition holds, by looking: nothing tells when a layer's state changes.
///
/// # Panics
/// When it doesn't hold soon.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon(what, wait).await;
}

/// Runs a scenario again when this process was late in it, as a busy machine makes it: at most three times.
/// Says whether it was on time in the end; if not, the times that were measured say nothing.
pub async fn on_time<R, F: Future<Output = (R, usize)>>(scenario: impl Fn() -> F) -> (R, bool) {
    const TICK: Duration = Duration::from_millis(10);
    const LATE: Duration = Duration::from_millis(100);
    let mut tries = 0;
    loop {
        let worst = Arc::new(Mutex::new(Duration::ZERO));
        let seen = Arc::clone(&worst);
        let heartbeat = tokio::spawn(async move {
            loop {
                let began = now();
                sleep(TICK).await;
                let late = began.elapsed().saturating_sub(TICK);
                let mut worst = seen.lock().expect("nobody panics with it");
                *worst = late.max(*worst);
            }
        });
        let (result, stalls) = scenario().await;
        heartbeat.abort();
        let worst = *worst.lock().expect("nobody panics with it");
        let punctual = stalls == 0 && worst < LATE;
        tries += 1;
        if punctual || tries == 3 {
            return (result, punctual);
        }
        println!("this process stood still {stalls} times and was {worst:?} late: once more");
    }
}
