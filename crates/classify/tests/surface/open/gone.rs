//! What was there and is gone: runtimes, connectors that panic, connections that were idle.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use steadfast_testkit::peer::{Answer, Peer, PeerState, Script, Step};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::{HANG, Opened, endpoint, open, opened, settle};
use crate::surface::{call::PATH, row::Open};

/// A channel whose worker's runtime is gone.
pub(crate) fn orphaned() -> Open {
    open(|| async {
        let make = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async { endpoint("http://127.0.0.1:1").connect_lazy() })
        };
        // A runtime may not be dropped inside another.
        let channel = std::thread::spawn(make).join().unwrap();
        opened(channel, ())
    })
}

/// A channel whose runtime ends when the request has reached the peer.
pub(crate) fn orphaned_after_sending() -> Open {
    open(|| async {
        let peer = Arc::new(Peer::start(Script::ping_only()).unwrap());
        let uri = peer.uri();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (hand_over, channel) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let sent = hand_over.send(endpoint(uri).connect_lazy());
                assert!(sent.is_ok(), "the row waits for the channel");
                // Either way it is over.
                let _stop = stopped.await;
            });
        });
        let watched = Arc::clone(&peer);
        let meanwhile = async move {
            let requested = |state: &PeerState| !state.requests.is_empty();
            watched.wait_until(HANG, requested).await.unwrap();
            drop(stop);
        };
        Opened {
            channel: Ok(channel.await.unwrap()),
            meanwhile: Some(Box::pin(meanwhile)),
            keep: Box::new(peer),
        }
    })
}

/// A channel whose connector panics.
pub(crate) fn panics_while_connecting() -> Open {
    open(|| async {
        let connector = tower::service_fn(|_: http::Uri| async {
            let panics = true;
            assert!(!panics, "the connector panics, as the row wants it");
            TcpStream::connect("127.0.0.1:1").await.map(TokioIo::new)
        });
        let endpoint = endpoint("http://unused.test");
        opened(endpoint.connect_with_connector_lazy(connector), ())
    })
}

/// A connection that served one call and then took this step.
pub(crate) fn idle(then: Step) -> Open {
    open(move || {
        let then = then.clone();
        async move {
            let script = Script::new(move |request| {
                if request.connection > 0 || request.index > 0 {
                    return Answer::good();
                }
                let answer = [Step::headers(), Step::good_message(), Step::status(0, "")];
                let steps = [Step::AwaitRequest].into_iter().chain(answer);
                Answer::steps(steps.chain([then.clone()]))
            });
            let peer = Arc::new(Peer::start(script).unwrap());
            let channel = endpoint(peer.uri()).connect_lazy();
            whole(channel.clone()).await;
            let over = |state: &PeerState| {
                let first = state.connections.first();
                first.is_some_and(|first| first.forgotten || !first.open)
            };
            peer.wait_until(HANG, over).await.unwrap();
            settle().await;
            opened(channel, peer)
        }
    })
}

/// A call that succeeds, its body read to the end.
async fn whole(mut channel: Channel) {
    let request = http::Request::post(PATH)
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())
        .unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    response.into_body().collect().await.unwrap();
}
