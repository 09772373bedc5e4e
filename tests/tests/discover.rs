//! Places from a tower `Discover`.

use std::{convert::Infallible, time::Duration};

use steadfast::{BalanceConfig, Config, Connectivity, Local, LocalKind, Place, Places, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_tests::{HANG, echo::EchoProcess, soon};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tower::discover::Change;

type Changes = mpsc::UnboundedSender<Change<u16, ()>>;

/// A discovery whose keys are ports of this machine.
fn discovered() -> (Changes, Places) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stream = UnboundedReceiverStream::new(receiver).map(Ok::<_, Infallible>);
    let place = |port: &u16| Place::new(format!("http://127.0.0.1:{port}"));
    (sender, Places::discover(stream, place))
}

fn pool(places: Places) -> Pool {
    let config = Config {
        balance: BalanceConfig::fixed(2),
        ..Config::default()
    };
    Pool::builder("http://127.0.0.1:1")
        .config(config)
        .places(places)
        .build()
        .unwrap()
}

/// B12, B7: calls wait for the first place; the pool follows what is inserted and removed; when the
/// discovery ends the last list stays.
#[tokio::test]
async fn follows_a_discovery() {
    let servers = [EchoProcess::start().await, EchoProcess::start().await];
    let (changes, places) = discovered();
    let pool = pool(places);
    let call = || {
        let mut client = EchoClient::new(pool.clone());
        async move { client.unary(EchoRequest::default()).await }
    };
    let mut first = tokio::spawn(call());
    let early = tokio::time::timeout(Duration::from_millis(100), &mut first).await;
    assert!(early.is_err(), "nothing is known yet, so it waits");
    changes
        .send(Change::Insert(servers[0].addr().port(), ()))
        .unwrap();
    soon("the first call", first).await.unwrap().unwrap();
    changes
        .send(Change::Insert(servers[1].addr().port(), ()))
        .unwrap();
    changes
        .send(Change::Remove(servers[0].addr().port()))
        .unwrap();
    let before = servers[0].calls();
    let moved = async {
        while servers[1].calls() == 0 {
            call().await.unwrap();
        }
    };
    soon("moving", moved).await;
    drop(changes);
    for _ in 0..10 {
        soon("a call", call()).await.unwrap();
    }
    assert!(servers[0].calls() <= before + 4, "its channels drained");
    let places: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|c| c.place.clone())
        .collect();
    assert!(
        places
            .iter()
            .all(|place| place.as_str() == servers[1].uri()),
        "{places:?}"
    );
}

/// B12, B7: once places were known, an empty list is no reason to wait.
#[tokio::test]
async fn an_empty_list_after_a_full_one_fails_at_once() {
    let server = EchoProcess::start().await;
    let (changes, places) = discovered();
    let pool = pool(places);
    changes
        .send(Change::Insert(server.addr().port(), ()))
        .unwrap();
    soon("warming", pool.warm(2)).await.unwrap();
    changes.send(Change::Remove(server.addr().port())).unwrap();
    let mut connectivity = pool.connectivity();
    let gone = connectivity.wait_for(|now| *now == Connectivity::Failing);
    tokio::time::timeout(HANG, gone).await.unwrap().unwrap();
    let status = EchoClient::new(pool)
        .unary(EchoRequest::default())
        .await
        .unwrap_err();
    assert_eq!(Local::find(&status).unwrap().kind(), LocalKind::NoChannel);
    assert!(status.message().contains("no places"), "{status}");
}
