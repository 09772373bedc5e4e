//! Calls that find no channel: when they wait, for how long, and what they are told.

use std::time::Duration;

use crate::common::{Dial, Net, Readiness, call, local, request, send, settle};
use steadfast_balance::{BalanceConfig, Connectivity, Places};
use steadfast_core::{BoxError, LocalKind, Metered, NewChannel, Place, Prefer, Standing, now};
use tower::{Layer, Service};

fn config() -> BalanceConfig {
    BalanceConfig::fixed(2).named("test")
}

/// B7: a call waits for a dial that is under way.
#[tokio::test(start_paused = true)]
async fn waits_for_a_first_channel() {
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(3)));
    let pool = net.pool(config());
    let began = now();
    call(&pool, "/ok").await.unwrap();
    assert_eq!((now() - began).as_secs(), 3);
}

/// B7: at most for the connect budget; the error says what the pool was doing.
#[tokio::test(start_paused = true)]
async fn waits_no_longer_than_the_budget() {
    let net = Net::new();
    net.set("a", Dial::Hangs);
    let pool = net.pool(config());
    let began = now();
    let error = call(&pool, "/ok").await.unwrap_err();
    let waited = now() - began;
    assert!(waited <= Duration::from_millis(10_060), "{waited:?}");
    let (kind, text) = local(&error);
    assert_eq!(kind, LocalKind::NoChannel);
    assert!(
        text.contains("\"test\"") && text.contains("2 channels are connecting"),
        "{text}"
    );
}

/// B7: once every dial has failed a call fails at once, with the last cause, also while they are
/// dialled again.
#[tokio::test(start_paused = true)]
async fn fails_at_once_when_all_dials_failed() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(config());
    let error = call(&pool, "/ok").await.unwrap_err();
    let (kind, text) = local(&error);
    assert_eq!(kind, LocalKind::NoChannel);
    assert!(text.contains("dialling a: connection refused"), "{text}");
    assert_eq!(
        error.downcast_ref::<tonic::Status>().unwrap().code(),
        tonic::Code::Unavailable
    );
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Failing);
    net.set("a", Dial::Hangs);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(net.dials("a") > 2, "dialled again");
    let began = now();
    call(&pool, "/ok").await.unwrap_err();
    assert_eq!(
        now(),
        began,
        "a re-dial after a failure is nothing to wait for"
    );
}

/// B6, B7: when the server comes back, so does the pool.
#[tokio::test(start_paused = true)]
async fn recovers_with_the_server() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(config());
    call(&pool, "/ok").await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        net.dials("a") <= 2 * 10,
        "{} dials in a minute",
        net.dials("a")
    );
    net.set("a", Dial::Works);
    tokio::time::sleep(Duration::from_secs(36)).await;
    call(&pool, "/ok").await.unwrap();
    assert_eq!(*pool.connectivity().borrow(), Connectivity::Ready);
}

/// B7: always waiting up to a limit is a switch.
#[tokio::test(start_paused = true)]
async fn waits_for_ready_if_told_to() {
    let net = Net::new();
    net.set("a", Dial::Refuses);
    let pool = net.pool(BalanceConfig {
        wait_for_ready: Some(Duration::from_secs(5)),
        ..config()
    });
    let began = now();
    call(&pool, "/ok").await.unwrap_err();
    assert_eq!((now() - began).as_secs(), 5);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    settle().await;
    net.set("a", Dial::Works);
    waiting.await.unwrap().unwrap();
}

/// B7: the caller's deadline bounds the wait, ends as DEADLINE_EXCEEDED, and what is left of it goes on
/// with the request.
#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_the_wait() {
    let with_timeout = |timeout: &'static str| {
        let mut request = request("/ok");
        request
            .headers_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        request
    };
    let net = Net::new();
    net.set("a", Dial::After(Duration::from_secs(3)));
    let pool = net.pool(config());
    let began = now();
    let error = send(&pool, with_timeout("500m")).await.unwrap_err();
    assert_eq!((now() - began).as_millis(), 500);
    let (kind, text) = local(&error);
    assert_eq!(kind, LocalKind::Deadline);
    assert_eq!(
        error.downcast_ref::<tonic::Status>().unwrap().code(),
        tonic::Code::DeadlineExceeded
    );
    assert!(text.contains("500ms"), "{text}");
    send(&pool, with_timeout("10S")).await.unwrap();
    assert_eq!(net.timeouts(), [Some("7500000u".to_owned())]);
}

/// B7: a channel whose readiness fails while a call waits for it is condemned, and the call is picked
/// again.
#[tokio::test(start_paused = true)]
async fn a_call_is_picked_again_when_its_channel_is_lost() {
    let net = Net::new();
    let pool = net.pool(config());
    pool.warm(2).await.unwrap();
    for channel in &pool.snapshot().channels {
        net.set_readiness(channel.id, Readiness::Lost);
    }
    // Both are lost, long enough after they were made; their successors serve the call.
    tokio::time::sleep(Duration::from_secs(2)).await;
    call(&pool, "/ok").await.unwrap();
    assert_eq!(net.dials("a"), 4);
    assert_eq!(pool.snapshot().in_flight(), 0);
}

