//! What is sent again, where, when, and what goes with it.

use std::time::Duration;

use steadfast_classify::{deadline, local_error};
use steadfast_core::{Attempt, Avoid, Local, LocalKind, now};
use steadfast_retry::{RetryConfig, RetryOn};
use steadfast_testkit::body::BodyScript;
use tower::Layer;

use crate::{
    MS, layer, over, over_with,
    support::{
        HELD, OTHER, Pool, Reply, STREAM, body, framed, good, grpc, http, lost, never_sent,
        request, status, whole,
    },
};

/// Something that a caller, or a layer above, put into the request.
#[derive(Clone, Debug, PartialEq)]
struct Marker(u32);

fn quarantined() -> Reply {
    Some(Err(local_error(LocalKind::Quarantine, "a test", None)))
}

/// T1: a call that never left is sent again for any method, away from every channel that lost it, as it was:
/// the same head, the same message, the same extensions and the caller's own handle.
#[tokio::test(start_paused = true)]
async fn what_never_left_goes_elsewhere() {
    let pool = Pool::new(|seen| {
        if seen.number < 5 {
            never_sent()
        } else {
            good()
        }
    });
    let mut request = request(OTHER, b"abc");
    let attempt = Attempt::new();
    request.extensions_mut().insert(Marker(7));
    request.extensions_mut().insert(attempt.clone());
    let elsewhere = steadfast_core::ChannelId::next();
    let avoid: Avoid = [elsewhere].into_iter().collect();
    request.extensions_mut().insert(avoid);
    let headers = request.headers().clone();
    let began = now();
    let answer = whole(over(&pool), request).await.unwrap();
    assert_eq!(answer, (framed(b"good").into(), 0));
    let seen = pool.seen();
    assert_eq!(seen.len(), 6);
    for (number, attempt) in seen.iter().enumerate() {
        assert_eq!(attempt.headers, headers);
        assert_eq!(attempt.body, framed(b"abc"));
        assert_eq!(attempt.extensions.get(), Some(&Marker(7)));
        let avoid: &Avoid = attempt.extensions.get().unwrap();
        assert!(avoid.contains(elsewhere), "what the caller said stays");
        let before = seen[..number].iter().map(|attempt| attempt.channel);
        let expected: Avoid = [elsewhere].into_iter().chain(before).collect();
        assert_eq!(avoid, &expected);
        assert_eq!(attempt.at, began, "at once");
    }
    assert_eq!(attempt.channel(), Some(seen[5].channel));
}

/// T1: sixteen times, then it is reported.
#[tokio::test(start_paused = true)]
async fn sixteen_times() {
    let pool = Pool::scripted([never_sent]);
    let retry = layer(RetryConfig::default());
    let error = whole(retry.layer(pool.clone()), request(OTHER, b""))
        .await
        .unwrap_err();
    assert_eq!(pool.calls(), 17);
    assert!(error.to_string().contains("after 17 attempts"), "{error}");
    let snapshot = retry.snapshot();
    assert_eq!((snapshot.resent, snapshot.exhausted), (16, 1));
}

/// T1: what a layer can do without: nothing is sent again when it is off.
#[tokio::test(start_paused = true)]
async fn switched_off() {
    for replies in [never_sent, lost] {
        let pool = Pool::scripted([replies]);
        let retry = over_with(&pool, |config| config.enabled = false);
        whole(retry, request(HELD, b"")).await.unwrap_err();
        assert_eq!(pool.calls(), 1);
    }
}

/// T2: what may have been processed is repeated for methods named idempotent, after a random wait, three
/// attempts in all; and for no other method.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_processed() {
    for path in [HELD, STREAM] {
        let pool = Pool::scripted([lost, lost, good]);
        let began = now();
        let answer = whole(over(&pool), request(path, b"abc")).await.unwrap();
        assert_eq!(answer, (framed(b"good").into(), 0));
        let seen = pool.seen();
        assert_eq!(seen.len(), 3);
        // A timer has a resolution of 1 ms.
        assert!(seen[1].at - began <= 11 * MS);
        assert!(seen[2].at - seen[1].at <= 21 * MS);
        let pool = Pool::scripted([lost]);
        whole(over(&pool), request(path, b"")).await.unwrap_err();
        assert_eq!(pool.calls(), 3);
    }
    let pool = Pool::scripted([lost, good]);
    whole(over(&pool), request(OTHER, b"")).await.unwrap_err();
    assert_eq!(pool.calls(), 1);
}

