//! tower's contract, on a channel over a real socket: the probe is above it, the peer below.

mod common;

use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use common::{HANG, dial, in_time};
use http_body_util::BodyExt;
use steadfast_core::Metered;
use steadfast_egress::{Egress, EgressChannel, EgressConfig, EgressFuture};
use steadfast_testkit::{
    contract::Probe,
    peer::{Answer, Peer, Script, Step},
};
use tonic::body::Body;
use tower::Service;

async fn start(script: Script) -> (Peer, EgressChannel) {
    let peer = Peer::start(script).unwrap();
    let egress = Egress::new(peer.uri(), EgressConfig::default()).unwrap();
    let channel = dial(&egress).await;
    (peer, Metered::into_service(channel))
}

fn held() -> Script {
    Script::always(Answer::good().held())
}

fn request() -> http::Request<Body> {
    http::Request::post("/steadfast.test.Echo/Unary")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap()
}

/// Ready, then called.
async fn call(channel: &mut EgressChannel, probe: &Probe) -> std::pin::Pin<Box<EgressFuture>> {
    loop {
        match probe.poll(|cx| channel.poll_ready(cx)).await.unwrap() {
            Poll::Ready(ready) => {
                ready.unwrap();
                return Box::pin(channel.call(request()));
            }
            Poll::Pending => in_time(probe.woken()).await,
        }
    }
}

/// Polled with `first`, then with `last`: it is the last one that is woken.
#[tokio::test]
async fn a_pending_call_keeps_its_last_waker_and_does_not_spin() {
    let (peer, mut channel) = start(held()).await;
    let (first, last) = (Probe::new(), Probe::new());
    let mut future = call(&mut channel, &first).await;
    assert!(
        first
            .poll(|cx| future.as_mut().poll(cx))
            .await
            .unwrap()
            .is_pending()
    );
    in_time(peer.wait_until(HANG, |state| state.held == 1))
        .await
        .unwrap();
    // Woken when the request was on its way, perhaps; then no more.
    assert!(
        last.poll(|cx| future.as_mut().poll(cx))
            .await
            .unwrap()
            .is_pending()
    );
    peer.release_all();
    let response = loop {
        in_time(last.woken()).await;
        if let Poll::Ready(response) = last.poll(|cx| future.as_mut().poll(cx)).await.unwrap() {
            break response.unwrap();
        }
    };
    let body = in_time(response.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn a_clone_of_a_ready_channel_is_not_ready() {
    let (_peer, mut channel) = start(Script::good()).await;
    in_time(std::future::poll_fn(|cx| channel.poll_ready(cx)))
        .await
        .unwrap();
    let mut clone = channel.clone();
    // tonic's own service refuses a call without Ready so.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(clone.call(request())))).is_err());
    in_time(channel.call(request())).await.unwrap();
}

/// Before it is polled, while it waits for the head, with the head there, and with the future kept.
#[tokio::test]
async fn drops_at_each_point_give_stream_and_connection_back() {
    let (peer, mut channel) = start(held()).await;
    let probe = Probe::new();
    drop(call(&mut channel, &probe).await);
    let mut future = call(&mut channel, &probe).await;
    assert!(
        probe
            .poll(|cx| future.as_mut().poll(cx))
            .await
            .unwrap()
            .is_pending()
    );
    peer.wait_until(HANG, |state| state.held >= 1)
        .await
        .unwrap();
    drop(future);
    peer.wait_until(HANG, |state| state.open_streams() == 0)
        .await
        .unwrap();

    // The service that is dropped when ready gives its place back with it.
    in_time(std::future::poll_fn(|cx| channel.poll_ready(cx)))
        .await
        .unwrap();
    drop(channel);
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();

    let open = Script::always(Answer::steps([Step::headers(), Step::good_message()]));
    let (peer, mut channel) = start(open).await;
    let mut future = call(&mut channel, &probe).await;
    let response = in_time(&mut future).await.unwrap();
    peer.wait_until(HANG, |state| state.open_streams() == 1)
        .await
        .unwrap();
    drop(response);
    peer.wait_until(HANG, |state| state.open_streams() == 0)
        .await
        .unwrap();
    drop(channel);
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .expect("the kept future holds nothing");
    drop(future);
}

#[tokio::test]
async fn errors_keep_their_source() {
    let (_peer, mut channel) = start(Script::rst(2)).await;
    let probe = Probe::new();
    let error = in_time(call(&mut channel, &probe).await).await.unwrap_err();
    let mut source = error.source();
    let mut sources = 0;
    while let Some(error) = source {
        sources += 1;
        source = error.source();
    }
    assert!(sources >= 2, "{error:?}");
}
