//! What the tests of the peer and the proxy share: a real tonic client, and a look at what its errors are made of.
#![allow(dead_code, reason = "each test binary uses its own part")]

use bytes::Bytes;
use http_body_util::BodyExt;
use std::{error::Error, future::Future, net::SocketAddr, time::Duration};
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use tonic::{
    Status,
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::ServiceExt;

/// How long a test waits for something that must happen.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// How long a test watches for something that must not happen.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

pub(crate) fn channel(addr: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{addr}"))
        .unwrap()
        .connect_lazy()
}

pub(crate) fn client(addr: SocketAddr) -> EchoClient<Channel> {
    EchoClient::new(channel(addr))
}

/// The future's value, or a panic when it hangs.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(HANG, future).await.expect("hung")
}

/// Asserts that the future has nothing to say for a while.
pub(crate) async fn pending<F: Future>(future: F) {
    assert!(
        tokio::time::timeout(QUIET, future).await.is_err(),
        "it should be pending"
    );
}

pub(crate) async fn unary(client: &EchoClient<Channel>) -> Result<EchoReply, Status> {
    let mut client = client.clone();
    soon(client.unary(EchoRequest::default()))
        .await
        .map(tonic::Response::into_inner)
}

/// A unary call as a layer around the channel sees it.
pub(crate) async fn raw(
    channel: &Channel,
) -> Result<http::Response<Body>, tonic::transport::Error> {
    raw_with_id(channel, "").await
}

pub(crate) async fn raw_with_id(
    channel: &Channel,
    id: &str,
) -> Result<http::Response<Body>, tonic::transport::Error> {
    let request = http::Request::builder()
        .method("POST")
        .uri("/steadfast.test.Echo/Unary")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-id", id)
        .body(Body::new(
            http_body_util::Full::new(Bytes::from_static(&[0; 5])).map_err(|never| match never {}),
        ))
        .unwrap();
    channel.clone().oneshot(request).await
}

/// The error and its sources in one line: `h2::Error` with its origin and reason, the rest by what they print.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut out = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        out.push(
            match (
                error.downcast_ref::<h2::Error>(),
                error.downcast_ref::<std::io::Error>(),
            ) {
                (Some(h2), _) => {
                    let kind = if h2.is_go_away() {
                        "go_away"
                    } else if h2.is_reset() {
                        "reset"
                    } else {
                        "io"
                    };
                    let side = if h2.is_remote() {
                        "remote"
                    } else if h2.is_library() {
                        "library"
                    } else {
                        ""
                    };
                    format!("h2[{kind} {side} {:?}]", h2.reason())
                }
                (_, Some(io)) => format!("io({:?})", io.kind()),
                _ => error.to_string(),
            },
        );
        next = error.source();
    }
    out.join(" > ")
}

/// What a body ended with.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: usize,
    pub(crate) status: Option<String>,
    pub(crate) error: Option<String>,
}

/// Reads the body to its end.
pub(crate) async fn read(mut body: Body) -> Read {
    let mut read = Read {
        bytes: 0,
        status: None,
        error: None,
    };
    while let Some(frame) = soon(body.frame()).await {
        match frame {
            Ok(frame) => {
                read.bytes += frame.data_ref().map_or(0, Bytes::len);
                if let Some(trailers) = frame.trailers_ref() {
                    read.status = trailers
                        .get("grpc-status")
                        .map(|status| status.to_str().unwrap().to_owned());
                }
            }
            Err(error) => {
                read.error = Some(chain(&error));
                break;
            }
        }
    }
    read
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test of real time needs the real clock"
)]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}
