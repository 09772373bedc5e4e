//! The attempts that follow: when, where to, and with what.

use steadfast_classify::{call_error, local_error};
use steadfast_core::{Attempt, Avoid, ChannelId, LocalKind, Outcome, now};
use steadfast_resume::ResumeOn;

use super::{support::*, *};

fn cut() -> Reply {
    grpc(BodyScript::default().error("cut"))
}

/// R6: a random wait of at most 10 ms, doubling to 1 s.
#[tokio::test(start_paused = true)]
async fn waits_are_random_and_double() {
    let mut waits = vec![Vec::new(); 12];
    for _ in 0..40 {
        let pool = Pool::scripted([cut]);
        let service = over_with(&pool, |config| {
            (config.max_attempts, config.budget) = (13, false)
        });
        call(service, up_to(1)).await.unwrap_err();
        let seen = pool.seen();
        for (number, pair) in seen.windows(2).enumerate() {
            waits[number].push(pair[1].at - pair[0].at);
        }
    }
    for (number, waits) in waits.iter().enumerate() {
        let most = (10 * MS * 2_u32.pow(number as u32)).min(SECOND);
        let longest = *waits.iter().max().unwrap();
        // A timer rounds up to a millisecond.
        assert!(longest <= most + MS, "wait {number}: {longest:?}");
        assert!(longest > most / 2, "wait {number}: {longest:?} of {most:?}");
        assert!(*waits.iter().min().unwrap() < most / 2, "wait {number}");
    }
}

