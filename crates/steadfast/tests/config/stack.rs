//! What a pool of a configuration does.

use std::time::Duration;

use http_body_util::BodyExt;
use steadfast::{
    BoxError, Config, Kind, Pass, Pool, Rest, RetrySnapshot, Rule, Standing, StreamProgress,
};
use steadfast_testkit::peer::{Answer, Peer, Request, Script, Step};
use tokio::time::timeout;
use tower::ServiceExt;

use super::{env, file};

/// What the default probe asks.
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// The peers here never answer it.
const HELD: &str = "/s/held";
/// The peers here reset it, as one that they never looked at.
const REFUSED: &str = "/s/refused";
/// The peers here answer it with UNAVAILABLE; it is idempotent in the pools here.
const UNAVAILABLE: &str = "/s/unavailable";

/// The same; its streams are resumed.
const STREAM: &str = "/s/stream";

/// Against hanging only.
const TOO_LONG: Duration = Duration::from_secs(30);

/// A server that refuses every call with Unavailable.
pub(crate) fn failing() -> Peer {
    let unavailable = Answer::steps([Step::AwaitRequest, Step::trailers_only(14, "no")]);
    Peer::start(Script::always(unavailable)).unwrap()
}

/// A server that answers by path.
fn server() -> Peer {
    let script = Script::new(|request| match &*request.path {
        HELD => Answer::silence(),
        REFUSED => Answer::steps([Step::AwaitRequest, Step::Rst(7)]),
        UNAVAILABLE | STREAM => Answer::status(14, "no"),
        _ => Answer::good(),
    });
    Peer::start(script).unwrap()
}

/// The requests that a server got for this path.
fn got(server: &Peer, path: &str) -> Vec<Request> {
    let mut requests = server.requests();
    requests.retain(|request| request.path == path);
    requests
}

fn pool(server: &Peer, config: Config) -> Pool {
    Pool::builder(server.uri())
        .config(config)
        .without_env()
        .retry([(UNAVAILABLE, Kind::Held)])
        .build()
        .unwrap()
}

/// One call and the whole of its response.
pub(crate) async fn call(pool: Pool) -> Result<(), BoxError> {
    call_to(pool, "/s/m", &[]).await
}

async fn call_to(pool: Pool, path: &str, headers: &[(&str, &str)]) -> Result<(), BoxError> {
    let mut request = http::Request::post(path).header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(tonic::body::Body::empty())?;
    pool.oneshot(request).await?.into_body().collect().await?;
    Ok(())
}

/// X3: a layer that is switched off leaves no trace; with it on, the same failures do.
#[tokio::test]
async fn a_penalty_that_is_off_leaves_no_trace() {
    for (mode, enabled) in [
        ("flat", false),
        ("reserve", false),
        ("flat", true),
        ("reserve", true),
    ] {
        let text = format!("penalty.mode = '{mode}'\npenalty.enabled = {enabled}");
        let server = failing();
        let pool = pool(&server, file(&text).unwrap());
        pool.warm(4).await.unwrap();
        for _ in 0..20 {
            call(pool.clone()).await.unwrap();
        }
        let snapshot = pool.snapshot();
        let mut channels = snapshot.channels.iter();
        let marked =
            channels.any(|channel| channel.charge > 0 || channel.standing != Standing::Open);
        assert_eq!(marked, enabled, "{mode}: {snapshot:?}");
        assert_eq!(pool.penalty().snapshot().is_empty(), !enabled, "{mode}");
    }
}

/// X3: stall detection that is off asks nobody: neither to warm a channel, nor when a caller waits. Without
/// probes its channels are watched, and nobody is asked either.
#[tokio::test]
async fn stall_detection_that_is_off_asks_nobody() {
    let start = |text: &str| {
        // As soon as can be, so that the test is short.
        let soon = "stall.silence = '20ms'\nstall.tick = '5ms'\n";
        let size = "balance.min = 2\nbalance.initial = 2\nbalance.max = 2\n";
        let config = file(&format!("{soon}{size}{text}")).unwrap();
        let server = server();
        let pool = pool(&server, config);
        (server, pool)
    };
    let off = start("stall.enabled = false");
    let unasked = start("stall.probes = false");
    let on = start("");
    for (server, pool) in [&off, &unasked, &on] {
        pool.warm(2).await.unwrap();
        // It begins to wait before the one with stall detection does.
        tokio::spawn(call_to(pool.clone(), HELD, &[]));
        let held = server.wait_until(TOO_LONG, |seen| {
            seen.requests.iter().any(|request| request.path == HELD)
        });
        held.await.unwrap();
    }
    let asked = || got(&on.0, HEALTH).len();
    assert!(asked() >= 2, "each channel was warmed by one");
    // Until the channel on which a caller waits was asked, while the other one receives.
    let watched = async {
        while asked() == 2 {
            for (_, pool) in [&off, &unasked, &on] {
                call(pool.clone()).await.unwrap();
            }
        }
    };
    timeout(TOO_LONG, watched).await.unwrap();
    for ((server, pool), watched) in [(&off, 0), (&unasked, 2)] {
        assert_eq!(got(server, HEALTH).len(), 0, "{watched}");
        assert_eq!(pool.stall().snapshot().len(), watched);
    }
    assert_eq!(off.1.stall().ring().entries().count(), 0);
}

