//! Many requests that are given up at once, on a server that answers them all the same.

mod common;

use std::time::Duration;

use common::{HANG, dial, in_time};
use http::Request;
use steadfast_egress::{Egress, EgressConfig};
use steadfast_testkit::peer::{Answer, GOOD_PAYLOAD, Peer, Script, Step};
use tonic::{body::Body, transport::Endpoint};
use tower::{Service, ServiceExt};

const MANY: usize = 1_500;
const AFTER_A_SECOND: Duration = Duration::from_millis(1_300);

/// Answers `x-id: live`, and what was reset, `delay` later.
fn late(delay: Duration) -> Script {
    let rest = [
        Step::Wait(delay),
        Step::headers(),
        Step::good_message(),
        Step::status(0, ""),
    ];
    let silent = Answer::silence().after_reset(rest);
    Script::new(move |request| match request.id() {
        Some("live") => Answer::good(),
        _ => silent.clone(),
    })
}

fn request(id: &str) -> Request<Body> {
    Request::post("/steadfast.test.Echo/Unary")
        .header("content-type", "application/grpc")
        .header("x-id", id)
        .body(Body::empty())
        .unwrap()
}

/// Makes the calls, drops them all at once, and waits until the server has seen it.
async fn give_up<S>(peer: &Peer, service: &S)
where
    S: Service<Request<Body>, Future: Send + 'static, Response: Send + 'static> + Clone,
    S::Error: std::fmt::Debug + Send + 'static,
{
    let mut calls = Vec::new();
    for _ in 0..MANY {
        let mut service = service.clone();
        let ready = in_time(service.ready()).await.unwrap();
        calls.push(tokio::spawn(ready.call(request("given-up"))));
    }
    peer.wait_until(HANG, |state| state.requests.len() == MANY)
        .await
        .unwrap();
    calls.iter().for_each(|call| call.abort());
}

#[tokio::test]
async fn with_our_settings_the_connection_lives() {
    for delay in [Duration::ZERO, AFTER_A_SECOND] {
        let peer = Peer::start(late(delay)).unwrap();
        let egress = Egress::new(peer.uri(), EgressConfig::default()).unwrap();
        let channel = dial(&egress).await;
        give_up(&peer, channel.service()).await;
        // All the late messages, each with its five bytes of length prefix.
        let late = (MANY * (5 + GOOD_PAYLOAD.len())) as u64;
        peer.wait_until(HANG, |state| state.connections[0].data_sent >= late)
            .await
            .unwrap();
        let live = in_time(channel.service().clone().oneshot(request("live")))
            .await
            .unwrap();
        assert_eq!(live.status(), 200);
        assert!(peer.goaways().is_empty());
        assert_eq!((peer.connections(), peer.resets().len()), (1, MANY));
        assert!(channel.meter().condemned_for().is_none());
    }
}

#[tokio::test]
async fn control_with_tonics_defaults_it_dies() {
    for delay in [Duration::ZERO, AFTER_A_SECOND] {
        let peer = Peer::start(late(delay)).unwrap();
        let channel = Endpoint::from_shared(peer.uri())
            .unwrap()
            .connect()
            .await
            .unwrap();
        give_up(&peer, &channel).await;
        peer.wait_until(HANG, |state| !state.goaways.is_empty())
            .await
            .unwrap();
        assert_eq!(peer.goaways()[0].code, 11);
    }
}
