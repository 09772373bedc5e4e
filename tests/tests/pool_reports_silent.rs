//! What people reported of connections that fall silent, with a whole pool above them.

use std::time::Duration;

use steadfast::{Condition, Keepalive, Pool};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::{Action, Spared};
use steadfast_testkit::{
    peer::{Answer, Peer, Script},
    proxy::{FaultProxy, Which},
};
use steadfast_tests::{
    HANG, soon,
    whole::{
        HEALTH, builder, busy, channel_at, channels, decided, on, quarantines, quick, ready, unary,
        until,
    },
};
use tokio::{task::JoinSet, time::sleep};
use tonic::{Code, Request, Status};

const SECOND: Duration = Duration::from_secs(1);
/// The callers' own time-out.
const SHORT: Duration = Duration::from_millis(120);

/// The first connections answer their warm-up and this many calls, and then nothing at all; the others are
/// good.
fn deaf(connections: u64, answers: u64) -> Peer {
    let scripts = move |connection| match connection {
        number if number < connections => Script::deaf(1 + answers),
        _ => Script::good(),
    };
    Peer::scripted(scripts).unwrap()
}

/// A call that its caller gives up after a while.
async fn short(pool: &Pool, time: Duration) -> Result<(), Status> {
    let mut request = Request::new(EchoRequest::default());
    request.set_timeout(time);
    let mut client = EchoClient::new(pool.clone());
    soon("a call", client.unary(request)).await.map(drop)
}

/// When replacements were asked for.
fn replacements(pool: &Pool) -> Vec<Duration> {
    let ring = pool.stall().ring();
    let replace = |(at, action)| matches!(action, Action::Replace(..)).then_some(at);
    ring.decisions().filter_map(replace).collect()
}

/// Eight callers with this time-out, until a channel is quarantined, or for so long. Says how many calls were
/// served and lost.
async fn short_calls(pool: &Pool, time: Duration, limit: Duration) -> (usize, usize) {
    let (mut callers, began) = (JoinSet::new(), now());
    for _ in 0..8 {
        let pool = pool.clone();
        callers.spawn(async move {
            let (mut served, mut lost) = (0, 0);
            while quarantines(&pool) == 0 && began.elapsed() < limit {
                match short(&pool, time).await {
                    Ok(()) => served += 1,
                    Err(status) => {
                        let code = status.code();
                        assert_eq!(code, Code::DeadlineExceeded, "{status}");
                        lost += 1;
                    }
                }
                sleep(Duration::from_millis(1)).await;
            }
            (served, lost)
        });
    }
    let ends = soon("the calls", callers.join_all()).await;
    let sum = |(a, b), (c, d)| (a + c, b + d);
    ends.into_iter().fold((0, 0), sum)
}

/// S1, S4, S5: a connection that keeps its dead socket, under calls whose callers wait for 120 ms: some are
/// lost until the silence has been long enough, then none is, and one replacement is dialled. Control, with
/// stall detection off: some are lost as long as one looks.
#[tokio::test]
async fn a_dead_socket_costs_a_window_of_silence() {
    for watched in [false, true] {
        let peer = deaf(1, 1);
        let mut config = quick(2);
        config.stall.enabled = watched;
        config.stall.dead_after = SECOND;
        config.stall.replace_every = SECOND;
        let pool = ready(builder(&[peer.uri()], config), 2).await;
        let limit = if watched { HANG } else { SECOND * 3 / 2 };
        let (served, lost) = short_calls(&pool, SHORT, limit).await;
        assert!(served > lost && lost > 0, "{served} served, {lost} lost");
        if !watched {
            let (_, lost) = short_calls(&pool, SHORT, SECOND / 2).await;
            assert!(lost > 0 && peer.connections() == 2);
            continue;
        }
        let replaced = peer.wait_until(HANG, |seen| seen.connections.len() == 3);
        for _ in 0..100 {
            unary(&pool).await.unwrap();
        }
        replaced.await.unwrap();
        assert_eq!((quarantines(&pool), replacements(&pool).len()), (1, 1));
        assert_eq!(peer.connections(), 3, "one replacement");
        assert!(pool.penalty().snapshot().is_empty(), "nobody is blamed");
    }
}

/// T2: with an attempt time-out no call is lost, from the first on: the next attempt goes elsewhere within the
/// caller's time.
#[tokio::test]
async fn an_attempt_time_out_saves_calls_with_short_deadlines() {
    let peer = deaf(1, 1);
    let mut config = quick(2);
    config.retry.attempt_timeout = Some(SHORT);
    // However slow the machine is: it isn't attempts that these calls are short of.
    config.retry.attempts = 100;
    config.retry.budget = false;
    let pool = ready(builder(&[peer.uri()], config), 2).await;
    let (served, lost) = short_calls(&pool, HANG / 2, HANG).await;
    assert!(served > 0 && lost == 0, "{served} served, {lost} lost");
    assert!(pool.retry().snapshot().repeated > 0);
    assert_eq!(quarantines(&pool), 1);
}