/// X3: with retry off a call that failed is sent once, whatever the failure; with it on, as often as the
/// settings say.
#[tokio::test]
async fn a_retry_that_is_off_sends_once() {
    type Row = (&'static [(&'static str, &'static str)], usize, usize);
    const ON: (&str, &str) = ("STEADFAST_RETRY_RETRY_ON_UNAVAILABLE", "true");
    let rows: [Row; 6] = [
        (&[ON, ("STEADFAST_RETRY_ENABLED", "false")], 1, 1),
        (&[], 2, 1),
        (&[ON], 2, 3),
        (&[ON, ("STEADFAST_RETRY_ATTEMPTS", "1")], 2, 1),
        (&[ON, ("STEADFAST_RETRY_ATTEMPTS", "5")], 2, 5),
        (
            &[
                ON,
                ("STEADFAST_RETRY_BUDGET_PERCENT", "0"),
                ("STEADFAST_RETRY_BUDGET_PER_SECOND", "0"),
            ],
            2,
            1,
        ),
    ];
    for (variables, refused, unavailable) in rows {
        let server = server();
        let pool = pool(&server, env(variables).unwrap());
        let ended = call_to(pool.clone(), REFUSED, &[]).await;
        assert!(ended.is_err(), "{variables:?}");
        call_to(pool.clone(), UNAVAILABLE, &[]).await.unwrap();
        let sent = [REFUSED, UNAVAILABLE].map(|path| got(&server, path).len());
        assert_eq!(sent, [refused, unavailable], "{variables:?}");
        let untouched = pool.retry().snapshot() == RetrySnapshot::default();
        assert_eq!(untouched, refused == 1, "{variables:?}");
    }
}

/// Asks for the same again.
struct Same;

impl Rule for Same {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn StreamProgress>, BoxError> {
        Ok(Box::new(Self))
    }
}

impl StreamProgress for Same {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::request("again"))
    }
}

/// X3: with resume off a stream that broke is sent once, rule or not; with it on, as often as the settings say.
#[tokio::test]
async fn a_resume_that_is_off_sends_once() {
    type Row = (&'static [(&'static str, &'static str)], usize);
    let rows: [Row; 4] = [
        (&[], 3),
        (&[("STEADFAST_RESUME_ENABLED", "false")], 1),
        (&[("STEADFAST_RESUME_MAX_ATTEMPTS", "5")], 5),
        (&[("STEADFAST_RESUME_RESUME_ON_UNAVAILABLE", "false")], 1),
    ];
    for (variables, expected) in rows {
        let server = server();
        let pool = Pool::builder(server.uri())
            .config(env(variables).unwrap())
            .without_env()
            .resume(Same)
            .build()
            .unwrap();
        let message = http_body_util::Full::new(bytes::Bytes::from_static(&[0; 5]));
        let request = http::Request::post(STREAM).body(tonic::body::Body::new(message));
        let response = timeout(TOO_LONG, pool.clone().oneshot(request.unwrap()));
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(got(&server, STREAM).len(), expected, "{variables:?}");
        let resumed = pool.resume().snapshot().rules[0].resumed;
        assert_eq!(resumed as usize, expected - 1, "{variables:?}");
    }
}

/// X3, M1: `deadline.default` is told to the server by callers that set none, and only by them.
#[tokio::test]
async fn the_default_deadline_is_sent_on() {
    for (text, own, expected) in [
        ("", None, None),
        ("deadline.default = '40s'", None, Some("40000000u")),
        ("deadline.default = '40s'", Some("50S"), Some("50S")),
        ("deadline.default = 'none'", Some("50S"), Some("50S")),
    ] {
        let server = server();
        let pool = pool(&server, file(text).unwrap());
        // A call that waits for a channel is sent with what is left.
        pool.warm(1).await.unwrap();
        let own = own.map(|own| ("grpc-timeout", own));
        call_to(pool, "/s/m", own.as_slice()).await.unwrap();
        let requests = got(&server, "/s/m");
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].header("grpc-timeout"), expected, "{text}");
    }
}
