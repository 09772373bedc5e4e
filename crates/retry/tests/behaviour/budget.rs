//! The retry budget: what it pays for, to the last repetition.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Request;
use steadfast_core::{BoxError, Local, LocalKind};
use steadfast_retry::{Budget, Retry, RetryConfig};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};

use crate::{
    MS, layer,
    support::{HELD, OTHER, Pool, ReplyBody, good, lost, never_sent, request, whole},
};

fn config(percent: u32, per_second: u32) -> RetryConfig {
    RetryConfig {
        attempts: 2,
        backoff: Duration::ZERO,
        budget_percent: percent,
        budget_per_second: per_second,
        ..RetryConfig::default()
    }
}

/// R6: twenty repetitions for a hundred calls, no more and no fewer; calls of other methods pay for none.
#[tokio::test(start_paused = true)]
async fn a_fifth_of_the_calls() {
    let retry = layer(config(20, 0));
    let (fine, broken) = (Pool::scripted([good]), Pool::scripted([lost]));
    let (fine, failing) = (retry.layer(fine), retry.layer(broken.clone()));
    for _ in 0..100 {
        whole(fine.clone(), request(HELD, b"")).await.unwrap();
        whole(fine.clone(), request(OTHER, b"")).await.unwrap();
    }
    for _ in 0..200 {
        whole(failing.clone(), request(HELD, b""))
            .await
            .unwrap_err();
    }
    // Of 300 calls of an idempotent method, those that failed included.
    assert_eq!(broken.calls(), 200 + 60);
    let snapshot = retry.snapshot();
    assert_eq!((snapshot.repeated, snapshot.denied), (60, 140));
}

/// R6: ten a second, gathered over ten seconds.
#[tokio::test(start_paused = true)]
async fn ten_a_second() {
    let retry = layer(config(0, 10));
    let broken = Pool::scripted([lost]);
    let failing = retry.layer(broken.clone());
    for round in 1..=3 {
        for _ in 0..150 {
            whole(failing.clone(), request(HELD, b""))
                .await
                .unwrap_err();
        }
        assert_eq!(retry.snapshot().repeated, 100 * round);
        tokio::time::advance(11_000 * MS).await;
    }
}

/// R6: what the peer never processed needs no budget, and takes none.
#[tokio::test(start_paused = true)]
async fn a_resend_is_free() {
    let retry = layer(config(0, 0));
    let pool = Pool::new(|seen| {
        if seen.number % 17 < 16 {
            never_sent()
        } else {
            good()
        }
    });
    for _ in 0..10 {
        whole(retry.layer(pool.clone()), request(OTHER, b""))
            .await
            .unwrap();
    }
    assert_eq!((pool.calls(), retry.snapshot().denied), (170, 0));
}

/// S4, T5: a spent budget is marked as made locally, and keeps the failure as its source.
#[tokio::test(start_paused = true)]
async fn a_spent_budget_says_so() {
    let pool = Pool::scripted([lost]);
    let retry = layer(config(0, 0));
    let error: BoxError = whole(retry.layer(pool), request(HELD, b""))
        .await
        .unwrap_err();
    assert_eq!(Local::find(&*error).unwrap().kind(), LocalKind::Budget);
    let status: &Status = error.downcast_ref().unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    for text in [
        "budget is spent",
        "connection reset",
        "after 1 attempt on channel #",
    ] {
        assert!(status.message().contains(text), "{status}");
    }
    assert_eq!(retry.snapshot().denied, 1);
}

/// A budget that is told what to say.
#[derive(Default)]
struct Told {
    pays: AtomicBool,
    asked: AtomicBool,
}

impl Budget for Told {
    fn deposit(&self) {}

    fn withdraw(&self) -> bool {
        self.asked.store(true, Ordering::SeqCst);
        self.pays.load(Ordering::SeqCst)
    }
}

