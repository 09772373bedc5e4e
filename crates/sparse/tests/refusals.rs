//! Calls that get no place: refused at once, or after the longest wait, or when their deadline has passed.

mod support;

use std::time::Duration;

use steadfast_core::{Attempt, Local, LocalKind, Outcome, now};
use steadfast_sparse::SparseConfig;
use steadfast_testkit::body::ScriptBody;
use support::{SOON, counts, of, places, settle, start};
use tokio::time::timeout;
use tonic::{Code, Status};
use tower::Service;

fn status<'a>(error: &'a (dyn std::error::Error + Send + Sync + 'static)) -> &'a Status {
    error.downcast_ref().expect("a status that isn't wrapped")
}

fn pushback(status: &Status) -> u64 {
    let hint = status.metadata().get("grpc-retry-pushback-ms");
    hint.expect("a hint").to_str().unwrap().parse().unwrap()
}

/// F6, S4: over a bound a call is refused at once, with RESOURCE_EXHAUSTED, a time to come back, and the mark of
/// what was made locally.
#[tokio::test(start_paused = true)]
async fn over_a_bound_calls_are_refused_at_once() {
    for (own, all, text) in [
        (2, 100, "2 calls of this flow"),
        (100, 2, "2 calls wait already"),
    ] {
        let (layer, mut service, inner) = start(SparseConfig {
            max_waiting_per_flow: own,
            max_waiting: all,
            name: "reads".into(),
            ..places(1)
        });
        inner.give(ScriptBody::new().wait().start().0);
        let first = service.call(of("a")).await.unwrap();
        let waiting = [service.call(of("b")), service.call(of("b"))];
        let begun = now();
        let error = service.call(of("b")).await.unwrap_err();
        assert_eq!(now(), begun, "at once");
        let status = status(&*error);
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains(text), "{status}");
        assert!(
            status.message().contains("1 places of \"reads\""),
            "{status}"
        );
        assert!((50..=150).contains(&pushback(status)), "{status:?}");
        assert_eq!(
            Local::find(&*error).map(Local::kind),
            Some(LocalKind::Overload)
        );
        assert_eq!(counts(&layer), (1, 2), "it left no trace");
        assert_eq!(inner.calls(), 1);
        drop((first, waiting));
        assert_eq!(counts(&layer), (0, 0));
    }
}

/// F6: those who are refused together are told different times.
#[tokio::test(start_paused = true)]
async fn refused_callers_are_spread() {
    let (_, mut service, inner) = start(SparseConfig {
        max_waiting: 1,
        pushback: Duration::from_secs(1),
        ..places(1)
    });
    inner.give(ScriptBody::new().wait().start().0);
    let _first = service.call(of("a")).await.unwrap();
    let _waits = service.call(of("a"));
    let mut hints = Vec::new();
    for _ in 0..100 {
        let error = service.call(of("a")).await.unwrap_err();
        hints.push(pushback(status(&*error)));
    }
    hints.sort_unstable();
    assert!(*hints.first().unwrap() >= 500 && *hints.last().unwrap() <= 1500);
    let mean = hints.iter().sum::<u64>() / 100;
    assert!((950..=1050).contains(&mean), "{mean}");
    let gap = hints.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(gap < Some(30), "no two neighbours are far apart: {gap:?}");
    hints.dedup();
    assert!(hints.len() > 90, "{} times for 100", hints.len());
}

/// F6: nobody waits longer than the longest wait; who waited that long is refused in the same way.
#[tokio::test(start_paused = true)]
async fn the_longest_wait() {
    let (layer, mut service, inner) = start(SparseConfig {
        longest_wait: Some(Duration::from_secs(2)),
        ..places(1)
    });
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let begun = now();
    let second = tokio::spawn(service.call(of("b")));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let third = tokio::spawn(service.call(of("c")));
    let error = second.await.unwrap().unwrap_err();
    assert_eq!((now() - begun).as_millis(), 2000);
    assert_eq!(status(&*error).code(), Code::ResourceExhausted);
    assert!(status(&*error).message().contains("within 2s"), "{error}");
    pushback(status(&*error));
    assert_eq!(
        Local::find(&*error).map(Local::kind),
        Some(LocalKind::Overload)
    );
    assert_eq!(counts(&layer), (1, 1));
    // The other still has a second, and gets its place in it.
    drop(first);
    drop(timeout(SOON, third).await.unwrap().unwrap().unwrap());
    assert_eq!(counts(&layer), (0, 0));
}

