//! What all channels of one layer share: the timer, the reserve, who joins and who leaves.

mod support;

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};

use http::Request;
use steadfast_core::{
    Abandoned, Attempt, ChannelLayer, Each, Keep, Meter, Metered, NewChannel, Place, Standing,
};
use steadfast_penalty::{PenaltyWindow, PenaltyWindowLayer};
use steadfast_testkit::body::BodyScript;
use support::{Scripted, flat, grpc, head, scripted, trailers_only, whole};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::Notify,
    time::advance,
};
use tower::{Layer, Service};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

type Channel = Metered<PenaltyWindow<Scripted>>;

fn failing(layer: &PenaltyWindowLayer) -> Channel {
    layer.layer_channel(Metered::new(scripted(|| trailers_only(14))))
}

fn pool<const N: usize>(layer: &PenaltyWindowLayer) -> [Channel; N] {
    std::array::from_fn(|_| failing(layer))
}

async fn fail(channel: &mut Channel) {
    let _ = channel.call(Request::new(())).await;
}

fn standing(meter: &Meter) -> Standing {
    meter.read().standing()
}

/// Lets the timer's task run.
async fn settle() {
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
}

async fn pass(time: Duration) {
    settle().await;
    advance(time).await;
    settle().await;
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// P1: the charge goes after 5 s, though nobody calls or picks.
#[tokio::test(start_paused = true)]
async fn the_window_ends_by_itself() {
    let layer = flat();
    let mut channel = failing(&layer);
    fail(&mut channel).await;
    pass(4 * S).await;
    fail(&mut channel).await;
    pass(5 * S - MS).await;
    assert_eq!(channel.meter().read().charge(), 25, "renewed: P6");
    pass(2 * MS).await;
    assert_eq!(channel.meter().read().charge(), 0);
}

/// One task while a window runs, none before and after, and none that outlives the layer.
#[tokio::test(start_paused = true)]
async fn the_timer_lives_no_longer_than_it_must() {
    let layer = flat();
    let mut channels: [Channel; 3] = pool(&layer);
    settle().await;
    assert_eq!(tasks(), 0);
    for channel in &mut channels {
        fail(channel).await;
        pass(S).await;
    }
    assert_eq!(tasks(), 1);
    pass(6 * S).await;
    assert_eq!(tasks(), 0);
    fail(&mut channels[0]).await;
    settle().await;
    assert_eq!(tasks(), 1, "a new one when it is needed");
    drop(channels);
    settle().await;
    assert_eq!(tasks(), 0, "nothing is penalised any more");
    let mut channel = failing(&layer);
    fail(&mut channel).await;
    settle().await;
    drop((channel, layer));
    settle().await;
    assert_eq!(tasks(), 0, "gone with the layer");
}

/// P5: the channel's meter goes into reserve, and gets a trial a second, until the window is over.
#[tokio::test(start_paused = true)]
async fn reserve_with_a_trickle() {
    let layer = PenaltyWindowLayer::default();
    let mut channels: [Channel; 4] = pool(&layer);
    fail(&mut channels[0]).await;
    let meter = channels[0].meter().clone();
    assert_eq!(standing(&meter), Standing::Reserve);
    assert_eq!(meter.read().charge(), 0);
    for second in 1..=4 {
        pass(S - 10 * MS).await;
        assert!(!meter.read().on_trial(), "{second}");
        pass(11 * MS).await;
        assert!(meter.read().on_trial(), "{second}");
        meter.claim(meter.read()).unwrap();
        assert!(!meter.read().on_trial(), "used up: {second}");
    }
    pass(S).await;
    assert_eq!(standing(&meter), Standing::Open);
    assert_eq!(channels[1].meter().read().charge(), 0);
}

/// P5: a trial comes in time, though the timer slept until the end of a window when a channel that
/// joined made the reserve possible.
#[tokio::test(start_paused = true)]
async fn a_trickle_after_joining() {
    let layer = PenaltyWindowLayer::default();
    let mut alone = failing(&layer);
    fail(&mut alone).await;
    assert_eq!(standing(alone.meter()), Standing::Open);
    settle().await;
    let _second = failing(&layer);
    assert_eq!(standing(alone.meter()), Standing::Reserve);
    pass(S + MS).await;
    assert!(alone.meter().read().on_trial());
}

/// P5: a failure on trial renews the window.
#[tokio::test(start_paused = true)]
async fn a_failed_trial() {
    let layer = PenaltyWindowLayer::default();
    let mut channels: [Channel; 2] = pool(&layer);
    fail(&mut channels[0]).await;
    for _ in 0..20 {
        pass(S + MS).await;
        assert!(channels[0].meter().read().on_trial());
        channels[0]
            .meter()
            .claim(channels[0].meter().read())
            .unwrap();
        fail(&mut channels[0]).await;
        assert_eq!(standing(channels[0].meter()), Standing::Reserve);
    }
}

/// P5: half of the pool at most; a channel that is shut by another layer is no part of it, also when
/// that comes later.
#[tokio::test(start_paused = true)]
async fn half_of_the_usable_pool() {
    let layer = PenaltyWindowLayer::default();
    let mut channels: [Channel; 4] = pool(&layer);
    fail(&mut channels[0]).await;
    fail(&mut channels[1]).await;
    let reserve = |channels: &[Channel]| -> Vec<bool> {
        let meters = channels.iter().map(Metered::meter);
        meters
            .map(|meter| standing(meter) == Standing::Reserve)
            .collect()
    };
    assert_eq!(reserve(&channels), [true, true, false, false]);
    let stall = channels[2].meter().owner();
    stall.set_standing(Standing::Shut);
    pass(S + MS).await;
    assert_eq!(
        reserve(&channels),
        [false; 4],
        "two of three, seen within a second"
    );
    assert_eq!(channels[0].meter().read().charge(), 25);
    stall.set_standing(Standing::Open);
    fail(&mut channels[2]).await;
    assert_eq!(reserve(&channels), [false; 4], "three of four");
    assert_eq!(channels[2].meter().read().charge(), 25);
}

/// P5: what other layers hold back is known when a failure comes, not only when the timer looks.
#[tokio::test(start_paused = true)]
async fn half_of_what_is_usable_now() {
    let layer = PenaltyWindowLayer::default();
    let mut channels: [Channel; 2] = pool(&layer);
    let stall = channels[1].meter().owner();
    stall.set_standing(Standing::Shut);
    fail(&mut channels[0]).await;
    assert_eq!(standing(channels[0].meter()), Standing::Open, "one of one");
    assert_eq!(channels[0].meter().read().charge(), 25);
}

/// X6: a waiting call whose waker panics takes down the call that woke it; the fleet goes on.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("somebody's waker");
        }
    }
    let layer = PenaltyWindowLayer::default();
    let [mut a, mut b, c, d] = pool(&layer);
    let bell = Arc::new(Notify::new());
    a.meter().ring_on_change(Arc::clone(&bell));
    let mut waiting = pin!(bell.notified());
    let bomb = Waker::from(Arc::new(Bomb));
    let pending = waiting.as_mut().poll(&mut Context::from_waker(&bomb));
    assert!(pending.is_pending());
    let meter = a.meter().clone();
    let crash = tokio::spawn(async move { fail(&mut a).await });
    assert!(crash.await.unwrap_err().is_panic());
    fail(&mut b).await;
    assert_eq!(standing(b.meter()), Standing::Reserve);
    assert_eq!(standing(&meter), Standing::Open, "it left with its task");
    drop((c, d));
}

