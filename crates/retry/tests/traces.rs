//! The spans of attempts.
//!
//! One test, in a process of its own: tracing keeps one cache for all threads of which call sites anybody
//! listens to, and a site that is first reached while another thread sets its subscriber may be missed.

#[path = "support/mod.rs"]
mod support;
#[path = "support/told.rs"]
mod told;

use steadfast_retry::{Kind, RetryConfig, RetryLayer};
use steadfast_testkit::body::BodyScript;
use support::{HELD, OTHER, Pool, STREAM, good, grpc, lost, never_sent, request, status, whole};
use told::Told;
use tower::Layer;

/// X5: a span for each attempt: its number, the channel that took it, and why it failed if it did.
#[tokio::test(start_paused = true)]
async fn a_span_per_attempt() {
    let told = Told::of("steadfast_retry");
    let _guard = tracing::subscriber::set_default(told.clone());
    let config = RetryConfig {
        name: "reads".to_owned(),
        ..RetryConfig::default()
    };
    let retry = RetryLayer::new(config).unwrap();
    let retry = retry.idempotent(HELD, Kind::Held).unwrap();
    let retry = retry.idempotent(STREAM, Kind::Streaming).unwrap();
    let ends = || grpc(BodyScript::default().claim_end_stream(false));
    for (path, replies, causes) in [
        (
            HELD,
            [lost, lost, good] as [fn() -> support::Reply; 3],
            vec!["connection_lost"; 2],
        ),
        (OTHER, [never_sent, good, good], vec!["never_sent"]),
        (OTHER, [|| status(5), good, good], vec![]),
        (HELD, [|| status(5), good, good], vec!["grpc-status 5"]),
        (STREAM, [ends, good, good], vec!["no_status"]),
    ] {
        told.forget();
        let pool = Pool::scripted(replies);
        whole(retry.layer(pool.clone()), request(path, b""))
            .await
            .unwrap();
        let spans = told.spans();
        let seen = pool.seen();
        assert_eq!(spans.len(), seen.len(), "{path}");
        for (number, (span, seen)) in spans.iter().zip(&seen).enumerate() {
            assert_eq!(span[""], "attempt");
            assert_eq!((&*span["pool"], &*span["path"]), ("reads", path));
            assert_eq!(span["attempt"], (number + 1).to_string());
            assert_eq!(span["channel"], seen.channel.to_string());
            let cause = span.get("cause").map(String::as_str);
            assert_eq!(cause, causes.get(number).copied(), "{path}: {number}");
        }
    }
}
