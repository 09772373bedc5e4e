//! What the rows of the failure surface don't ask, on real failures: a tonic channel against a peer that is
//! scripted frame by frame, in real time.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::response::Parts;
use http_body_util::{BodyExt, Full};
use steadfast_classify::{Exchange, call_error, deepest_cause, enhance_your_calm};
use steadfast_core::{BoxError, End, Observe, Observed, Outcome};
use steadfast_testkit::peer::{At, Last, Peer, Script, Step, Then};
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt};

/// Nothing here takes a tenth of it.
const HANG: Duration = Duration::from_secs(20);

/// What the classifier said of one exchange.
#[derive(Clone, Debug, Default)]
struct Verdict {
    early: Option<Outcome>,
    outcome: Option<Outcome>,
    chain: String,
    cause: String,
    calm: bool,
}

struct Watch {
    exchange: Exchange,
    verdict: Arc<Mutex<Verdict>>,
}

impl Observe for Watch {
    fn head(&mut self, head: &Parts) {
        self.verdict.lock().unwrap().early = self.exchange.head(head);
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
    }

    fn end(self, end: End<'_>) {
        let mut verdict = self.verdict.lock().unwrap();
        verdict.outcome = Some(self.exchange.end(&end));
        if let End::Failed(error) = end {
            verdict.calm = enhance_your_calm(error);
            verdict.cause = deepest_cause(error);
            let mut next: Option<&(dyn Error + 'static)> = Some(error);
            while let Some(link) = next {
                verdict.chain += &format!("{link:?} > ");
                next = link.source();
            }
        }
    }
}

fn request() -> http::Request<Body> {
    http::Request::post("/test.Test/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\0"))))
        .unwrap()
}

/// One call, read to the end of its body; with `patience`, dropped then.
async fn call(mut channel: Channel, patience: Option<Duration>) -> Verdict {
    let verdict = Arc::default();
    let watch = Watch {
        exchange: Exchange::new(),
        verdict: Arc::clone(&verdict),
    };
    let request = request();
    let work = async move {
        // An error of readiness is one of the call: tonic keeps the rest for `call`.
        let ready = channel
            .ready()
            .await
            .expect("tonic's lazy channels are always ready");
        if let Ok(response) = Observed::new(ready.call(request), watch).await {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    };
    let in_time = tokio::time::timeout(patience.unwrap_or(HANG), work).await;
    assert!(in_time.is_ok() || patience.is_some(), "the call hangs");
    verdict.lock().unwrap().clone()
}

fn lazy(uri: String) -> Channel {
    Endpoint::from_shared(uri).unwrap().connect_lazy()
}

async fn against(script: Script) -> Verdict {
    let peer = Peer::start(script).unwrap();
    let verdict = call(lazy(peer.uri()), None).await;
    peer.stop().await;
    verdict
}

/// ENHANCE_YOUR_CALM is seen in a GOAWAY and in a reset, and nowhere else.
#[tokio::test]
async fn calm() {
    for script in [
        Script::goaway(11, Last::Zero, Then::Fin),
        Script::rst(11),
        Script::rst_after_headers(11),
    ] {
        let verdict = against(script).await;
        assert!(verdict.calm, "{verdict:?}");
    }
    for script in [
        Script::goaway(0, Last::Zero, Then::Fin),
        Script::rst(8),
        Script::fin(At::Request),
    ] {
        let verdict = against(script).await;
        assert!(!verdict.calm, "{verdict:?}");
    }
}

/// P1: a bare HTTP status, without and with a text, is known at the head.
#[tokio::test]
async fn bare_http() {
    for code in [400, 401, 404, 429, 500, 502, 503, 504] {
        for text in [None, Some("upstream connect error")] {
            let verdict = against(Script::http(code, text)).await;
            assert_eq!(verdict.early, Some(Outcome::Http(code)), "{verdict:?}");
            assert_eq!(verdict.outcome, Some(Outcome::Http(code)), "{verdict:?}");
        }
    }
}

/// T1: what the peer promises of its own request isn't believed of another's: below a layer's error it is read
/// as after the head.
#[tokio::test]
async fn a_refusal_below_a_stranger_is_no_promise() {
    #[derive(Debug)]
    struct Layers(BoxError);

    impl std::fmt::Display for Layers {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a layer failed")
        }
    }

    impl Error for Layers {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    for (script, hidden) in [
        (Script::rst(7), Outcome::Reset(7)),
        (
            Script::goaway(0, Last::Zero, Then::KeepOpen),
            Outcome::GoAway(0),
        ),
    ] {
        let peer = Peer::start(script).unwrap();
        let mut channel = lazy(peer.uri());
        let ready = channel.ready().await.unwrap();
        let error = ready.call(request()).await.unwrap_err();
        assert_eq!(call_error(&error), Outcome::Unprocessed);
        let mut status = tonic::Status::unavailable("a layer's");
        status.set_source(Arc::new(Layers(error.into())));
        assert_eq!(call_error(&status), hidden);
    }
}

/// T1: requests that wait in hyper when the connection goes were never sent. Of the one that waits in h2 that
/// isn't certain.
#[tokio::test]
async fn queued_in_the_transport() {
    let peer = Peer::start(Script::max_streams(1)).unwrap();
    let channel = lazy(peer.uri());
    let first = tokio::spawn(call(channel.clone(), None));
    peer.wait_until(HANG, |state| !state.requests.is_empty())
        .await
        .unwrap();
    let rest: Vec<_> = (0..5)
        .map(|_| tokio::spawn(call(channel.clone(), None)))
        .collect();
    // The runtime has one thread, and a yield lets each task that can go on do so: the five are in hyper then.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(peer.inject(0, [Step::Fin]).await);
    let first = first.await.unwrap();
    assert_eq!(first.outcome, Some(Outcome::ConnectionLost), "{first:?}");
    let mut gone = 0;
    for call in rest {
        let verdict = call.await.unwrap();
        let in_h2 = verdict.chain.contains("DispatchGone");
        let expected = match in_h2 {
            true => Outcome::ConnectionLost,
            false => Outcome::NeverSent,
        };
        assert_eq!(verdict.outcome, Some(expected), "{verdict:?}");
        gone += usize::from(in_h2);
    }
    assert_eq!(gone, 1, "the one that had entered h2");
    assert_eq!(peer.requests().len(), 1);
}