/// The last clone of a service takes the channel out of the pool, with its penalty; an exchange that
/// is still open then changes nothing.
#[tokio::test(start_paused = true)]
async fn leaving() {
    let layer = PenaltyWindowLayer::default();
    let [mut a, b] = pool(&layer);
    fail(&mut a).await;
    assert_eq!(standing(a.meter()), Standing::Reserve);
    let other = b.clone();
    drop(b);
    assert_eq!(standing(a.meter()), Standing::Reserve, "a clone keeps it");
    drop(other);
    assert_eq!(standing(a.meter()), Standing::Open, "one of one");
    assert_eq!(a.meter().read().charge(), 25);

    let open = || grpc(BodyScript::default().message(b"a").error("x"));
    let mut leaver = layer.layer_channel(Metered::new(scripted(open)));
    let meter = leaver.meter().clone();
    let attempt = Attempt::new();
    let mut request = Request::new(());
    request.extensions_mut().insert(attempt.clone());
    let body = leaver.call(request).await.unwrap().into_body();
    drop(leaver);
    attempt.abandon(Abandoned::GapTimeout);
    drop(body);
    assert_eq!(
        (standing(&meter), meter.read().charge()),
        (Standing::Open, 0)
    );
    assert_eq!(layer.snapshot().len(), 1);
}

