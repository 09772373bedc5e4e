//! How calls end that a server resets, cuts or truncates: told by the source chain, the same whatever code
//! tonic made of it, as failures with a penalty where they are the server's.

use std::{error::Error, time::Duration};

use steadfast::{Attempt, BalanceConfig, Config, Outcome, Pool};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::peer::{Answer, At, Last, Peer, Script, Step, Trail, Truncated};
use steadfast_tests::soon;
use tonic::{Code, Request, Status};

/// What a caller of a server-streaming method meets.
struct Seen {
    outcome: Outcome,
    messages: usize,
    /// None when the stream seemed to end in order.
    status: Option<Status>,
    penalised: bool,
}

async fn call(script: Script, timeout: Option<Duration>) -> Seen {
    let peer = Peer::start(script).unwrap();
    let config = Config {
        balance: BalanceConfig::fixed(1),
        ..steadfast_tests::lower_layers()
    };
    let builder = Pool::builder(peer.uri()).config(config);
    let pool = builder.without_env().build().unwrap();
    soon("connecting", pool.warm(1)).await.unwrap();
    let attempt = Attempt::new();
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(attempt.clone());
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    let mut client = EchoClient::new(pool.clone());
    let mut messages = 0;
    let status = async {
        let mut stream = client.server_stream(request).await?.into_inner();
        while stream.message().await?.is_some() {
            messages += 1;
        }
        Ok(())
    };
    let status: Result<(), Status> = soon("the call", status).await;
    // Of the moment when the call ended: the channel may be gone a little later, and its penalty with it.
    let penalised = !pool.penalty().snapshot().is_empty();
    let failures = pool.snapshot();
    let channels = failures.channels.iter().chain(&failures.draining);
    Seen {
        outcome: attempt.outcome().expect("it ended"),
        messages,
        status: status.err(),
        penalised: penalised || channels.map(|channel| channel.failures).sum::<u64>() > 0,
    }
}

/// The outcome, the messages before it, and whether the channel pays for it.
async fn ends(what: &str, script: Script, outcome: Outcome, messages: usize) -> Seen {
    let seen = call(script, None).await;
    assert_eq!(seen.outcome, outcome, "{what}: {:?}", seen.status);
    assert_eq!(seen.messages, messages, "{what}: {:?}", seen.status);
    assert!(seen.penalised, "{what}");
    seen
}

/// The deepest of an error's sources.
fn deepest(status: &Status) -> String {
    let mut deepest: &(dyn Error + 'static) = status;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// P1: every reason of RST_STREAM, before and after the head, has its own outcome, and each costs a
/// penalty. REFUSED_STREAM before the head means that it wasn't processed; NO_ERROR after it looks to
/// hyper like the end of the body, and is an end without a status all the same.
#[tokio::test]
async fn every_reset_is_told_by_its_reason() {
    for code in (0..=13).chain([99]) {
        let before = match code {
            7 => Outcome::Unprocessed,
            code => Outcome::Reset(code),
        };
        let name = format!("RST({code}) before the head");
        ends(&name, Script::rst(code), before, 0).await;
        let after = match code {
            0 => Outcome::NoStatus,
            code => Outcome::Reset(code),
        };
        let name = format!("RST({code}) after the head");
        let seen = ends(&name, Script::rst_after_headers(code), after, 1).await;
        assert!(seen.status.is_some(), "{name}");
    }
}

/// P1: half a message is a failure with a penalty however the stream ends after it, also when the
/// trailers claim success.
#[tokio::test]
async fn a_truncated_message_is_never_a_success() {
    let script = Script::truncated(Truncated::EndStream);
    ends("END_STREAM", script, Outcome::NoStatus, 0).await;
    let script = Script::truncated(Truncated::StatusZero);
    let seen = ends("grpc-status 0", script, Outcome::CutShort, 0).await;
    println!(
        "half a message and status 0 ends for the caller with {:?}",
        seen.status
    );
}

/// P1: connections that break before or in the head, or in the body, by FIN or by RST: lost, whatever kind
/// of I/O error it was.
#[tokio::test]
async fn a_broken_connection_is_lost_wherever_it_breaks() {
    let places = [
        (At::Request, 0),
        (At::MidHeaders, 0),
        (At::Headers, 0),
        (At::Messages(2), 2),
    ];
    for (at, messages) in places {
        let lost = Outcome::ConnectionLost;
        ends(&format!("FIN {at:?}"), Script::fin(at), lost, messages).await;
        // A TCP reset may overtake the messages before it.
        let seen = call(Script::tcp_reset(at), None).await;
        assert_eq!(seen.outcome, lost, "reset {at:?}: {:?}", seen.status);
        assert!(seen.penalised && seen.messages <= messages, "{at:?}");
    }
}

/// P1: endings without a grpc-status, or with one that doesn't exist, and a GOAWAY that takes back what it
/// had begun to answer.
#[tokio::test]
async fn endings_that_look_complete() {
    for trail in [Trail::None, Trail::NoStatus] {
        let seen = ends("no status", Script::trail(trail), Outcome::NoStatus, 1).await;
        assert_eq!(seen.status.unwrap().code(), Code::Unknown);
    }
    let taken_back = Script::always(Answer::steps([
        Step::AwaitRequest,
        Step::headers(),
        Step::good_message(),
        Step::goaway(0, Last::Zero),
    ]));
    ends("GOAWAY", taken_back, Outcome::NoStatus, 1).await;
    let seen = call(Script::trail(Trail::Status(99)), None).await;
    // An unknown code is Unknown.
    assert_eq!(seen.outcome, Outcome::Status(2));
    assert_eq!(seen.status.unwrap().code(), Code::Unknown);
}

/// P2: the caller's own deadline passes at a server that never answers: an outcome of its own, by its
/// source and not by its code, and no penalty.
#[tokio::test]
async fn the_callers_deadline_is_no_failure() {
    let timeout = Some(Duration::from_millis(100));
    let seen = call(Script::ping_only(), timeout).await;
    // The layer of deadlines ends the call, or tonic does in the same millisecond.
    let by_tonic = seen.outcome == Outcome::Timeout;
    assert!(by_tonic || seen.outcome == Outcome::Dropped);
    assert!(!seen.penalised);
    let deepest = deepest(&seen.status.unwrap());
    assert!(
        deepest.contains("Timeout expired") || deepest.contains("deadline of 100ms"),
        "{deepest}"
    );
}

/// T5, X6: the reason of the peer is the deepest source of the error that the caller gets, through all
/// layers.
#[tokio::test]
async fn the_reason_is_the_deepest_source() {
    let reset = call(Script::rst(11), None).await.status.unwrap();
    let text = deepest(&reset);
    assert!(text.contains("excessive load"), "{text}");
    let cut = call(Script::rst_after_headers(2), None)
        .await
        .status
        .unwrap();
    let text = deepest(&cut);
    assert!(text.contains("internal"), "{text}");
}