/// T2: what can't be reached has waits between its attempts that are drawn from all of the range.
#[tokio::test(start_paused = true)]
async fn waits_are_random() {
    let mut waits = Vec::new();
    for _ in 0..200 {
        let pool = Pool::scripted([lost, good]);
        whole(over(&pool), request(HELD, b"")).await.unwrap();
        let seen = pool.seen();
        waits.push(seen[1].at - seen[0].at);
    }
    let mean = waits.iter().sum::<Duration>() / 200;
    // 5 ms, and half a millisecond more for the timer's resolution; 200 draws are within 1 ms of that.
    assert!((4 * MS..7 * MS).contains(&mean), "{mean:?}");
    assert!(waits.iter().any(|wait| *wait <= 2 * MS) && waits.iter().any(|wait| *wait >= 9 * MS));
}

/// T2: a local quarantine is repeated though no budget is left for it; the mark is there in the end.
#[tokio::test(start_paused = true)]
async fn a_quarantine_needs_no_budget() {
    let broke = |config: &mut RetryConfig| {
        (config.budget_percent, config.budget_per_second) = (0, 0);
    };
    let pool = Pool::scripted([quarantined, quarantined, good]);
    whole(over_with(&pool, broke), request(HELD, b""))
        .await
        .unwrap();
    assert_eq!(pool.calls(), 3);
    let pool = Pool::scripted([quarantined]);
    let error = whole(over_with(&pool, broke), request(HELD, b""))
        .await
        .unwrap_err();
    assert_eq!(pool.calls(), 3);
    let mark = Local::find(&*error).expect("made locally");
    assert_eq!(mark.kind(), LocalKind::Quarantine);
    assert!(
        error.to_string().contains("after 3 attempts on channel #"),
        "{error}"
    );
    let pool = Pool::scripted([quarantined]);
    whole(over(&pool), request(OTHER, b"")).await.unwrap_err();
    assert_eq!(pool.calls(), 1, "it may have been processed");
}

/// T2: the server's UNAVAILABLE, in the headers, in the trailers and as a proxy's HTTP status, is repeated
/// when it is switched on, and else passed up as it is.
#[tokio::test(start_paused = true)]
async fn unavailable_is_a_switch() {
    fn in_trailers() -> Reply {
        grpc(BodyScript::default().message(b"x").status(14))
    }
    fn in_headers() -> Reply {
        status(14)
    }
    fn of_a_proxy() -> Reply {
        http(503)
    }
    for reply in [in_trailers, in_headers, of_a_proxy] {
        let pool = Pool::scripted([reply, good]);
        let on = |config: &mut RetryConfig| config.retry_on.unavailable = true;
        let answer = whole(over_with(&pool, on), request(HELD, b""))
            .await
            .unwrap();
        assert_eq!((answer.1, pool.calls()), (0, 2));
        let pool = Pool::scripted([reply, good]);
        let answer = whole(over(&pool), request(HELD, b"")).await.unwrap();
        assert_ne!(answer.1, 0);
        assert_eq!(pool.calls(), 1);
    }
}

/// T2: the set is the user's: with the time-out alone, a lost connection is reported.
#[tokio::test(start_paused = true)]
async fn the_set_is_configurable() {
    let pool = Pool::scripted([lost, good]);
    let alone = |config: &mut RetryConfig| {
        config.retry_on = RetryOn {
            timeout: true,
            ..RetryOn::nothing()
        };
        config.attempt_timeout = Some(50 * MS);
    };
    whole(over_with(&pool, alone), request(HELD, b""))
        .await
        .unwrap_err();
    assert_eq!(pool.calls(), 1);
    let pool = Pool::new(|seen| if seen.number == 0 { None } else { good() });
    whole(over_with(&pool, alone), request(HELD, b""))
        .await
        .unwrap();
    assert_eq!(pool.calls(), 2);
}