/// A penalty goes from the meter when its channel leaves, though an exchange is open.
#[tokio::test(start_paused = true)]
async fn leaving_takes_the_penalty_back() {
    let layer = flat();
    let reply = || {
        let body = BodyScript::default().wait().start().0;
        Ok(http::Response::builder().status(503).body(body).unwrap())
    };
    let mut channel = layer.layer_channel(Metered::new(scripted(reply)));
    let meter = channel.meter().clone();
    let response = channel.call(Request::new(())).await.unwrap();
    assert_eq!(meter.read().charge(), 25);
    drop(channel);
    assert_eq!(meter.read().charge(), 0);
    assert!(layer.snapshot().is_empty());
    drop(response);
    assert_eq!(meter.read().charge(), 0);
}

/// X1: lifted onto a factory's channels, under another layer, it speaks on the channel's own meter.
#[tokio::test(start_paused = true)]
async fn on_every_channel_of_a_factory() {
    let layer = PenaltyWindowLayer::new(flat().config().clone().following(40)).unwrap();
    let factory = |_, _: Place| async { Ok::<_, tonic::Status>(scripted(|| trailers_only(13))) };
    let factory = tower::ServiceBuilder::new()
        .layer(Each(Keep(tower::layer::layer_fn(|service| service))))
        .layer(Each(layer.clone()))
        .service(factory);
    let id = steadfast_core::ChannelId::next();
    let mut channel = factory.new_channel(id, &Place::default()).await.unwrap();
    let _ = channel.call(Request::new(())).await.unwrap();
    assert_eq!(channel.meter().read().charge(), 40);
    let snapshot = layer.snapshot();
    assert_eq!((snapshot.len(), snapshot[0].0), (1, id));
    assert_eq!(snapshot[0].1.charge, 40);
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// It is built outside a runtime; a failure that is seen outside one, where nothing could end its
/// window, isn't counted.
#[test]
fn outside_a_runtime() {
    let layer = flat();
    let mut service = layer.layer(scripted(|| grpc(BodyScript::default().wait())));
    let attempt = Attempt::new();
    let mut request = Request::new(());
    request.extensions_mut().insert(attempt.clone());
    let response = runtime().block_on(service.call(request)).unwrap();
    attempt.abandon(Abandoned::GapTimeout);
    drop(response);
    assert_eq!(service.meter().read().charge(), 0);
}

/// A runtime that ends takes the timer with it; the next failure starts another, which ends all
/// windows.
#[test]
fn the_runtime_ends_first() {
    let layer = flat();
    let [mut a, mut b] = pool(&layer);
    runtime().block_on(async {
        fail(&mut a).await;
        settle().await;
    });
    assert_eq!(a.meter().read().charge(), 25);
    runtime().block_on(async {
        fail(&mut b).await;
        pass(6 * S).await;
        assert_eq!(tasks(), 0);
    });
    assert_eq!(a.meter().read().charge(), 0);
    assert_eq!(b.meter().read().charge(), 0);
}

/// Failures on many threads: in the end every meter shows what the policy decided last.
#[test]
fn many_threads() {
    let runtime = runtime();
    let layer = PenaltyWindowLayer::default();
    let channels: [Channel; 4] = pool(&layer);
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for channel in &channels {
                let mut channel = channel.clone();
                let runtime = &runtime;
                scope.spawn(move || {
                    let _inside = runtime.enter();
                    for _ in 0..50 {
                        let call = pin!(fail(&mut channel));
                        let mut cx = Context::from_waker(Waker::noop());
                        assert!(call.poll(&mut cx).is_ready());
                    }
                });
            }
        });
        for channel in &channels {
            let reading = channel.meter().read();
            assert_eq!((reading.standing(), reading.charge()), (Standing::Open, 25));
        }
        runtime.block_on(async {
            pass(6 * S).await;
            assert_eq!(tasks(), 0);
        });
        for channel in &channels {
            let reading = channel.meter().read();
            assert_eq!((reading.standing(), reading.charge()), (Standing::Open, 0));
        }
    }
}

/// A service put on by hand has a meter of its own, and an id by which the snapshot names it.
#[tokio::test(start_paused = true)]
async fn around_one_service() {
    let layer = PenaltyWindowLayer::default();
    let mut service = layer.layer(scripted(|| trailers_only(8)));
    whole(&mut service).await;
    assert_eq!(
        service.meter().read().charge(),
        25,
        "one of one is never in reserve"
    );
    assert_eq!(layer.snapshot()[0].0, service.id());
    let _ = head(&mut service).await;
    assert_eq!(layer.snapshot()[0].1.failures, 2);
}
