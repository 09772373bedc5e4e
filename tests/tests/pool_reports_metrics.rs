//! What people reported of metrics whose number grows with the addresses behind them, with a whole pool.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use metrics_util::debugging::{DebuggingRecorder, Snapshotter};
use steadfast::{Kind, Place, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, Peer, Request, Script, Step};
use steadfast_tests::{
    soon,
    whole::{HEALTH, UNARY, quick, until},
};
use tokio::sync::watch;

/// Places at a time. Each is an address of its own.
const AT_ONCE: u32 = 25;

/// Names and labels of all metrics so far.
fn series(snapshotter: &Snapshotter) -> BTreeSet<String> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, ..)| {
        let key = key.key();
        let labels = key
            .labels()
            .map(|it| format!("{}={}", it.key(), it.value()));
        let labels: Vec<_> = labels.collect();
        format!("{}{{{}}}", key.name(), labels.join(","))
    })
    .collect()
}

/// Whether it is first counted when this process stands still, or a channel is asked for it.
fn is_by_chance(series: &str) -> bool {
    let names = ["local_stall", "suspect", "probe", "quarantine", "restore"];
    let named = |it: &&str| series.starts_with(&format!("steadfast.{it}"));
    names.iter().any(named)
}

/// Calls that end in every way that the server knows.
async fn calls(pool: &Pool) {
    for id in ["good", "unavailable", "reset", "silent", "lost"] {
        let mut request = tonic::Request::new(EchoRequest::default());
        request.metadata_mut().insert("x-id", id.parse().unwrap());
        request.set_timeout(Duration::from_millis(20));
        let mut client = EchoClient::new(pool.clone());
        let _ = soon("a call", client.unary(request)).await;
    }
}

/// This many dials, each to a new address: how many metrics there are after a tenth of them, and at the end.
async fn dials(snapshotter: &Snapshotter, dials: u32) {
    let answer = |request: &Request| match (&*request.path, request.id()) {
        (HEALTH, _) | (_, Some("good")) => Answer::good(),
        (_, Some("unavailable")) => Answer::status(14, "busy"),
        (_, Some("reset")) => Answer::steps([Step::AwaitRequest, Step::Rst(2)]),
        (_, Some("lost")) => Answer::steps([Step::AwaitRequest, Step::TcpReset]),
        _ => Answer::silence(),
    };
    let any = (Ipv4Addr::UNSPECIFIED, 0).into();
    let peer = Peer::bind(any, move |_| Script::new(answer)).unwrap();
    let port = peer.addr().port();
    // All of 127.0.0.0/8 is this machine.
    let place = |number: u32| {
        Place::new(format!(
            "http://{}:{port}",
            Ipv4Addr::from(0x7f01_0000 + number)
        ))
    };
    let round = |number: u32| -> Vec<Place> {
        (number * AT_ONCE..(number + 1) * AT_ONCE)
            .map(place)
            .collect()
    };
    let (sender, places) = watch::channel(round(0));
    let builder = Pool::builder(round(0)[0].to_string());
    let mut config = quick(1);
    // One that is spent would be counted from then on.
    config.retry.budget = false;
    let builder = builder.places(Places::watch(places)).config(config);
    let pool = builder.without_env().retry([(UNARY, Kind::Held)]);
    let pool = pool.build().unwrap();
    soon("warming", pool.warm(1)).await.unwrap();
    let rounds = dials / AT_ONCE;
    let mut early = BTreeSet::new();
    for number in 1..rounds {
        calls(&pool).await;
        let next = round(number);
        sender.send(next.clone()).unwrap();
        until("the next places", || {
            let channels = pool.snapshot().channels;
            let there = channels.iter().filter(|it| next.contains(&it.place));
            there.count() >= next.len()
        })
        .await;
        if number == rounds / 10 {
            early = series(snapshotter);
        }
    }
    let late = series(snapshotter);
    println!("{late:#?}");
    assert!(
        peer.connections() >= dials as usize,
        "{}",
        peer.connections()
    );
    let added: Vec<_> = late
        .difference(&early)
        .filter(|it| !is_by_chance(it))
        .collect();
    assert!(added.is_empty(), "{added:?}");
    assert!(late.len() > 10 && late.len() < 50);
    for name in &late {
        let named = ["127.", "#", "http", "steadfast.test"];
        assert!(!named.iter().any(|part| name.contains(part)), "{name}");
    }
}

fn recorded(count: u32) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(dials(&snapshotter, count)));
}

/// X5: a thousand dials, each to another address, with calls that end in every way: after the first hundred no
/// metric is added, and none names an address, a channel or a method.
#[test]
fn addresses_add_no_metrics() {
    recorded(1_000);
}

/// X5: the same with 10,000.
#[test]
#[ignore = "long: 10,000 dials, half a minute"]
fn long_ten_thousand_addresses_add_no_metrics() {
    recorded(10_000);
}