/// R6: the budget is a handle that layers share: one of the user's, or one layer's own in another.
#[tokio::test(start_paused = true)]
async fn a_budget_can_be_shared() {
    let told = Arc::new(Told::default());
    let budget = Arc::<Told>::clone(&told);
    let retry = layer(RetryConfig::default()).with_budget(budget);
    for (pays, calls) in [(true, 3), (false, 1)] {
        told.pays.store(pays, Ordering::SeqCst);
        let pool = Pool::scripted([lost]);
        whole(retry.layer(pool.clone()), request(HELD, b""))
            .await
            .unwrap_err();
        assert_eq!(pool.calls(), calls);
        assert!(told.asked.swap(false, Ordering::SeqCst));
    }
    let first = layer(config(0, 10));
    let second = layer(config(0, 10)).with_budget(first.budget().unwrap());
    for retry in [&first, &second, &first, &second] {
        let pool = Pool::scripted([lost]);
        for _ in 0..30 {
            whole(retry.layer(pool.clone()), request(HELD, b""))
                .await
                .unwrap_err();
        }
    }
    assert_eq!(first.snapshot().repeated + second.snapshot().repeated, 100);
    let none = layer(RetryConfig {
        budget: false,
        ..config(0, 0)
    });
    assert!(none.budget().is_none());
    whole(none.layer(Pool::scripted([lost, good])), request(HELD, b""))
        .await
        .unwrap();
}

/// A server that serves ten calls at a time, 100 ms each; those that wait are forgotten when their caller
/// goes away.
#[derive(Clone)]
struct Busy {
    places: Arc<tokio::sync::Semaphore>,
    arrived: Arc<std::sync::atomic::AtomicU64>,
}

impl Service<Request<Body>> for Busy {
    type Response = http::Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        let busy = self.clone();
        Box::pin(async move {
            busy.arrived.fetch_add(1, Ordering::SeqCst);
            let _place = busy.places.acquire().await.expect("it is open");
            tokio::time::sleep(100 * MS).await;
            Ok(good().expect("it answers").expect("well"))
        })
    }
}

/// What callers and the server saw of ten seconds at three times what the server can do, and of ten at half
/// of it after them.
struct Overload {
    calls: u64,
    arrived: u64,
    /// Failures among the calls that began five seconds after the overload, or later.
    failed_late: usize,
}

/// Whether a call failed.
async fn fails(service: Retry<Busy>) -> bool {
    whole(service, request(HELD, b"")).await.is_err()
}

async fn overload(change: impl FnOnce(&mut RetryConfig)) -> Overload {
    let mut config = RetryConfig {
        attempt_timeout: Some(1_000 * MS),
        ..RetryConfig::default()
    };
    change(&mut config);
    let busy = Busy {
        places: Arc::new(tokio::sync::Semaphore::new(10)),
        arrived: Arc::default(),
    };
    let service = layer(config).layer(busy.clone());
    let mut tasks = tokio::task::JoinSet::new();
    let mut call = |late: bool| {
        let service = service.clone();
        tasks.spawn(async move { fails(service).await && late });
    };
    for _ in 0..3_000 {
        call(false);
        tokio::time::sleep(Duration::from_nanos(3_333_333)).await;
    }
    for number in 0..500 {
        call(number >= 250);
        tokio::time::sleep(20 * MS).await;
    }
    let arrived = busy.arrived.load(Ordering::SeqCst);
    let mut failed_late = 0;
    while let Some(failed) = tasks.join_next().await {
        failed_late += usize::from(failed.unwrap());
    }
    Overload {
        calls: 3_500,
        arrived,
        failed_late,
    }
}

/// R6: three times what a server can do, for ten seconds: repetitions add a fifth and ten a second to it, and
/// five seconds after its end every call succeeds again. Without the budget they double the load.
#[tokio::test(start_paused = true)]
async fn an_overload_is_not_made_worse() {
    let bounded = overload(|_| {}).await;
    let repeated = bounded.arrived - bounded.calls;
    assert!(repeated <= bounded.calls / 5 + 10 * 20, "{repeated}");
    assert!(repeated > 100, "{repeated}: there was none");
    assert_eq!(bounded.failed_late, 0);
    let unbounded = overload(|config| config.budget = false).await;
    let repeated = unbounded.arrived - unbounded.calls;
    assert!(
        repeated > unbounded.calls,
        "{repeated}: the budget bounded nothing"
    );
}