/// B7: the same when the channel is lost while the call already waits.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_leaves_a_channel_that_is_lost() {
    let net = Net::new();
    let pool = net.pool(config());
    pool.warm(2).await.unwrap();
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    net.set_readiness(ids[0], Readiness::Pending);
    net.set_readiness(ids[1], Readiness::Pending);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    // Long enough that their loss isn't taken for a failed dial.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    net.set_readiness(ids[0], Readiness::Lost);
    net.set_readiness(ids[1], Readiness::Lost);
    waiting.await.unwrap().unwrap();
}

/// B6, T5: when a channel is lost as soon as it is made, the error names the place and the cause.
#[tokio::test(start_paused = true)]
async fn the_cause_of_a_lost_channel_is_told() {
    let net = Net::new();
    let pool = net.pool(BalanceConfig::fixed(1));
    pool.warm(1).await.unwrap();
    net.set_readiness(pool.snapshot().channels[0].id, Readiness::Lost);
    let (_, text) = local(&call(&pool, "/ok").await.unwrap_err());
    assert!(
        text.contains("to a can't be used: the channel is gone"),
        "{text}"
    );
}

/// B7: a future that resolved and that its caller keeps, of a call or of a refusal, keeps no channel.
#[tokio::test(start_paused = true)]
async fn a_kept_future_keeps_nothing() {
    let net = Net::new();
    let mut pool = net.pool(BalanceConfig::fixed(1));
    pool.warm(1).await.unwrap();
    let mut answered = std::pin::pin!(Service::call(&mut pool, request("/ok")));
    answered.as_mut().await.map(drop).unwrap();
    net.set("a", Dial::Refuses);
    net.set_readiness(pool.snapshot().channels[0].id, Readiness::Lost);
    let mut refused = std::pin::pin!(Service::call(&mut pool, request("/ok")));
    assert!(refused.as_mut().await.map(drop).is_err());
    net.set("a", Dial::Works);
    pool.warm(1).await.unwrap();
    drop(pool);
    settle().await;
    assert_eq!(net.alive.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// A factory whose channels hand their meters out, so that a test can shut them.
struct Shuttable(
    Net,
    tokio::sync::mpsc::UnboundedSender<steadfast_core::Meter>,
);

impl NewChannel for Shuttable {
    type Service = crate::common::TestChannel;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Metered<crate::common::TestChannel>, BoxError>> + Send>,
    >;

    fn new_channel(&self, id: steadfast_core::ChannelId, place: &Place) -> Self::Future {
        let dial = self.0.factory().new_channel(id, place);
        let meters = self.1.clone();
        Box::pin(async move {
            let channel = dial.await?;
            let _ = meters.send(channel.meter().clone());
            Ok(channel)
        })
    }
}

/// B7: a channel in quarantine isn't picked while another can be; when all that is left is in
/// quarantine a call fails at once; opened again, it serves again.
#[tokio::test(start_paused = true)]
async fn quarantined_channels_are_not_picked() {
    let (meters, mut made) = tokio::sync::mpsc::unbounded_channel();
    let net = Net::new();
    let layer = steadfast_balance::BalanceLayer::new(config())
        .unwrap()
        .places(Places::list(["a"]));
    let pool = layer.layer(Shuttable(net.clone(), meters));
    pool.warm(2).await.unwrap();
    let owners = [
        made.recv().await.unwrap().owner(),
        made.recv().await.unwrap().owner(),
    ];
    let ids: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|channel| channel.id)
        .collect();
    owners[0].set_standing(Standing::Shut);
    for _ in 0..10 {
        call(&pool, "/ok").await.unwrap();
    }
    let served: Vec<_> = ids.iter().map(|id| net.served(*id)).collect();
    assert!(served.contains(&0) && served.contains(&10), "{served:?}");
    owners[1].set_standing(Standing::Shut);
    let (kind, text) = local(&call(&pool, "/ok").await.unwrap_err());
    assert_eq!(kind, LocalKind::NoChannel);
    assert!(
        text.contains("2 channels are connected but none may be picked"),
        "{text}"
    );
    owners[0].set_standing(Standing::Open);
    call(&pool, "/ok").await.unwrap();
}

/// B7: a channel that opens again is told to the calls that wait, also when the pool has other things to do
/// in that moment.
#[tokio::test(start_paused = true)]
async fn an_opened_channel_is_heard_of() {
    let (meters, mut made) = tokio::sync::mpsc::unbounded_channel();
    let net = Net::new();
    let config = BalanceConfig {
        wait_for_ready: Some(Duration::from_secs(5)),
        ..BalanceConfig::fixed(1)
    };
    let layer = steadfast_balance::BalanceLayer::new(config).unwrap();
    let layer = layer.places(Places::list(["a"]));
    let pool = layer.layer(Shuttable(net.clone(), meters));
    pool.warm(1).await.unwrap();
    let owner = made.recv().await.unwrap().owner();
    settle().await;
    let began = now();
    for _ in 0..50 {
        owner.set_standing(Standing::Shut);
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { call(&pool, "/ok").await.map(drop) }
        });
        settle().await;
        assert_eq!(pool.snapshot().waiting, 1);
        owner.set_standing(Standing::Open);
        pool.warm(0).await.unwrap();
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(now(), began);
}

