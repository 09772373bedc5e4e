//! What a pool and the layers of its channels say to each other: replacements, and probes for warming.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use steadfast_balance::{Balance, BalanceConfig, BalanceLayer, Places};
use steadfast_core::{
    Attempt, Bottom, ChannelId, ChannelLayer, Each, MeterOwner, Metered, Outcome, Standing, Verdict,
};
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use crate::common::{Dial, Net, RawChannel, call, request, settle};

const MINUTE: Duration = Duration::from_secs(60);

type Voice = (ChannelId, Arc<MeterOwner>);

/// A layer with a voice on each channel, and a probe that is answered when there is a permit.
#[derive(Clone)]
struct Watcher {
    voices: Arc<std::sync::Mutex<Vec<Voice>>>,
    answers: Arc<Semaphore>,
    probes: Arc<AtomicUsize>,
    unattempted: usize,
}

impl Watcher {
    fn new(answers: usize, unattempted: usize) -> Self {
        Self {
            voices: Arc::default(),
            answers: Arc::new(Semaphore::new(answers)),
            probes: Arc::default(),
            unattempted,
        }
    }

    fn voice(&self, nth: usize) -> Voice {
        self.voices.lock().unwrap()[nth].clone()
    }
}

impl<S> ChannelLayer<S> for Watcher {
    type Service = S;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<S> {
        let owner = Arc::new(channel.meter().owner());
        self.voices.lock().unwrap().push((channel.id(), owner));
        let watcher = self.clone();
        channel.with_warm_up(Arc::new(move |budget| {
            let watcher = watcher.clone();
            Box::pin(async move {
                if watcher.probes.fetch_add(1, Ordering::SeqCst) < watcher.unattempted {
                    return Verdict::NotAttempted("no token".into());
                }
                match tokio::time::timeout(budget, watcher.answers.acquire()).await {
                    Ok(permit) => permit.unwrap().forget(),
                    Err(_) => return Verdict::NoAnswer(Outcome::Timeout),
                }
                Verdict::Answered(Outcome::Status(12))
            })
        }))
    }
}

fn pool(net: &Net, watcher: &Watcher, channels: usize) -> Balance<Bottom<RawChannel>> {
    let layer = BalanceLayer::new(BalanceConfig::fixed(channels)).unwrap();
    layer
        .places(Places::list(["a"]))
        .layer(Each(watcher.clone()).layer(net.factory()))
}

fn ids(pool: &Balance<Bottom<RawChannel>>) -> Vec<ChannelId> {
    let channels = pool.snapshot().channels;
    channels.iter().map(|channel| channel.id).collect()
}

/// B6, S5: a replacement that a layer asks for joins before the old channel leaves, and the old one's
/// open response goes on.
#[tokio::test(start_paused = true)]
async fn a_layer_asks_for_a_replacement() {
    let net = Net::new();
    let watcher = Watcher::new(3, 0);
    let pool = pool(&net, &watcher, 2);
    pool.warm(2).await.unwrap();
    let (old, owner) = watcher.voice(0);
    let held = [
        call(&pool, "/held").await.unwrap(),
        call(&pool, "/held").await.unwrap(),
    ];
    net.set("a", Dial::After(Duration::from_secs(3)));
    owner.set_standing(Standing::Shut);
    owner.ask_for_replacement("quarantined 3 times within 10 min");
    owner.ask_for_replacement("asked twice, dialled once");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(net.dials("a"), 3);
    assert!(ids(&pool).contains(&old), "until the new one is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!ids(&pool).contains(&old));
    assert_eq!(ids(&pool).len(), 2);
    assert_eq!(pool.snapshot().draining.len(), 1);
    assert_eq!(owner.others(), Standing::Shut, "it drains");
    drop(held);
    settle().await;
    assert_eq!(pool.snapshot().draining.len(), 0);
}

/// B6, S5: a replacement that can't connect, or whose probe isn't answered, leaves the old channel where
/// it is; it isn't dialled again until the layer asks again.
#[tokio::test(start_paused = true)]
async fn a_failed_replacement_is_not_repeated() {
    let net = Net::new();
    let watcher = Watcher::new(2, 0);
    let pool = pool(&net, &watcher, 2);
    pool.warm(2).await.unwrap();
    let before = ids(&pool);
    let (_, owner) = watcher.voice(0);
    net.set("a", Dial::Refuses);
    owner.ask_for_replacement("for a test");
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!((net.dials("a"), ids(&pool)), (3, before.clone()));
    net.set("a", Dial::Works);
    owner.ask_for_replacement("again, and its probe gets no answer");
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!((net.dials("a"), ids(&pool)), (4, before.clone()));
    watcher.answers.add_permits(1);
    owner.ask_for_replacement("and again");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(net.dials("a"), 5);
    assert_ne!(ids(&pool), before);
}

/// B6: a probe that a layer brings warms new channels; until it is answered the channel hasn't joined
/// and says so to its layers (S6).
#[tokio::test(start_paused = true)]
async fn a_layers_probe_warms_new_channels() {
    let net = Net::new();
    let watcher = Watcher::new(0, 2);
    let pool = pool(&net, &watcher, 1);
    let warming = {
        let pool = pool.clone();
        tokio::spawn(async move { pool.warm(1).await })
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(watcher.probes.load(Ordering::SeqCst), 3, "two unattempted");
    assert_eq!(ids(&pool).len(), 0);
    let (_, owner) = watcher.voice(0);
    assert_eq!(owner.others(), Standing::Shut);
    watcher.answers.add_permits(1);
    warming.await.unwrap().unwrap();
    assert_eq!(owner.others(), Standing::Open);
    assert_eq!(net.dials("a"), 1);
}

/// B6: a probe that the pool was given goes before a layer's.
#[tokio::test(start_paused = true)]
async fn the_pools_own_probe_goes_first() {
    let net = Net::new();
    let watcher = Watcher::new(0, 0);
    let layer = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
    let pool = layer
        .places(Places::list(["a"]))
        .warm_up(|_: &steadfast_core::Place| Ok(request("/ok")))
        .layer(Each(watcher.clone()).layer(net.factory()));
    pool.warm(1).await.unwrap();
    assert_eq!(watcher.probes.load(Ordering::SeqCst), 0);
}

/// T2: the extensions of a refused call go back to the attempt that asked for them.
#[tokio::test(start_paused = true)]
async fn a_refused_call_gives_its_extensions_back() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(BalanceConfig::fixed(1));
    let attempt = Attempt::new();
    attempt.keep_extensions();
    let mut request = request("/ok");
    request.extensions_mut().insert(attempt.clone());
    request.extensions_mut().insert("a tenant");
    assert!(pool.clone().call(request).await.is_err());
    let back = attempt.take_extensions().unwrap();
    assert_eq!(back.get(), Some(&"a tenant"));
}
