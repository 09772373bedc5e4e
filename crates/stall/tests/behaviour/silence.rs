//! S1, S6: which silences make a suspect.

use std::time::Duration;

use http_body_util::BodyExt;
use steadfast_core::{Probing, Standing};
use steadfast_stall::{Action, Condition, Note, Spared, StallConfig, StallDetectLayer};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};

use crate::common::{
    Asked, Fleet, SECOND, TICK, assert_quarantined, call, request, settle, spawn_call,
};

/// S1, S4: one caller that waits is enough: a second of silence, a second for the probe, and it is ended.
#[tokio::test(start_paused = true)]
async fn one_waiting_caller_is_enough() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    let began = steadfast_core::now();
    let call = spawn_call(&fleet.channels[0], "/ok");
    let suspect = fleet.until(0, Condition::Suspect).await;
    assert!(suspect >= SECOND && suspect <= SECOND + TICK, "{suspect:?}");
    assert_eq!(
        fleet.channels[0].meter().read().standing(),
        Standing::Reserve
    );
    let (result, ended) = call.await.unwrap();
    assert_quarantined(&result.unwrap_err());
    let took = ended - began;
    assert!(took >= 2 * SECOND && took <= 2 * SECOND + TICK, "{took:?}");
    assert_eq!(fleet.channels[0].meter().read().standing(), Standing::Shut);
    assert_eq!((fleet.servers[0].probes(), fleet.probes()), (1, 1));
}

/// S1: callers in turn are enough too, each of which gives up long before a second is over.
#[tokio::test(start_paused = true)]
async fn callers_with_short_deadlines_are_enough() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(1..3);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    let channel = fleet.channels[0].clone();
    let impatient = tokio::spawn(async move {
        let limit = Duration::from_millis(120);
        while let Err(_) | Ok(Ok(_)) = tokio::time::timeout(limit, call(&channel, "/ok")).await {}
    });
    let took = fleet.until(0, Condition::Quarantined).await;
    assert!(took <= 2 * SECOND + 2 * TICK, "{took:?}");
    impatient.await.unwrap();
    // But not if nobody waits in between.
    for _ in 0..20 {
        let limit = Duration::from_millis(120);
        let call = call(&fleet.channels[3], "/hangs");
        assert!(tokio::time::timeout(limit, call).await.is_err());
        sleep(Duration::from_millis(120)).await;
    }
    assert_eq!(fleet.servers[3].probes(), 0);
}

/// S1: a channel is not suspect as long as anything comes for a caller within the second, for whomever.
#[tokio::test(start_paused = true)]
async fn a_channel_that_moves_is_no_suspect() {
    let mut fleet = Fleet::new(2);
    fleet.keep_busy([0, 1]);
    // This one waits for ever, while others get what they ask for.
    let waits = spawn_call(&fleet.channels[0], "/hangs");
    fleet.servers[0].when_asked(Asked::Never);
    sleep(600 * SECOND).await;
    assert_eq!(fleet.probes(), 0);
    assert!(!waits.is_finished());
    waits.abort();
}

/// S1: callers that don't poll don't wait: a slow reader, a reader with data in hand, and one that went
/// away. In an hour, no suspect.
#[tokio::test(start_paused = true)]
async fn slow_readers_make_no_suspect() {
    let mut fleet = Fleet::new(2);
    fleet.keep_busy([1]);
    let channel = fleet.channels[0].clone();
    // Frames are always there when it asks, which is every 10 s.
    let slow = tokio::spawn({
        let channel = channel.clone();
        async move {
            let mut body = call(&channel, "/now").await.unwrap().into_body();
            settle().await;
            loop {
                body.frame().await.unwrap().unwrap();
                sleep(10 * SECOND).await;
            }
        }
    });
    // It holds its stream, and never asks.
    let idle = call(&channel, "/stream").await.unwrap();
    sleep(3_600 * SECOND).await;
    assert_eq!(fleet.probes(), 0, "{}", fleet.layer.ring());
    assert!(!slow.is_finished());
    drop(idle);
}

/// S1: not while no other channel keeps receiving: it may be the server, the network or this process.
#[tokio::test(start_paused = true)]
async fn nothing_happens_while_no_other_receives() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    fleet.servers.iter().for_each(|server| server.freeze());
    sleep(30 * SECOND).await;
    assert_eq!(fleet.probes(), 0, "{}", fleet.layer.ring());
    fleet.servers.iter().for_each(|server| server.thaw());
    sleep(3 * SECOND).await;
    assert!((0..4).all(|channel| fleet.condition(channel) == Condition::Serving));
}

