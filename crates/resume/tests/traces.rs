//! The spans of attempts, and what is said of streams that go on.
//!
//! One test, in a process of its own: tracing keeps one cache for all threads of which call sites anybody listens to, and
//! a site that is first reached while another thread sets its subscriber may be missed.

// Both are retry's.
#[path = "../../retry/tests/support/mod.rs"]
mod support;
#[path = "../../retry/tests/support/told.rs"]
mod told;

use steadfast_core::BoxError;
use steadfast_resume::{Pass, Progress, Rest, ResumableStreamLayer, ResumeConfig, Rule};
use steadfast_testkit::body::BodyScript;
use support::{Pool, Reply, STREAM, good, grpc, lost, request, status, whole};
use told::Told;
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

/// Asks for the same again.
struct Same;

impl Rule for Same {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(Self))
    }
}

impl Progress for Same {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::request("again"))
    }
}

fn layer() -> ResumableStreamLayer {
    let config = ResumeConfig {
        name: "scans".to_owned(),
        header_timeout: std::time::Duration::from_secs(5),
        ..ResumeConfig::default()
    };
    ResumableStreamLayer::new(config)
        .unwrap()
        .rule(Same)
        .unwrap()
}

/// X5, R1, R2: a span for each attempt: its number, the channel that took it, and why it failed if it did; an event for
/// each failure; a warning when the layer is built with a time for the head that is too short, and one, once, when no pool
/// is below.
#[tokio::test(start_paused = true)]
async fn what_is_told() {
    let told = Told::of("steadfast_resume");
    let _guard = tracing::subscriber::set_default(told.clone());
    let resume = layer();
    let warned = told.events(Level::WARN);
    assert_eq!((warned.len(), &*warned[0]["pool"]), (1, "scans"));
    assert!(warned[0]["message"].contains("resume.header_timeout"));
    let cut = || grpc(BodyScript::default().message(b"a").error("cut"));
    type Row = (
        [fn() -> Reply; 3],
        &'static [&'static str],
        &'static [&'static str],
    );
    let rows: [Row; 4] = [
        ([good, good, good], &[], &[]),
        (
            [lost, cut, good],
            &["connection_lost", "connection_lost"],
            &["resume", "resume"],
        ),
        (
            [cut, || status(5), good],
            &["connection_lost", "grpc-status 5"],
            &["resume", "give up"],
        ),
        (
            [cut, cut, cut],
            &["connection_lost"; 3],
            &["resume", "resume", "give up"],
        ),
    ];
    for (replies, causes, nexts) in rows {
        told.forget();
        let pool = Pool::scripted(replies);
        let _ = whole(resume.layer(pool.clone()), request(STREAM, b"a")).await;
        let (spans, seen) = (told.spans(), pool.seen());
        assert_eq!(spans.len(), seen.len());
        for (number, (span, seen)) in spans.iter().zip(&seen).enumerate() {
            assert_eq!(span[""], "attempt");
            assert_eq!((&*span["pool"], &*span["path"]), ("scans", STREAM));
            assert_eq!(span["attempt"], (number + 1).to_string());
            assert_eq!(span["channel"], seen.channel.to_string());
            let cause = span.get("cause").map(String::as_str);
            assert_eq!(cause, causes.get(number).copied(), "{number}");
        }
        let told: Vec<_> = told
            .events(Level::DEBUG)
            .iter()
            .map(|it| it["next"].clone())
            .collect();
        assert_eq!(told, nexts);
    }
    assert!(told.events(Level::WARN).is_empty(), "there was a pool");

    // No pool: nothing fills the handle in.
    told.forget();
    let service = layer().layer(service_fn(async |_: http::Request<tonic::body::Body>| {
        lost().expect("it answers")
    }));
    for _ in 0..3 {
        service
            .clone()
            .oneshot(request(STREAM, b"a"))
            .await
            .unwrap_err();
    }
    let warned = told.events(Level::WARN);
    let warned: Vec<_> = warned
        .iter()
        .filter(|it| it["message"].contains("Balance"))
        .collect();
    assert_eq!(warned.len(), 1);
    // What fails before a channel can be had says nothing of one.
    told.forget();
    let service = layer().layer(service_fn(async |_: http::Request<tonic::body::Body>| {
        let refused = steadfast_core::LocalKind::NoChannel;
        Err::<http::Response<support::ReplyBody>, _>(steadfast_classify::local_error(
            refused, "none", None,
        ))
    }));
    service.oneshot(request(STREAM, b"a")).await.unwrap_err();
    let warned = told.events(Level::WARN);
    assert!(!warned.iter().any(|it| it["message"].contains("Balance")));
}