/// S5: two hundred callers time out at once on two dead connections of five. No time-out dials anything; the
/// two are replaced one after the other, the second a cool-down later, and then no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_time_outs_make_one_replacement_per_cool_down() {
    let peer = deaf(2, 0);
    let mut config = quick(5);
    config.stall.dead_after = SECOND;
    config.stall.replace_every = SECOND * 2;
    let pool = ready(builder(&[peer.uri()], config), 5).await;
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let pool = pool.clone();
        calls.spawn(async move { short(&pool, SHORT).await.is_err() });
    }
    let lost = soon("the calls", calls.join_all()).await;
    let lost = lost.into_iter().filter(|lost| *lost).count();
    assert!(lost >= 60, "{lost}: two fifths of them");
    assert_eq!(peer.connections(), 5, "no time-out dials");
    let _busy = busy(&pool);
    let replaced = peer.wait_until(HANG, |seen| seen.connections.len() == 7);
    replaced.await.unwrap();
    let well = || {
        let states = pool.stall().snapshot();
        let serving = |it: &steadfast::ChannelState| it.condition == Condition::Serving;
        states.len() == 5 && states.iter().all(serving)
    };
    until("five that serve", well).await;
    // Longer than another cool-down.
    sleep(SECOND * 5 / 2).await;
    assert_eq!(peer.connections(), 7, "{}", pool.stall().ring());
    let replacements = replacements(&pool);
    assert_eq!(replacements.len(), 2);
    assert!(
        replacements[1] - replacements[0] >= SECOND * 2,
        "{replacements:?}"
    );
}

/// Who acknowledges PINGs on a connection whose requests nobody answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Acknowledges {
    Server,
    /// In front of a server that is never asked.
    Proxy,
}

/// Calls over three connections of which one acknowledges PINGs and answers nothing, with a keepalive that
/// pings several times in a window. Says how many of 24 calls were answered in that time.
async fn answered(who: Acknowledges, watched: bool) -> usize {
    let script = |request: &steadfast_testkit::peer::Request| match &*request.path {
        // Its warm-up.
        HEALTH if request.index == 0 => Answer::good(),
        _ => Answer::silence(),
    };
    let mute = Peer::start(Script::new(script)).unwrap();
    let good = Peer::start(Script::good()).unwrap();
    let proxy = FaultProxy::start(good.addr()).unwrap();
    let first = match who {
        Acknowledges::Server => mute.uri(),
        Acknowledges::Proxy => proxy.uri(),
    };
    let other = Peer::start(Script::good()).unwrap();
    let mut config = quick(3);
    let times = Duration::from_millis(100);
    config.egress.keepalive = Some(Keepalive::new(times, SECOND));
    config.stall.enabled = watched;
    let pool = ready(
        builder(&[first.clone(), good.uri(), other.uri()], config),
        3,
    )
    .await;
    proxy.mute(Which::One(0));
    let stuck = channel_at(&pool, &first);
    let mut calls = JoinSet::new();
    for channel in channels(&pool).into_iter().cycle().take(24) {
        let mut client = EchoClient::new(pool.clone());
        calls.spawn(async move { client.unary(on(channel).0).await });
    }
    let _busy = busy(&pool);
    let mut answered = 0;
    // Nothing tells that nothing happens: three times what stall detection takes.
    let limit = if watched { HANG } else { SECOND * 2 };
    while let Ok(Some(call)) = tokio::time::timeout(limit, calls.join_next()).await {
        call.unwrap().unwrap();
        answered += 1;
    }
    assert_eq!(quarantines(&pool), usize::from(watched));
    // Keepalive was content all the time: it is the same channel, on the same connection.
    assert!(channels(&pool).contains(&stuck));
    let (pings, open) = match who {
        Acknowledges::Server => (mute.pings(), mute.open_connections()),
        Acknowledges::Proxy => {
            let connections = proxy.connections();
            let open = connections.iter().filter(|it| it.open).count();
            (connections[0].pings, open)
        }
    };
    assert!(pings > 0 && open == 1, "{pings} pings, {open} open");
    answered
}

/// S2: a server that acknowledges PINGs and answers no request, and a load balancer that does so in front of
/// one: keepalive is content, only a probe that is a request tells, and all calls are answered elsewhere.
/// Control, without it: those on that connection wait for ever.
#[tokio::test]
async fn acknowledged_pings_are_no_answer() {
    let (server, proxy) = (Acknowledges::Server, Acknowledges::Proxy);
    let runs = tokio::join!(
        answered(server, true),
        answered(proxy, true),
        answered(server, false),
        answered(proxy, false),
    );
    assert_eq!(runs, (24, 24, 16, 16));
}

/// S6: three of four connections stall at once: nothing is quarantined and the reason is counted, and what
/// comes to the fourth is served. When two of them thaw, the one that is left is quarantined, so it was only
/// their share that spared it; and its calls are answered elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_stalled_of_four_are_not_quarantined() {
    let peer = Peer::start(Script::good()).unwrap();
    let proxies = [(); 4].map(|()| FaultProxy::start(peer.addr()).unwrap());
    let places: Vec<_> = proxies.iter().map(FaultProxy::uri).collect();
    let mut config = quick(4);
    // Long enough for all three to become suspect, one a little after the other.
    config.stall.answer = SECOND;
    let pool = ready(builder(&places, config), 4).await;
    let _busy = busy(&pool);
    let last = channel_at(&pool, &places[3]);
    for proxy in &proxies[..3] {
        proxy.freeze(Which::One(0));
    }
    let spared = |action: &Action| matches!(action, Action::Spare(_, Spared::TooMany, _));
    until("sparing them", || decided(&pool, spared) >= 3).await;
    assert_eq!(quarantines(&pool), 0, "{}", pool.stall().ring());
    for _ in 0..20 {
        let (request, attempt) = on(last);
        let mut client = EchoClient::new(pool.clone());
        soon("a call", client.unary(request)).await.unwrap();
        assert_eq!(attempt.channel(), Some(last));
    }
    for proxy in &proxies[1..3] {
        proxy.thaw(Which::One(0));
    }
    until("its quarantine", || quarantines(&pool) > 0).await;
    let states = pool.stall().snapshot();
    let out = states
        .iter()
        .filter(|it| it.condition == Condition::Quarantined);
    let out: Vec<_> = out.map(|it| it.id).collect();
    assert_eq!(out, [channel_at(&pool, &places[0])]);
    unary(&pool).await.unwrap();
}
