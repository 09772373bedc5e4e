//! tower's contracts, as the whole of the layers that exist keeps them. In memory, on a paused clock.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use http_body_util::BodyExt;
use steadfast::{
    Balance, BalanceConfig, BalanceLayer, BoxError, ChannelId, Each, Outcome, PenaltyConfig,
    PenaltyWindow, PenaltyWindowLayer, Place, Places,
};
use steadfast_testkit::contract::{StrictService, StrictWatch, check_service};
use tower::{Layer, Service, ServiceExt};

type Pooled = Balance<PenaltyWindow<steadfast::Bottom<StrictService>>>;

/// Every channel's service, by its place, and how often the place was dialled.
#[derive(Clone, Default)]
struct Servers {
    watches: Arc<Mutex<HashMap<String, Vec<StrictWatch>>>>,
}

impl Servers {
    fn dials(&self, place: &str) -> usize {
        let watches = self.watches.lock().unwrap();
        watches.get(place).map_or(0, Vec::len)
    }

    fn last(&self, place: &str) -> StrictWatch {
        let watches = self.watches.lock().unwrap();
        watches[place].last().unwrap().clone()
    }

    fn all(&self) -> Vec<StrictWatch> {
        let watches = self.watches.lock().unwrap();
        watches.values().flatten().cloned().collect()
    }

    fn pool(&self, channels: usize, penalty: PenaltyWindowLayer, places: Places) -> Pooled {
        let servers = self.clone();
        let factory = move |_: ChannelId, place: Place| {
            let (service, watch) = StrictService::new();
            let mut watches = servers.watches.lock().unwrap();
            watches.entry(place.to_string()).or_default().push(watch);
            async move { Ok::<_, BoxError>(service) }
        };
        let balance = BalanceLayer::new(BalanceConfig::fixed(channels)).unwrap();
        balance.places(places).layer(Each(penalty).layer(factory))
    }
}

fn request() -> Request<()> {
    Request::new(())
}

fn unbroken(servers: &Servers) {
    for watch in servers.all() {
        assert_eq!(watch.violations(), []);
    }
}

async fn call(pool: &Pooled) -> Result<(), BoxError> {
    let response = pool.clone().oneshot(request()).await?;
    let body = response.into_body().collect().await?;
    assert!(body.trailers().is_some());
    Ok(())
}

/// X1, X6: each channel layer on a service that counts every breach: readiness isn't taken from another
/// instance nor lost, wakers are kept, errors keep their source, a kept future holds nothing.
#[tokio::test(start_paused = true)]
async fn channel_layers_keep_the_contract() {
    let penalty = || PenaltyWindowLayer::new(PenaltyConfig::default()).unwrap();
    let one = |service| penalty().layer(service);
    check_service(one, request).await.unwrap();
    let two = |service| penalty().layer(penalty().layer(service));
    check_service(two, request).await.unwrap();
}

/// B10, X6: clones of a pool that was ready, called at once and from many tasks, each call on a service
/// that was ready itself: no panic, no breach.
#[tokio::test(start_paused = true)]
async fn a_clone_has_a_readiness_of_its_own() {
    let servers = Servers::default();
    let places = Places::list(["a", "b"]);
    let mut pool = servers.pool(2, PenaltyWindowLayer::default(), places);
    pool.warm(2).await.unwrap();
    ServiceExt::<Request<()>>::ready(&mut pool).await.unwrap();
    // A clone of the ready one, called without asking; then the ready one itself, twice as ready.
    let of_clone = pool.clone().call(request());
    ServiceExt::<Request<()>>::ready(&mut pool).await.unwrap();
    let own = pool.call(request());
    let (of_clone, own) = tokio::join!(of_clone, own);
    drop((of_clone.unwrap(), own.unwrap()));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let pool = pool.clone();
        calls.spawn(async move { call(&pool).await });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap().unwrap();
    }
    unbroken(&servers);
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert!(servers.all().iter().all(|watch| watch.permits() == 0));
}

