//! Calls over connections that die in every way, each with an id that the peer writes down. What is told as
//! never sent never came; what is told as unprocessed may have come, but the peer's application never saw it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::response::Parts;
use http_body_util::{BodyExt, Full};
use steadfast_classify::Exchange;
use steadfast_core::{End, Observe, Observed, Outcome, now};
use steadfast_testkit::peer::{Death, Flapping, Peer, Request};
use tokio::task::JoinSet;
use tonic::{
    body::Body,
    transport::{Channel, Endpoint},
};
use tower::{Service, ServiceExt};

/// For all calls of a run together.
const HANG: Duration = Duration::from_secs(300);

const CHANNELS: usize = 8;

/// Callers of one channel: enough for queues in hyper and in h2.
const CALLERS: usize = 8;

/// What the server's application got to see.
type Processed = Arc<Mutex<HashSet<u64>>>;

fn id(request: &Request) -> u64 {
    request
        .id()
        .and_then(|id| id.parse().ok())
        .expect("every call has an id")
}

struct Watch {
    exchange: Exchange,
    result: Arc<Mutex<Option<(Outcome, String)>>>,
}

impl Observe for Watch {
    fn head(&mut self, head: &Parts) {
        self.exchange.head(head);
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
    }

    fn end(self, end: End<'_>) {
        let text = match &end {
            End::Failed(error) => steadfast_classify::deepest_cause(*error),
            _ => String::new(),
        };
        *self.result.lock().unwrap() = Some((self.exchange.end(&end), text));
    }
}

async fn call(mut channel: Channel, id: u64) -> (Outcome, String) {
    let result = Arc::default();
    let watch = Watch {
        exchange: Exchange::new(),
        result: Arc::clone(&result),
    };
    let request = http::Request::post("/test.Test/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-id", id)
        .body(Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\0"))))
        .unwrap();
    let call = async move { channel.ready().await?.call(request).await };
    if let Ok(response) = Observed::new(call, watch).await {
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }
    let result = result.lock().unwrap().take();
    result.expect("an exchange ends")
}

/// Makes this many calls and returns how many connections they took.
async fn flap(seed: u64, calls: u64) -> usize {
    let processed = Processed::default();
    let noted = Arc::clone(&processed);
    let flapping = Flapping::new(seed, &Death::ALL, move |request| {
        noted.lock().unwrap().insert(id(request));
    });
    let peer = Peer::scripted(move |_| flapping.next_connection()).unwrap();
    let next = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CHANNELS {
        let channel = Endpoint::from_shared(peer.uri()).unwrap().connect_lazy();
        for _ in 0..CALLERS {
            let (channel, next) = (channel.clone(), Arc::clone(&next));
            callers.spawn(async move {
                let mut outcomes = Vec::new();
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= calls {
                        return outcomes;
                    }
                    outcomes.push((id, call(channel.clone(), id).await));
                }
            });
        }
    }
    let begun = now();
    let outcomes = tokio::time::timeout(HANG, callers.join_all()).await;
    let outcomes = outcomes.expect("the calls hang").concat();
    let took = now() - begun;

    let arrived: HashSet<u64> = peer.inspect(|state| state.requests.iter().map(id).collect());
    let processed = processed.lock().unwrap();
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (id, (outcome, cause)) in outcomes {
        let (came, done) = (arrived.contains(&id), processed.contains(&id));
        let right = match outcome {
            Outcome::NeverSent | Outcome::DialFailed => !came,
            Outcome::Unprocessed => !done,
            Outcome::Status(_) => done,
            _ => true,
        };
        if !right {
            wrong.push(format!(
                "{id}: {outcome:?} ({cause}), arrived: {came}, processed: {done}"
            ));
        }
        let count = counts.entry(format!("{outcome:?}: {cause}")).or_default();
        count[0] += 1;
        count[1] += usize::from(came);
        count[2] += usize::from(done);
    }
    println!(
        "seed {seed}: {calls} calls, {} connections, {took:.1?}",
        peer.connections()
    );
    for (what, [all, arrived, done]) in &counts {
        println!("{all:6} × {what}: {arrived} arrived, {done} processed");
    }
    assert!(wrong.is_empty(), "seed {seed}\n{}", wrong.join("\n"));
    let expected = [
        "Status(0)",
        "NeverSent",
        "Unprocessed",
        "ConnectionLost: runtime dropped",
        "GoAway(2)",
    ];
    for expected in expected {
        let seen = counts.keys().any(|what| what.starts_with(expected));
        assert!(seen, "seed {seed}: no {expected}, so the run shows nothing");
    }
    peer.connections()
}

/// P1, T1: what is told as never sent never came, and what is told as unprocessed was never processed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_processed_is_true() {
    let connections = flap(1, 2_000).await;
    assert!(connections >= 70, "only {connections} connections");
}

/// The same, with 20,000 calls over more than 700 connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: 20,000 calls, four times"]
async fn long_never_processed_is_true() {
    for seed in [2, 3, 5, 7] {
        let connections = flap(seed, 20_000).await;
        assert!(connections >= 700, "only {connections} connections");
    }
}