/// R6: what the server says goes instead: a time, or not at all.
#[tokio::test(start_paused = true)]
async fn pushback_is_honoured() {
    let unavailable = |pushback: &str| {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("14"));
        trailers.insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
        grpc(numbers(0..1).trailers(trailers))
    };
    let pool = Pool::new(move |seen| match seen.number {
        0 => unavailable("2500"),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let began = now();
    assert_eq!(call(over(&pool), up_to(2)).await.unwrap(), (all(2), 0));
    assert_eq!(now() - began, 2_500 * MS);
    let pool = Pool::new(move |_| unavailable("-1"));
    assert_eq!(call(over(&pool), up_to(2)).await.unwrap(), (all(1), 14));
    assert_eq!(pool.calls(), 1);
}

/// R6: the budget bounds further attempts; those after a quarantine, and what was never processed, are free.
#[tokio::test(start_paused = true)]
async fn the_budget_bounds_further_attempts() {
    let broke = |config: &mut ResumeConfig| {
        (config.budget_percent, config.budget_per_second) = (0, 0);
    };
    let pool = Pool::scripted([|| grpc(numbers(0..1).error("cut"))]);
    let error = call(over_with(&pool, broke), up_to(2)).await.unwrap_err();
    assert_eq!(call_error(&*error), Outcome::Local(LocalKind::Budget));
    let text = error.to_string();
    assert!(text.contains("budget") && text.contains("cut"), "{text}");
    let free: [fn() -> Reply; 2] = [
        || Some(Err(local_error(LocalKind::Quarantine, "a test", None))),
        never_sent,
    ];
    for free in free {
        let pool = Pool::new(move |seen| match seen.number {
            0 | 1 => free(),
            _ => grpc(numbers(asked(seen)).status(0)),
        });
        let got = call(over_with(&pool, broke), up_to(1)).await.unwrap();
        assert_eq!((got, pool.calls()), ((all(1), 0), 3));
    }
    // A stream pays in: 20 of 100.
    let pool = Pool::new(|seen| match (seen.body[6], seen.number) {
        (9, number) if number < 200 => grpc(numbers(0..1).error("cut")),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let layer = layer(|config| config.budget_per_second = 0);
    let service = layer.layer(pool.clone());
    for _ in 0..100 {
        call(service.clone(), up_to(1)).await.unwrap();
    }
    for _ in 0..30 {
        let _ = call(service.clone(), up_to(9)).await;
    }
    let resumed = layer.snapshot().rules[0].resumed;
    assert!((20..=26).contains(&resumed), "{resumed}");
}

/// R6: the deadline bounds the whole, and each attempt is sent with what is left of it.
#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_the_whole() {
    let with = |time: &'static str| {
        let mut request = up_to(2);
        let time = http::HeaderValue::from_static(time);
        request.headers_mut().insert("grpc-timeout", time);
        request
    };
    let pool = Pool::new(|seen| match seen.number {
        0 => grpc(numbers(0..1).wait()),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    call(over(&pool), with("8S")).await.unwrap();
    let sent: Vec<_> = pool
        .seen()
        .iter()
        .map(|it| it.headers["grpc-timeout"].clone())
        .collect();
    assert_eq!(sent, ["8S", "3000000u"]);
    // Less than the gap is left: it ends there, in the body as before the head.
    for head_came in [true, false] {
        let pool = Pool::new(move |_| match head_came {
            true => grpc(numbers(0..1).wait()),
            false => None,
        });
        let began = now();
        let error = call(over(&pool), with("3S")).await.unwrap_err();
        assert_eq!(call_error(&*error), Outcome::Local(LocalKind::Deadline));
        assert_eq!((now() - began, pool.calls()), (3 * SECOND, 1));
    }
    // It ends the wait between attempts.
    let pool = Pool::scripted([cut]);
    let service = over_with(&pool, |config| {
        (config.backoff, config.backoff_max) = (60 * SECOND, 60 * SECOND);
    });
    for _ in 0..3 {
        let began = now();
        let error = call(service.clone(), with("10m")).await.unwrap_err();
        if call_error(&*error) == Outcome::Local(LocalKind::Deadline) {
            assert_eq!(now() - began, 10 * MS);
            let text = error.to_string();
            assert!(
                text.contains("between attempts") && text.contains("cut"),
                "{text}"
            );
            return;
        }
    }
    panic!("no wait was longer than 10 ms");
}

/// R5: each attempt avoids every channel that failed the stream, and those that the caller would avoid.
#[tokio::test(start_paused = true)]
async fn failed_channels_are_avoided() {
    let pool = Pool::new(|seen| match seen.number {
        0 | 1 => grpc(numbers(seen.body[5]..seen.body[5] + 1).error("cut")),
        _ => grpc(numbers(asked(seen)).status(0)),
    });
    let (own, mut request) = (ChannelId::next(), up_to(3));
    request.extensions_mut().insert(Avoid::from_iter([own]));
    request.extensions_mut().insert(7_u8);
    let handle = Attempt::new();
    request.extensions_mut().insert(handle.clone());
    request
        .headers_mut()
        .insert("x-tenant", "a".parse().unwrap());
    call(over(&pool), request).await.unwrap();
    let seen = pool.seen();
    for (number, attempt) in seen.iter().enumerate() {
        let expected: Avoid = [own]
            .into_iter()
            .chain(seen[..number].iter().map(|it| it.channel))
            .collect();
        assert_eq!(attempt.extensions.get::<Avoid>(), Some(&expected));
        // All else of the request is the same.
        assert_eq!(attempt.extensions.get::<u8>(), Some(&7));
        assert_eq!(attempt.headers["x-tenant"], "a");
        assert_eq!(attempt.path, STREAM);
    }
    assert_eq!(handle.channel(), Some(seen[2].channel));
}

/// R1: a request above the limit, of two messages or of none goes through, and isn't resumed.
#[tokio::test(start_paused = true)]
async fn other_requests_go_through() {
    let bodies = [
        BodyScript::default().message(&[0; 100]),
        BodyScript::default().message(&[0, 2]).message(&[0, 2]),
        BodyScript::default(),
        BodyScript::default().message(&[0, 2]).data(vec![0]),
    ];
    for script in bodies {
        let pool = Pool::scripted([|| grpc(numbers(0..1).error("cut"))]);
        let layer = layer(|config| config.request_limit = 50);
        let request = Request::post(STREAM)
            .body(Body::new(script.start().0))
            .unwrap();
        call(layer.layer(pool.clone()), request).await.unwrap_err();
        assert_eq!(pool.calls(), 1);
        let counts = &layer.snapshot().rules[0];
        assert_eq!((counts.calls, counts.passed, counts.resumed), (1, 1, 0));
    }
    // Whole, too.
    let pool = Pool::scripted([good]);
    let big = vec![3; 5_000];
    let service = over_with(&pool, |config| config.request_limit = 50);
    call(service, request(STREAM, &big)).await.unwrap();
    assert_eq!(pool.seen()[0].body, framed(&big));
}

/// R6, R3: which failures are followed, with the default set and with the narrow one.
#[tokio::test(start_paused = true)]
async fn the_set_decides_what_is_followed() {
    let status: fn() -> Reply = || status(14);
    for (reply, wide, narrow) in [
        (status, true, true),
        (|| http(503), true, true),
        (|| http(500), false, false),
        (lost, true, true),
    ] {
        for (set, follows) in [(ResumeOn::default(), wide), (ResumeOn::narrow(), narrow)] {
            let pool = Pool::new(move |seen| match seen.number {
                0 => reply(),
                _ => grpc(numbers(asked(seen)).status(0)),
            });
            let service = over_with(&pool, |config| config.resume_on = set);
            let _ = call(service, up_to(1)).await;
            assert_eq!(pool.calls(), 1 + usize::from(follows));
        }
    }
}

/// R1: a request of as many bytes as may be kept is resumed, and one of one more isn't.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_request_is_exact() {
    for (limit, calls) in [(2, 2), (1, 1), (0, 1)] {
        let pool = Pool::new(|seen| match seen.number {
            0 => grpc(numbers(0..1).error("cut")),
            _ => grpc(numbers(asked(seen)).status(0)),
        });
        let service = over_with(&pool, |config| config.request_limit = limit);
        assert_eq!(call(service, up_to(2)).await.is_ok(), calls == 2);
        assert_eq!(pool.calls(), calls, "{limit}");
    }
}

/// R6: a budget can be shared with another layer, and given by it.
#[tokio::test(start_paused = true)]
async fn a_budget_can_be_shared() {
    let broke = layer(|config| (config.budget_percent, config.budget_per_second) = (0, 0));
    let none = layer(|config| config.budget = false);
    assert!(none.budget().is_none());
    for (sharing, denied) in [
        (none.clone(), 0),
        (none.with_budget(broke.budget().unwrap()), 1),
    ] {
        let pool = Pool::scripted([
            || grpc(numbers(0..1).error("cut")),
            || grpc(numbers(1..2).status(0)),
        ]);
        let done = call(sharing.layer(pool), up_to(2)).await;
        assert_eq!(done.is_err(), denied == 1);
        assert_eq!(sharing.snapshot().rules[0].denied, denied);
    }
}

/// R3: what became of an attempt is known by its handle, though a layer between hides the transport's error; a handle
/// that says nothing else than that it was dropped, or that all went well, says nothing.
#[tokio::test(start_paused = true)]
async fn an_error_that_hides_its_cause_is_told_by_the_handle() {
    let ends = [
        (Some(Outcome::ConnectionLost), true),
        (Some(Outcome::Status(0)), false),
        (Some(Outcome::Dropped), false),
        (Some(Outcome::Status(8)), false),
        (None, false),
    ];
    for (ended, follows) in ends {
        let pool = Pool::new(move |seen| {
            if seen.number > 0 {
                return grpc(numbers(asked(seen)).status(0));
            }
            if let Some(outcome) = ended {
                seen.extensions.get::<Attempt>().unwrap().ended(outcome);
            }
            Some(Err("something went wrong".into()))
        });
        assert_eq!(
            call(over(&pool), up_to(1)).await.is_ok(),
            follows,
            "{ended:?}"
        );
    }
}
