//! Servers that lie: what they say of retrying is read with care, and what would make tonic panic is taken
//! out of their replies.

use std::{panic::AssertUnwindSafe, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;
use proptest::prelude::*;
use prost::Message;
use steadfast_retry::RetryConfig;
use steadfast_testkit::body::BodyScript;
use tonic::Status;
use tower::ServiceExt;

use crate::{
    MS, over, over_with,
    support::{HELD, OTHER, Pool, Reply, STREAM, body, good, grpc, request, whole},
};

const DETAILS: &str = "grpc-status-details-bin";

/// A status with these details, in the headers or the trailers.
fn detailed(details: &[u8], in_trailers: bool) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", HeaderValue::from_static("14"));
    headers.insert(DETAILS, HeaderValue::from_bytes(details).unwrap());
    if in_trailers {
        return grpc(BodyScript::default().message(b"x").trailers(headers));
    }
    let mut response = Response::new(body(BodyScript::default()));
    *response.headers_mut() = headers;
    Some(Ok(response))
}

/// The status that tonic makes of a reply. It panics as tonic does.
async fn told(path: &str, pool: &Pool) -> Status {
    let response = over(pool).oneshot(request(path, b"")).await.unwrap();
    let headers = response.headers().clone();
    let body = response.into_body().collect().await.unwrap();
    let said = body.trailers().cloned().unwrap_or(headers);
    Status::from_header_map(&said).expect("a status")
}

/// X6: details that are no base64 are taken out, in headers and trailers, of every method's replies; those
/// that are stay as they are.
#[tokio::test(start_paused = true)]
async fn details_that_are_no_base64() {
    for in_trailers in [false, true] {
        for path in [HELD, STREAM, OTHER] {
            for bad in ["%%%", "a", "====", "YQ==YQ==", "YR", "\u{e9}"] {
                let bad = bad.as_bytes();
                let pool = Pool::new(move |_| detailed(bad, in_trailers));
                let status = told(path, &pool).await;
                assert_eq!(status.details(), b"");
                assert_eq!(status.code(), tonic::Code::Unavailable);
            }
            for fine in ["", "YQ==", "YQ"] {
                let pool = Pool::new(move |_| detailed(fine.as_bytes(), in_trailers));
                let status = told(path, &pool).await;
                assert_eq!(
                    status.details(),
                    if fine.is_empty() { b"" } else { &b"a"[..] }
                );
            }
        }
    }
    let mut twice = HeaderMap::new();
    twice.insert("grpc-status", HeaderValue::from_static("14"));
    twice.append(DETAILS, HeaderValue::from_static("%"));
    twice.append(DETAILS, HeaderValue::from_static("%%"));
    let control = AssertUnwindSafe(|| Status::from_header_map(&twice));
    assert!(
        std::panic::catch_unwind(control).is_err(),
        "tonic panics no longer"
    );
    let trailers = twice.clone();
    let pool = Pool::new(move |_| grpc(BodyScript::default().trailers(trailers.clone())));
    assert_eq!(told(OTHER, &pool).await.details(), b"");
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

fn retry_info(seconds: i64, nanos: i32) -> Vec<u8> {
    let info = RetryInfo {
        delay: Some(Delay { seconds, nanos }),
    };
    let any = |name: &str, value| Any {
        type_url: format!("type.googleapis.com/google.rpc.{name}"),
        value,
    };
    let status = RpcStatus {
        code: 14,
        message: "busy".to_owned(),
        details: vec![
            any("Help", vec![1, 2, 3]),
            any("RetryInfo", info.encode_to_vec()),
        ],
    };
    BASE64_STANDARD.encode(status.encode_to_vec()).into_bytes()
}

/// The time between two attempts, of which the first is answered with these details.
async fn waited(details: Vec<u8>) -> Option<Duration> {
    let pool = Pool::new(move |seen| match seen.number {
        0 => detailed(&details, true),
        _ => good(),
    });
    let on = |config: &mut RetryConfig| {
        config.retry_on.unavailable = true;
        config.backoff = Duration::ZERO;
    };
    whole(over_with(&pool, on), request(HELD, b""))
        .await
        .unwrap();
    let seen = pool.seen();
    Some(seen.get(1)?.at - seen[0].at)
}

/// R6: google.rpc's RetryInfo is waited for; what is out of its range, or can't be read, says nothing.
#[tokio::test(start_paused = true)]
async fn retry_info_is_honoured() {
    assert_eq!(waited(retry_info(2, 500_000_000)).await, Some(2_500 * MS));
    assert_eq!(waited(retry_info(0, 0)).await, Some(Duration::ZERO));
    assert_eq!(waited(retry_info(301, 0)).await, None, "not soon enough");
    assert_eq!(waited(retry_info(i64::MAX, i32::MAX)).await, None);
    for (seconds, nanos) in [(-1, 0), (0, -1), (i64::MIN, i32::MIN)] {
        assert_eq!(
            waited(retry_info(seconds, nanos)).await,
            Some(Duration::ZERO)
        );
    }
    let cut = retry_info(2, 0);
    assert_eq!(
        waited(cut[..cut.len() - 8].to_vec()).await,
        Some(Duration::ZERO)
    );
}

proptest! {
    /// X6: whatever bytes a server puts there, nothing panics, and tonic can read what comes up.
    #[test]
    fn any_details(bytes in prop::collection::vec(any::<u8>(), 0..64), raw in any::<bool>()) {
        let details = if raw {
            bytes.into_iter().filter(|byte| *byte >= 32 && *byte != 127).collect()
        } else {
            BASE64_STANDARD.encode(bytes).into_bytes()
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            waited(details.clone()).await;
            for in_trailers in [false, true] {
                let details = Bytes::from(details.clone());
                let pool = Pool::new(move |_| detailed(&details, in_trailers));
                told(OTHER, &pool).await;
            }
        });
    }
}
