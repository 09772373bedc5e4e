//! Balance and PenaltyWindow together: where requests go when a channel fails. In memory, on a paused
//! clock.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use steadfast::{
    Balance, BalanceConfig, BalanceLayer, BoxError, ChannelId, Each, PenaltyConfig, PenaltyMode,
    PenaltyWindow, PenaltyWindowLayer, Place, Places,
};
use tower::{
    Layer, ServiceBuilder, ServiceExt,
    util::{BoxCloneSyncService, service_fn},
};

type Body = UnsyncBoxBody<Bytes, BoxError>;
type Channel = BoxCloneSyncService<Request<()>, Response<Body>, BoxError>;

/// What the channels of a place answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Ok,
    Unavailable,
    /// A bare HTTP status, with a text or without.
    Http(u16, &'static str),
    /// Headers, and a body that never ends.
    Held,
}

#[derive(Clone, Default)]
struct Servers {
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    calls: Arc<Mutex<HashMap<String, usize>>>,
}

impl Servers {
    fn set(&self, place: &str, answer: Answer) {
        self.answers
            .lock()
            .unwrap()
            .insert(place.to_owned(), answer);
    }

    fn calls(&self, place: &str) -> usize {
        self.calls
            .lock()
            .unwrap()
            .get(place)
            .copied()
            .unwrap_or_default()
    }

    fn answer(&self, place: &Place) -> Response<Body> {
        *self
            .calls
            .lock()
            .unwrap()
            .entry(place.to_string())
            .or_default() += 1;
        let answers = self.answers.lock().unwrap();
        let mut response = Response::new(body(""));
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        match answers.get(place.as_str()).unwrap_or(&Answer::Ok) {
            Answer::Ok => drop(headers.insert("grpc-status", HeaderValue::from_static("0"))),
            Answer::Unavailable => {
                drop(headers.insert("grpc-status", HeaderValue::from_static("14")))
            }
            Answer::Http(status, text) => {
                headers.insert("content-type", HeaderValue::from_static("text/plain"));
                *response.status_mut() = (*status).try_into().unwrap();
                *response.body_mut() = body(text);
            }
            Answer::Held => {
                let (held, _) = steadfast_testkit::body::ScriptBody::new().wait().start();
                *response.body_mut() = held.map_err(Into::into).boxed_unsync();
            }
        }
        response
    }

    fn pool(
        &self,
        mode: PenaltyMode,
        places: &[&str],
    ) -> Balance<PenaltyWindow<steadfast::Bottom<Channel>>> {
        let penalty = PenaltyConfig {
            mode,
            ..PenaltyConfig::default()
        };
        let servers = self.clone();
        let factory = move |_: ChannelId, place: Place| {
            let servers = servers.clone();
            async move {
                let answer = move |_| {
                    let response = servers.answer(&place);
                    async move { Ok::<_, BoxError>(response) }
                };
                Ok::<_, BoxError>(Channel::new(service_fn(answer)))
            }
        };
        // A limit that no test reaches: these are about penalties.
        let config = BalanceConfig {
            assumed_streams: 10_000,
            ..BalanceConfig::fixed(places.len())
        };
        let balance = BalanceLayer::new(config).unwrap();
        let places = Places::list(places.iter().copied());
        ServiceBuilder::new()
            .layer(balance.places(places))
            .layer(Each(PenaltyWindowLayer::new(penalty).unwrap()))
            .service(factory)
    }
}