/// B6, B7: a member's poll_ready fails: that member alone goes, no call fails, and its place is back
/// after the back-off, with one dial. The failed service is never used again.
#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_costs_that_member_only() {
    let servers = Servers::default();
    let places = Places::list(["a", "b", "c"]);
    let pool = servers.pool(3, PenaltyWindowLayer::default(), places);
    pool.warm(3).await.unwrap();
    let before = pool.snapshot();
    let failed = servers.last("b");
    failed.fail_ready();
    for _ in 0..100 {
        call(&pool).await.unwrap();
    }
    // The first back-off: 1 s, give or take 20 %.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    pool.warm(3).await.unwrap();
    let dials = ["a", "b", "c"].map(|place| servers.dials(place));
    assert_eq!(dials, [1, 2, 1]);
    for _ in 0..100 {
        call(&pool).await.unwrap();
    }
    assert!(servers.last("b").calls() > 20, "it is used again");
    let kept = |id: ChannelId| before.channels.iter().any(|old| old.id == id);
    let after = pool.snapshot();
    assert_eq!(after.channels.iter().filter(|c| kept(c.id)).count(), 2);
    unbroken(&servers);
}

/// B1: futures that resolved and that their caller keeps hold nothing once their bodies are at an end:
/// neither a place in the count nor anything of the channel.
#[tokio::test(start_paused = true)]
async fn a_kept_future_holds_nothing() {
    let servers = Servers::default();
    let pool = servers.pool(1, PenaltyWindowLayer::default(), Places::list(["a"]));
    pool.warm(1).await.unwrap();
    let mut kept: Vec<_> = (0..50)
        .map(|_| Box::pin(pool.clone().call(request())))
        .collect();
    assert_eq!(pool.snapshot().in_flight(), 50);
    for future in &mut kept {
        let response = future.as_mut().await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
    let watch = servers.last("a");
    assert_eq!(
        (watch.futures(), watch.bodies(), watch.permits()),
        (0, 0, 0)
    );
    drop(kept);
    unbroken(&servers);
}

/// B12, B6: 200 members that appear at once, while calls wait for the first one: all are dialled once, all
/// join, and every one is used.
#[tokio::test(start_paused = true)]
async fn two_hundred_members_at_once() {
    let servers = Servers::default();
    let (sender, receiver) = tokio::sync::watch::channel(vec![Place::new("first")]);
    let pool = servers.pool(200, PenaltyWindowLayer::default(), Places::watch(receiver));
    let names: Vec<_> = (0..200).map(|n| format!("member-{n}")).collect();
    let bound = Duration::from_secs(5);
    call(&pool).await.unwrap();
    sender.send_replace(names.iter().map(|name| Place::new(name.as_str())).collect());
    let all_joined = async {
        while names.iter().any(|name| servers.dials(name) == 0) || pool.snapshot().size() != 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(bound, all_joined).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..2_000 {
        let pool = pool.clone();
        calls.spawn(async move { call(&pool).await });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap().unwrap();
    }
    for name in &names {
        assert_eq!(servers.dials(name), 1, "{name}");
        assert!(servers.last(name).calls() > 0, "{name}");
    }
    unbroken(&servers);
}

/// X6, P1: the user's predicate panics for one answer: that call fails, and no other; the pool counts
/// right and goes on, on the same channels.
#[tokio::test(start_paused = true)]
async fn a_panicking_predicate_fails_that_call_only() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let penalty = PenaltyWindowLayer::default().with_failures(move |_: &Outcome| {
        assert!(
            counted.fetch_add(1, Ordering::SeqCst) != 7,
            "a bug of the user's"
        );
        false
    });
    let servers = Servers::default();
    let pool = servers.pool(2, penalty, Places::list(["a", "b"]));
    pool.warm(2).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let pool = pool.clone();
        calls.spawn(async move { call(&pool).await });
    }
    let (mut panicked, mut served) = (0, 0);
    while let Some(done) = calls.join_next().await {
        match done {
            Ok(answer) => {
                answer.unwrap();
                served += 1;
            }
            Err(error) => {
                assert!(error.is_panic());
                panicked += 1;
            }
        }
    }
    assert_eq!((panicked, served), (1, 99));
    for _ in 0..100 {
        call(&pool).await.unwrap();
    }
    assert_eq!(pool.snapshot().in_flight(), 0);
    assert_eq!(["a", "b"].map(|place| servers.dials(place)), [1, 1]);
    unbroken(&servers);
}