/// F6: nor longer than the caller's own deadline, which ends as such; the limit that comes first counts.
#[tokio::test(start_paused = true)]
async fn the_callers_deadline() {
    for longest in [None, Some(Duration::from_secs(10))] {
        let (layer, mut service, inner) = start(SparseConfig {
            longest_wait: longest,
            ..places(1)
        });
        inner.give(ScriptBody::new().wait().start().0);
        let first = service.call(of("a")).await.unwrap();
        let mut request = of("b");
        request
            .headers_mut()
            .insert("grpc-timeout", "1500m".parse().unwrap());
        let begun = now();
        let error = service.call(request).await.unwrap_err();
        assert_eq!((now() - begun).as_millis(), 1500);
        assert_eq!(status(&*error).code(), Code::DeadlineExceeded);
        assert_eq!(
            Local::find(&*error).map(Local::kind),
            Some(LocalKind::Deadline)
        );
        assert_eq!(counts(&layer), (1, 0));
        drop(first);
    }
}

/// F6: what is left of the deadline after the wait is what the request goes on with.
#[tokio::test(start_paused = true)]
async fn the_wait_counts_towards_the_deadline() {
    let (_, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut request = of("b");
    let headers = request.headers_mut();
    headers.insert("grpc-timeout", "5S".parse().unwrap());
    let second = tokio::spawn(service.call(request));
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(first);
    second.await.unwrap().unwrap();
    assert_eq!(inner.last().headers()["grpc-timeout"], "3000000u");
    // A call that didn't wait is passed on as it was.
    let mut request = of("b");
    let headers = request.headers_mut();
    headers.insert("grpc-timeout", "5S".parse().unwrap());
    service.call(request).await.unwrap();
    assert_eq!(inner.last().headers()["grpc-timeout"], "5S");
}

/// X6: a deadline in the next millennium is one that never comes, and one that has passed ends the wait at once.
#[tokio::test(start_paused = true)]
async fn odd_deadlines() {
    let (layer, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut with = |timeout: &str| {
        let mut request = of("b");
        let headers = request.headers_mut();
        headers.insert("grpc-timeout", timeout.parse().unwrap());
        service.call(request)
    };
    let begun = now();
    let error = with("0n").await.unwrap_err();
    assert_eq!(status(&*error).code(), Code::DeadlineExceeded);
    assert!((now() - begun).as_millis() <= 1);
    let waiting = ["99999999H", "nonsense"].map(|timeout| tokio::spawn(with(timeout)));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(counts(&layer), (1, 2));
    drop(first);
    for call in waiting {
        drop(timeout(SOON, call).await.unwrap().unwrap().unwrap());
    }
}

/// S4, B9: a refusal is noted on the caller's handle, which gets the request's extensions back.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_noted_on_the_attempt() {
    let (_, mut service, inner) = start(SparseConfig {
        max_waiting: 1,
        longest_wait: Some(Duration::from_secs(1)),
        ..places(1)
    });
    inner.give(ScriptBody::new().wait().start().0);
    let _first = service.call(of("a")).await.unwrap();
    let attempts = [Attempt::new(), Attempt::new()];
    let [waits, refused] = attempts.clone().map(|attempt| {
        attempt.keep_extensions();
        let mut request = of("b");
        request.extensions_mut().insert(attempt);
        service.call(request)
    });
    refused.await.unwrap_err();
    waits.await.unwrap_err();
    for attempt in attempts {
        assert_eq!(attempt.outcome(), Some(Outcome::Local(LocalKind::Overload)));
        assert!(attempt.take_extensions().is_some());
    }
}

/// F6: a refused call that its caller keeps holds nothing.
#[tokio::test(start_paused = true)]
async fn a_refused_call_that_is_kept_holds_nothing() {
    let (layer, mut service, inner) = start(SparseConfig {
        longest_wait: Some(Duration::from_secs(1)),
        ..places(1)
    });
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut kept = Box::pin(service.call(of("b")));
    kept.as_mut().await.unwrap_err();
    assert_eq!(counts(&layer), (1, 0));
    drop(first);
    settle().await;
    assert_eq!(counts(&layer), (0, 0));
    drop(kept);
}