fn body(text: &'static str) -> Body {
    Full::new(Bytes::from_static(text.as_bytes()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

type Pooled = Balance<PenaltyWindow<steadfast::Bottom<Channel>>>;

/// One call, read to its end.
async fn call(pool: &Pooled) {
    let response = pool.clone().oneshot(Request::new(())).await.unwrap();
    let _ = response.into_body().collect().await;
}

const FAILURES: [Answer; 3] = [
    Answer::Unavailable,
    Answer::Http(503, ""),
    Answer::Http(503, "upstream connect error or disconnect"),
];

/// P1, P5: of ten calls one after another the failing channel gets at most one, after which it is left
/// alone; five seconds after its last failure it is used again. A bare HTTP 503 counts like Unavailable,
/// also with a text.
#[tokio::test(start_paused = true)]
async fn a_failing_channel_gets_one_call_of_ten() {
    for mode in [PenaltyMode::Flat, PenaltyMode::Reserve] {
        for answer in FAILURES {
            let servers = Servers::default();
            servers.set("bad", answer);
            let pool = servers.pool(mode, &["good", "bad"]);
            pool.warm(2).await.unwrap();
            for _ in 0..10 {
                call(&pool).await;
            }
            assert!(
                servers.calls("bad") <= 1,
                "{mode:?} {answer:?}: {}",
                servers.calls("bad")
            );
            // Until it was hit it is asked for; then it works again.
            while servers.calls("bad") == 0 {
                call(&pool).await;
            }
            servers.set("bad", Answer::Ok);
            tokio::time::sleep(Duration::from_millis(5_100)).await;
            let before = servers.calls("bad");
            for _ in 0..100 {
                call(&pool).await;
            }
            assert!(servers.calls("bad") > before + 20, "{mode:?} {answer:?}");
        }
    }
}

/// P3: flat, a penalised channel gets a request only once each other one carries 25 more.
#[tokio::test(start_paused = true)]
async fn flat_means_25_more_on_each_other_channel() {
    let servers = Servers::default();
    servers.set("bad", Answer::Unavailable);
    let pool = servers.pool(PenaltyMode::Flat, &["a", "b", "c", "bad"]);
    pool.warm(4).await.unwrap();
    while servers.calls("bad") == 0 {
        call(&pool).await;
    }
    for place in ["a", "b", "c"] {
        servers.set(place, Answer::Held);
    }
    let before = servers.calls("bad");
    let mut held = Vec::new();
    for _ in 0..3 * 25 {
        held.push(pool.clone().oneshot(Request::new(())).await.unwrap());
    }
    assert_eq!(
        servers.calls("bad"),
        before,
        "the others carried less than 25 more"
    );
    let loads: Vec<_> = pool
        .snapshot()
        .channels
        .iter()
        .map(|c| (c.in_flight, c.charge))
        .collect();
    assert_eq!(
        loads.iter().filter(|load| **load == (25, 0)).count(),
        3,
        "{loads:?}"
    );
    // All cost the same now, and ties are drawn; once the others carry one more it is the cheapest.
    let others = |load: u32| {
        let channels = pool.snapshot().channels;
        channels
            .iter()
            .filter(|c| c.charge == 0)
            .all(|c| c.in_flight == load)
    };
    while !others(26) {
        held.push(pool.clone().oneshot(Request::new(())).await.unwrap());
    }
    let before = servers.calls("bad");
    for _ in 0..10 {
        held.push(pool.clone().oneshot(Request::new(())).await.unwrap());
    }
    assert_eq!(servers.calls("bad"), before + 10);
    assert!(others(26));
}

/// P5: in reserve, one call a second goes to the penalised channel, however busy the others are.
#[tokio::test(start_paused = true)]
async fn reserve_means_one_call_a_second() {
    let servers = Servers::default();
    servers.set("bad", Answer::Unavailable);
    let pool = servers.pool(PenaltyMode::Reserve, &["a", "b", "c", "bad"]);
    pool.warm(4).await.unwrap();
    while servers.calls("bad") == 0 {
        call(&pool).await;
    }
    for place in ["a", "b", "c"] {
        servers.set(place, Answer::Held);
    }
    let mut held = Vec::new();
    let before = servers.calls("bad");
    for _ in 0..20 {
        for _ in 0..30 {
            held.push(pool.clone().oneshot(Request::new(())).await.unwrap());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let trickle = servers.calls("bad") - before;
    assert!((18..=20).contains(&trickle), "{trickle} in 20 s");
}

/// P5: when the channels that are left can't be used, one in reserve is.
#[tokio::test(start_paused = true)]
async fn reserve_is_used_when_nothing_else_is_left() {
    let servers = Servers::default();
    servers.set("bad", Answer::Unavailable);
    let pool = servers.pool(PenaltyMode::Reserve, &["good", "bad"]);
    pool.warm(2).await.unwrap();
    while servers.calls("bad") == 0 {
        call(&pool).await;
    }
    let good = pool
        .snapshot()
        .channels
        .iter()
        .find(|c| c.place.as_str() == "good")
        .unwrap()
        .id;
    let before = servers.calls("bad");
    for _ in 0..5 {
        let mut request = Request::new(());
        request
            .extensions_mut()
            .insert([good].into_iter().collect::<steadfast::Avoid>());
        drop(pool.clone().oneshot(request).await.unwrap());
    }
    assert_eq!(
        servers.calls("bad"),
        before + 5,
        "in reserve comes before avoided"
    );
}

/// P5: when all fail, all are open, and every call reaches a server.
#[tokio::test(start_paused = true)]
async fn when_all_fail_all_are_open() {
    let servers = Servers::default();
    let places = ["a", "b", "c", "d"];
    for place in places {
        servers.set(place, Answer::Unavailable);
    }
    let pool = servers.pool(PenaltyMode::Reserve, &places);
    for _ in 0..400 {
        call(&pool).await;
    }
    let calls = places.map(|place| servers.calls(place));
    assert_eq!(calls.iter().sum::<usize>(), 400);
    assert!(calls.iter().all(|count| *count > 50), "{calls:?}");
}

/// B3, P6: a penalty is no demand: with every channel penalised for minutes the pool doesn't grow.
#[tokio::test(start_paused = true)]
async fn a_penalty_is_no_demand() {
    let servers = Servers::default();
    servers.set("a", Answer::Unavailable);
    let config = PenaltyConfig {
        mode: PenaltyMode::Flat,
        ..PenaltyConfig::default()
    };
    let penalty = PenaltyWindowLayer::new(config).unwrap();
    let factory = move |_: ChannelId, place: Place| {
        let servers = servers.clone();
        async move {
            let answer = move |_| {
                let response = servers.answer(&place);
                async move { Ok::<_, BoxError>(response) }
            };
            Ok::<_, BoxError>(Channel::new(service_fn(answer)))
        }
    };
    let balance = BalanceLayer::new(BalanceConfig::default())
        .unwrap()
        .places(Places::list(["a"]));
    let pool = balance.layer(Each(penalty).layer(factory));
    for _ in 0..5 * 60 {
        for _ in 0..8 {
            call(&pool).await;
        }
        let charges: u32 = pool
            .snapshot()
            .channels
            .iter()
            .map(|channel| channel.charge)
            .sum();
        assert!(charges >= 25, "{charges}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(pool.snapshot().size(), 4);
}
