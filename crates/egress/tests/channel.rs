//! What becomes of a channel when its connection ends.

mod common;

use std::{error::Error, sync::Arc, time::Duration};

use common::{HANG, condemned, dial, echo, in_time};
use http_body_util::BodyExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use steadfast_classify::{ChannelClosed, call_error};
use steadfast_core::{Metered, Outcome, Standing};
use steadfast_egress::{Egress, EgressChannel, EgressConfig, Keepalive};
use steadfast_testkit::peer::{Answer, Last, Peer, Ping, Script, Step};
use tonic::{body::Body, transport::Error as TonicError};
use tower::ServiceExt;

const CALM: u32 = 11;

fn held() -> Script {
    Script::always(Answer::good().held())
}

async fn start(script: Script) -> (Peer, Egress, Metered<EgressChannel>) {
    start_with(script, EgressConfig::default()).await
}

async fn start_with(
    script: Script,
    config: EgressConfig,
) -> (Peer, Egress, Metered<EgressChannel>) {
    let peer = Peer::start(script).unwrap();
    let egress = Egress::new(peer.uri(), config).unwrap();
    let channel = dial(&egress).await;
    (peer, egress, channel)
}

async fn raw(channel: &Metered<EgressChannel>) -> Result<http::Response<Body>, TonicError> {
    let request = http::Request::post("/steadfast.test.Echo/Unary")
        .header("content-type", "application/grpc")
        .body(Body::empty())
        .unwrap();
    in_time(channel.service().clone().oneshot(request)).await
}