/// T2: an attempt that takes too long is given up and repeated, with the request's extensions though nobody
/// handed them back; without a time-out it may take for ever.
#[tokio::test(start_paused = true)]
async fn an_attempt_may_have_a_time_out() {
    let mut pool = Pool::scripted([good]);
    pool.queues = true;
    let retry = over_with(&pool, |config| {
        (config.attempt_timeout, config.backoff) = (Some(70 * MS), Duration::ZERO);
    });
    let mut request1 = request(HELD, b"abc");
    request1.extensions_mut().insert(Marker(7));
    let began = now();
    whole(retry, request1).await.unwrap();
    let seen = pool.seen();
    assert_eq!(seen[1].at - began, 70 * MS);
    assert_eq!(seen[1].extensions.get(), Some(&Marker(7)));
    assert_eq!(seen[1].body, framed(b"abc"));
    let pool = Pool::new(|_| None);
    let retry = over_with(&pool, |config| config.attempt_timeout = Some(70 * MS));
    let error = whole(retry, request(HELD, b"")).await.unwrap_err();
    assert_eq!(pool.calls(), 3);
    let text = error.to_string();
    assert!(
        text.contains("timed out") && text.contains("3 attempts"),
        "{text}"
    );
    let retry = over(&pool);
    let hour = tokio::time::timeout(3_600_000 * MS, whole(retry, request(HELD, b"")));
    hour.await.unwrap_err();
}

/// T2: a reply that stops in its middle is given up by the attempt's time-out too.
#[tokio::test(start_paused = true)]
async fn a_reply_may_stop_in_its_middle() {
    fn stops() -> Reply {
        grpc(BodyScript::default().message(b"x").wait())
    }
    let pool = Pool::scripted([stops, good]);
    let retry = over_with(&pool, |config| config.attempt_timeout = Some(70 * MS));
    let answer = whole(retry, request(HELD, b"")).await.unwrap();
    assert_eq!(answer, (framed(b"good").into(), 0));
}

/// Pushback in trailers, or headers if there is no message.
fn pushed(value: &'static str) -> impl Fn() -> Reply {
    move || {
        let head = http::Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-status", "14")
            .header("grpc-retry-pushback-ms", value);
        Some(Ok(head.body(body(BodyScript::default())).unwrap()))
    }
}

/// R6: the server's pushback is waited for exactly; less than nothing, or what is no number, means no.
#[tokio::test(start_paused = true)]
async fn pushback_is_honoured() {
    let on = |config: &mut RetryConfig| config.retry_on.unavailable = true;
    for (value, wait) in [("70", Some(70)), ("0", Some(0)), ("300000", Some(300_000))]
        .into_iter()
        .chain(["-1", "", "x", "300001", "99999999999999999999", "1.5"].map(|v| (v, None)))
    {
        for in_trailers in [false, true] {
            let pool = Pool::new(move |seen| match (seen.number, in_trailers) {
                (0, false) => pushed(value)(),
                (0, true) => {
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", "14".parse().unwrap());
                    trailers.insert("grpc-retry-pushback-ms", value.parse().unwrap());
                    grpc(BodyScript::default().trailers(trailers))
                }
                _ => good(),
            });
            let answer = whole(over_with(&pool, on), request(HELD, b""))
                .await
                .unwrap();
            let seen = pool.seen();
            match wait {
                Some(ms) => {
                    assert_eq!(answer.1, 0, "{value}");
                    assert_eq!(seen[1].at - seen[0].at, ms * MS, "{value}");
                }
                None => assert_eq!((answer.1, seen.len()), (14, 1), "{value}"),
            }
        }
    }
}

/// R6: the caller's deadline goes with each attempt, as what is left of it.
#[tokio::test(start_paused = true)]
async fn each_attempt_is_sent_with_what_is_left() {
    let pool = Pool::new(|seen| match seen.number {
        0 => pushed("300")(),
        1 => pushed("450")(),
        _ => good(),
    });
    let on = |config: &mut RetryConfig| config.retry_on.unavailable = true;
    let mut request = request(HELD, b"");
    deadline::write(request.headers_mut(), 1_000 * MS);
    whole(over_with(&pool, on), request).await.unwrap();
    let left = |number: usize| deadline::read(&pool.seen()[number].headers).unwrap();
    assert_eq!(
        [left(0), left(1), left(2)],
        [1_000 * MS, 700 * MS, 250 * MS]
    );
}