/// B3, B9: a charge is no demand, and a channel that is held back isn't used for being preferred.
#[tokio::test(start_paused = true)]
async fn charges_and_preferences() {
    let (meters, mut made) = tokio::sync::mpsc::unbounded_channel();
    let net = Net::new();
    let layer = steadfast_balance::BalanceLayer::new(BalanceConfig::default()).unwrap();
    let layer = layer.places(Places::list(["a"]));
    let pool = layer.layer(Shuttable(net.clone(), meters));
    pool.warm(4).await.unwrap();
    let mut owners = Vec::new();
    for _ in 0..4 {
        owners.push(made.recv().await.unwrap().owner());
    }
    owners.iter().for_each(|owner| owner.set_charge(1_000));
    call(&pool, "/ok").await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(pool.snapshot().size(), 4);
    owners.iter().for_each(|owner| owner.set_charge(0));
    for standing in [Standing::Reserve, Standing::Shut] {
        owners[0].set_standing(standing);
        let channels = pool.snapshot().channels;
        let held_back = channels.iter().find(|c| c.standing == standing).unwrap().id;
        let before = net.served(held_back);
        for _ in 0..10 {
            let mut request = request("/ok");
            request.extensions_mut().insert(Prefer(held_back));
            send(&pool, request).await.unwrap();
        }
        assert_eq!(net.served(held_back), before, "{standing:?}");
    }
}

/// B7, B9: a preferred channel takes no more than its maximum of the waiting calls either.
#[tokio::test(start_paused = true)]
async fn a_preferred_channel_is_not_swamped() {
    let net = Net::new();
    net.set("early", Dial::After(Duration::from_secs(1)));
    net.set("late", Dial::Hangs);
    let pool = net.pool_at(config(), Places::list(["early", "late"]));
    let start = |request| {
        let pool = pool.clone();
        tokio::spawn(async move { send(&pool, request).await })
    };
    let _calls: Vec<_> = (0..30).map(|_| start(request("/held"))).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let early = pool.snapshot().channels[0].clone();
    assert_eq!((early.in_flight, pool.snapshot().waiting), (25, 5));
    let mut preferring = request("/held");
    preferring.extensions_mut().insert(Prefer(early.id));
    let _call = start(preferring);
    settle().await;
    let early = pool.snapshot().channels[0].clone();
    assert_eq!((early.in_flight, pool.snapshot().waiting), (25, 6));
}

/// B7: a call that waits for the readiness of a channel which is then shut goes to another one.
#[tokio::test(start_paused = true)]
async fn a_waiting_call_leaves_a_channel_that_is_shut() {
    let (meters, mut made) = tokio::sync::mpsc::unbounded_channel();
    let net = Net::new();
    let layer = steadfast_balance::BalanceLayer::new(config())
        .unwrap()
        .places(Places::list(["a"]));
    let pool = layer.layer(Shuttable(net.clone(), meters));
    pool.warm(2).await.unwrap();
    let owners = [
        made.recv().await.unwrap().owner(),
        made.recv().await.unwrap().owner(),
    ];
    for channel in &pool.snapshot().channels {
        net.set_readiness(channel.id, Readiness::Pending);
    }
    owners[1].set_standing(Standing::Shut);
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { call(&pool, "/ok").await.map(drop) }
    });
    settle().await;
    assert_eq!(pool.snapshot().in_flight(), 1);
    owners[1].set_standing(Standing::Open);
    owners[0].set_standing(Standing::Shut);
    let other = pool
        .snapshot()
        .channels
        .iter()
        .find(|c| c.standing == Standing::Open)
        .unwrap()
        .id;
    net.set_readiness(other, Readiness::Ready);
    waiting.await.unwrap().unwrap();
    assert_eq!(net.served(other), 1);
}

/// B12: without places a call fails at once and says so.
#[tokio::test(start_paused = true)]
async fn no_places_is_an_error() {
    let net = Net::new();
    let pool = net.pool_at(config(), Places::list::<Place>([]));
    let (_, text) = local(&call(&pool, "/ok").await.unwrap_err());
    assert!(text.contains("it has no places"), "{text}");
}

/// X6: a factory that panics is a failed dial; the pool goes on.
#[tokio::test(start_paused = true)]
async fn a_panicking_factory_is_a_failed_dial() {
    let net = Net::new();
    net.set("bad", Dial::Panics);
    let pool = net.pool_at(config(), Places::list(["bad", "good"]));
    for _ in 0..5 {
        call(&pool, "/ok").await.unwrap();
    }
    net.set("good", Dial::Panics);
    let alone = net.pool_at(config(), Places::list(["bad"]));
    let (_, text) = local(&call(&alone, "/ok").await.unwrap_err());
    assert!(
        text.contains("dialling bad: the channel factory panicked"),
        "{text}"
    );
}