/// S1: another must have received again before the probe ended.
#[tokio::test(start_paused = true)]
async fn others_that_stop_meanwhile_spare_it() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    fleet.servers[0].freeze();
    fleet.until(0, Condition::Suspect).await;
    fleet.servers.iter().for_each(|server| server.freeze());
    // What was on its way when it became suspect may have come.
    let ended = fleet.until(0, Condition::Unanswered).await;
    let standing = fleet.channels[0].meter().read().standing();
    assert_eq!(standing, Standing::Open, "spared, it stays in service");
    assert!(ended <= SECOND + TICK);
    let spared = fleet
        .layer
        .ring()
        .decisions()
        .any(|(_, action)| matches!(action, Action::Spare(_, Spared::NoOthers, _)));
    assert!(spared, "{}", fleet.layer.ring());
}

/// S6: three of four fall silent at once: none is put in quarantine, and why is counted.
#[tokio::test(start_paused = true)]
async fn three_of_four_at_once() {
    let mut fleet = Fleet::new(4);
    fleet.keep_busy(0..4);
    sleep(3 * SECOND).await;
    for server in &fleet.servers[..3] {
        server.freeze();
    }
    sleep(30 * SECOND).await;
    let ring = fleet.layer.ring();
    let decided = |is: fn(&Action) -> bool| ring.decisions().filter(|(_, it)| is(it)).count();
    assert!(
        decided(|it| matches!(it, Action::Spare(_, Spared::TooMany, _))) >= 3,
        "{ring}"
    );
    assert_eq!(
        decided(|it| matches!(it, Action::Quarantine(..))),
        0,
        "{ring}"
    );
    // They are asked again, but not all the time.
    assert!(fleet.probes() <= 3 * 10, "{}", fleet.probes());
    for server in &fleet.servers[..3] {
        server.thaw();
    }
    sleep(15 * SECOND).await;
    assert!((0..4).all(|channel| fleet.condition(channel) == Condition::Serving));
}

/// S2: a probe of whoever is nobody's call: it doesn't wait, and what comes for it is no sign of life of a
/// channel to the others.
#[tokio::test(start_paused = true)]
async fn probes_are_not_watched() {
    let fleet = Fleet::new(2);
    let mut marked = request("/hangs");
    marked.extensions_mut().insert(Probing::new());
    let mut channel = fleet.channels[1].clone();
    fleet.servers[1].freeze();
    let waits = tokio::spawn(async move { channel.call(marked).await.map(drop) });
    // Another one's probes are answered all the time.
    let mut other = fleet.channels[0].clone();
    let probing = tokio::spawn(async move {
        loop {
            let mut marked = request("/ok");
            marked.extensions_mut().insert(Probing::new());
            crate::common::read(other.call(marked).await.unwrap())
                .await
                .unwrap();
        }
    });
    let caller = spawn_call(&fleet.channels[1], "/ok");
    sleep(10 * SECOND).await;
    let notes: Vec<_> = fleet
        .layer
        .ring()
        .entries()
        .map(|entry| entry.note)
        .collect();
    let joined = |note: &Note| matches!(note, Note::Fact(steadfast_stall::Fact::Joined(_)));
    assert!(notes.iter().all(joined), "{notes:?}");
    assert_eq!(
        fleet.layer.snapshot()[1].waiting,
        1,
        "the caller, not the probe"
    );
    probing.abort();
    caller.abort();
    waits.abort();
}

/// The switch: a layer that is off does nothing, and its channels have nothing of it.
#[tokio::test(start_paused = true)]
async fn switched_off_it_leaves_no_trace() {
    let off = StallConfig {
        enabled: false,
        ..StallConfig::default()
    };
    let mut fleet = Fleet::with(2, off);
    fleet.keep_busy([1]);
    assert!(fleet.channels.iter().all(|it| it.warm_up().is_none()));
    assert!(fleet.channels[0].service().meter().is_none());
    fleet.servers[0].freeze();
    let caller = spawn_call(&fleet.channels[0], "/ok");
    sleep(Duration::from_secs(60)).await;
    assert!(!caller.is_finished());
    assert_eq!((fleet.probes(), fleet.layer.snapshot().len()), (0, 0));
    caller.abort();
}

/// S1: channels that join are none that receive: while nobody gets anything anywhere, a caller that waits makes no
/// suspect, however many are dialled meanwhile.
#[tokio::test(start_paused = true)]
async fn channels_that_join_receive_nothing() {
    let probe = |_: &steadfast_core::Place| Ok(http::Request::new(()));
    let layer = StallDetectLayer::new(StallConfig::default(), probe).unwrap();
    type Never = Result<http::Response<http_body_util::Empty<bytes::Bytes>>, std::io::Error>;
    let silent = || tower::service_fn(|_: http::Request<()>| std::future::pending::<Never>());
    let first = layer.layer(silent());
    let waits = tokio::spawn(first.clone().oneshot(http::Request::new(())));
    let mut joined = vec![first];
    for _ in 0..10 {
        sleep(SECOND * 2 / 5).await;
        joined.push(layer.layer(silent()));
    }
    let ring = layer.ring();
    let suspect = |action: Action| matches!(action, Action::Suspect(..) | Action::Quarantine(..));
    assert!(!ring.decisions().any(|(_, it)| suspect(it)), "{ring}");
    assert!(!waits.is_finished());
}