fn is_closed(error: &(dyn Error + 'static)) -> bool {
    error.is::<ChannelClosed>() || error.source().is_some_and(is_closed)
}

#[tokio::test]
async fn a_closed_connection_condemns_the_channel_and_is_never_dialled_again() {
    for (end, cause) in [
        (Step::Fin, "the peer closed it"),
        (Step::TcpReset, "reset by peer"),
    ] {
        let (peer, _, channel) = start(Script::good()).await;
        echo(&channel).await.unwrap();
        assert_eq!(channel.meter().read().standing(), Standing::Open);
        assert!(peer.inject(0, [end]).await);
        let why = condemned(channel.meter()).await;
        assert!(
            why.starts_with("connection closed: ") && why.contains(cause),
            "{why}"
        );
        assert_eq!(channel.meter().read().standing(), Standing::Condemned);
        peer.wait_until(HANG, |state| state.open_connections() == 0)
            .await
            .unwrap();
        for _ in 0..5 {
            let error = raw(&channel).await.unwrap_err();
            assert_eq!(call_error(&error), Outcome::NeverSent, "{error:?}");
        }
        let error = raw(&channel).await.unwrap_err();
        assert!(is_closed(&error), "{error:?}");
        assert_eq!((peer.connections(), peer.requests().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_graceful_goaway_condemns_the_channel_and_leaves_its_response_open() {
    let (peer, _, channel) = start(held()).await;
    let open = tokio::spawn({
        let channel = channel.clone();
        async move { echo(&channel).await }
    });
    peer.wait_until(HANG, |state| state.held == 1)
        .await
        .unwrap();
    assert!(peer.inject(0, [Step::goaway(0, Last::Highest)]).await);
    let why = condemned(channel.meter()).await;
    assert_eq!(&*why, "connection closed: GOAWAY NO_ERROR \"\"");
    assert!(!open.is_finished());
    let error = raw(&channel).await.unwrap_err();
    assert_eq!(call_error(&error), Outcome::NeverSent, "{error:?}");
    peer.release_all();
    in_time(open).await.unwrap().unwrap();
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn an_open_response_outlives_its_channel() {
    let script = Script::always(Answer::steps([
        Step::headers(),
        Step::Hold,
        Step::good_message(),
        Step::status(0, ""),
    ]));
    let (peer, _, channel) = start(script).await;
    let response = raw(&channel).await.unwrap();
    drop(channel);
    peer.release_all();
    let body = in_time(response.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    drop(body);
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_server_that_asks_for_calm_is_pinged_half_as_often_next_time() {
    let fast = Duration::from_millis(50);
    let config = EgressConfig::default().with_keepalive(Keepalive::new(fast, HANG));
    let strict = Ping::Strict {
        min_gap: Duration::from_secs(3_600),
        without_streams: false,
    };
    let (peer, egress, channel) = start_with(held().ping(strict), config).await;
    let place = channel.place().clone();
    assert_eq!(egress.keepalive_interval(&place), Some(fast));
    let mut channel = channel;
    for doubled in [fast * 2, fast * 4] {
        let call = tokio::spawn({
            let channel = channel.clone();
            async move { echo(&channel).await }
        });
        let why = condemned(channel.meter()).await;
        let expected = "connection closed: GOAWAY ENHANCE_YOUR_CALM \"too_many_pings\"";
        assert_eq!(&*why, expected);
        in_time(call).await.unwrap().unwrap_err();
        assert_eq!(egress.keepalive_interval(&place), Some(doubled));
        channel = dial(&egress).await;
    }
    assert_eq!(egress.keepalive_interval(&"elsewhere".into()), Some(fast));
    assert_eq!(peer.connections(), 3);
}

#[tokio::test]
async fn no_ping_without_an_open_stream_nor_with_keepalive_off() {
    let fast = Keepalive::new(Duration::from_millis(20), HANG);
    let on = EgressConfig::default().with_keepalive(fast);
    let off = EgressConfig::default().with_keepalive(None);
    let (busy, _, channel) = start_with(held(), on.clone()).await;
    let (idle, _, _kept) = start_with(Script::good(), on).await;
    let (silent, _, other) = start_with(held(), off).await;
    let calls = [channel, other].map(|channel| tokio::spawn(async move { echo(&channel).await }));
    busy.wait_until(HANG, |state| state.pings() >= 5)
        .await
        .unwrap();
    assert_eq!((idle.pings(), silent.pings()), (0, 0));
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_goaway_before_the_head_is_seen_by_the_call_too() {
    let script = Script::always(Answer::steps([Step::goaway(CALM, Last::Zero)]));
    let (_peer, egress, channel) = start(script).await;
    let error = raw(&channel).await.unwrap_err();
    assert_eq!(call_error(&error), Outcome::Unprocessed, "{error:?}");
    let doubled = Duration::from_secs(120);
    assert_eq!(egress.keepalive_interval(channel.place()), Some(doubled));
}

/// The reasons counted until now.
fn reasons(snapshotter: &Snapshotter) -> Vec<(String, u64)> {
    let all = snapshotter.snapshot().into_vec();
    all.into_iter()
        .filter(|(key, ..)| key.key().name() == "steadfast.disconnect")
        .map(|(key, _, description, value)| {
            let labels: Vec<_> = key.key().labels().collect();
            assert_eq!((labels.len(), labels[0].key()), (1, "reason"));
            assert!(description.is_some());
            let DebugValue::Counter(count) = value else {
                panic!("{value:?}");
            };
            (labels[0].value().to_owned(), count)
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[tokio::test]
async fn each_end_of_a_connection_is_counted_once_by_reason() {
    type End = (Script, Option<Step>, &'static str);
    let ends: [End; 5] = [
        (held(), Some(Step::Fin), "unknown"),
        (held(), Some(Step::TcpReset), "connection reset"),
        (
            held(),
            Some(Step::goaway(CALM, Last::Zero)),
            "GOAWAY ENHANCE_YOUR_CALM",
        ),
        (held().ping(Ping::Ignore), None, "connection timed out"),
        (held(), None, "subchannel shutdown"),
    ];
    for (script, step, reason) in ends {
        // On this thread alone, where the connection's task runs as well.
        let recorder = Arc::new(DebuggingRecorder::new());
        let snapshotter = recorder.snapshotter();
        let _guard = metrics::set_default_local_recorder(&*recorder);
        let keepalive = Keepalive::new(Duration::from_millis(20), Duration::from_millis(20));
        let config = EgressConfig::default();
        let config = match reason {
            "connection timed out" => config.with_keepalive(keepalive),
            _ => config.with_keepalive(None),
        };
        let (peer, _, channel) = start_with(script, config).await;
        let call = tokio::spawn({
            let channel = channel.clone();
            async move { echo(&channel).await }
        });
        peer.wait_until(HANG, |state| state.held == 1)
            .await
            .unwrap();
        assert!(reasons(&snapshotter).is_empty());
        match step {
            Some(step) => assert!(peer.inject(0, [step]).await),
            None if reason == "subchannel shutdown" => call.abort(),
            None => {}
        }
        let meter = channel.meter().clone();
        if reason == "subchannel shutdown" {
            drop(channel);
        } else {
            condemned(&meter).await;
            drop(call.await);
        }
        peer.wait_until(HANG, |state| state.open_connections() == 0)
            .await
            .unwrap();
        condemned(&meter).await;
        let mut counted = reasons(&snapshotter);
        for _ in 0..1_000 {
            if !counted.is_empty() {
                break;
            }
            tokio::task::yield_now().await;
            counted = reasons(&snapshotter);
        }
        assert_eq!(
            counted,
            [(reason.to_owned(), 1)],
            "{:?}",
            meter.condemned_for()
        );
    }
}
