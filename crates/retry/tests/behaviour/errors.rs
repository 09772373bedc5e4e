//! What a caller gets in the end.

use std::{error::Error, io, sync::Arc};

use steadfast_classify::{call_error, local_error};
use steadfast_core::{BoxError, LocalKind, Outcome};
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use crate::{
    over,
    support::{HELD, OTHER, Pool, Reply, request, status, whole},
};

async fn error(path: &str, make: impl Fn() -> BoxError + Send + Sync + 'static) -> BoxError {
    let pool = Pool::new(move |_| Some(Err(make())));
    whole(over(&pool), request(path, b"")).await.unwrap_err()
}

fn of(error: &BoxError) -> &Status {
    error.downcast_ref().expect("a status, not wrapped")
}

fn refused() -> BoxError {
    ConnectError(io::Error::from(io::ErrorKind::ConnectionRefused).into()).into()
}

fn h2(reason: h2::Reason) -> BoxError {
    h2::Error::from(reason).into()
}

/// T5: the deepest source, the attempts and the channels are in the text; the source chain is whole, so what
/// became of the call can still be told; and the status isn't a server's.
#[tokio::test(start_paused = true)]
async fn the_text_and_the_chain() {
    for (path, attempts, channels) in [(HELD, "3 attempts", 3), (OTHER, "1 attempt ", 1)] {
        let error = error(path, refused).await;
        let status = of(&error);
        assert_eq!(status.code(), Code::Unavailable);
        let text = status.message();
        assert!(text.contains("connection refused"), "{text}");
        assert!(text.contains(attempts), "{text}");
        assert_eq!(text.matches('#').count(), channels, "{text}");
        assert_eq!(call_error(&*error), Outcome::DialFailed);
        assert!(status.source().unwrap().is::<ConnectError>());
    }
}

/// T5: a failure without a status of its own has the code that fits it, and the same outcome as before.
#[tokio::test(start_paused = true)]
async fn codes_of_failures() {
    type Make = fn() -> BoxError;
    let rows: [(Make, Code); 6] = [
        (
            || io::Error::from(io::ErrorKind::BrokenPipe).into(),
            Code::Unavailable,
        ),
        (refused, Code::Unavailable),
        (|| TimeoutExpired(()).into(), Code::DeadlineExceeded),
        (
            || steadfast_classify::ChannelClosed::new("gone").into(),
            Code::Unavailable,
        ),
        (|| h2(h2::Reason::PROTOCOL_ERROR), Code::Unknown),
        (|| "something else".into(), Code::Unknown),
    ];
    for (make, code) in rows {
        let was = call_error(&*make());
        let error = error(HELD, make).await;
        match error.downcast_ref::<Status>() {
            Some(status) => assert_eq!(status.code(), code, "{error}"),
            None => assert_eq!((was, code), (Outcome::Other, Code::Unknown)),
        }
        assert_eq!(call_error(&*error), was, "{error}");
    }
}

/// T5: what a server or a layer said stays as it was said; a layer's mark stays where it is.
#[tokio::test(start_paused = true)]
async fn what_has_a_status_keeps_it() {
    let error1 = error(HELD, || Status::unauthenticated("no token").into()).await;
    assert_eq!(of(&error1).code(), Code::Unauthenticated);
    assert_eq!(of(&error1).message(), "no token");
    let refused = || local_error(LocalKind::Overload, "too many", None);
    let error2 = error(HELD, refused).await;
    assert_eq!(of(&error2).code(), Code::ResourceExhausted);
    assert_eq!(of(&error2).message(), "too many");
    assert_eq!(call_error(&*error2), Outcome::Local(LocalKind::Overload));
    assert!(of(&error2).source().unwrap().is::<steadfast_core::Local>());
    fn not_found() -> Reply {
        status(5)
    }
    let pool = Pool::scripted([not_found]);
    let answer = whole(over(&pool), request(HELD, b"")).await.unwrap();
    assert_eq!(answer.1, 5);
}

/// A layer between that hides what it got.
#[derive(Debug)]
struct Hides(#[expect(dead_code, reason = "it is hidden")] BoxError);

impl std::fmt::Display for Hides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("something went wrong")
    }
}

impl Error for Hides {}

/// T1, T2: what a layer between hides is still told by the caller's handle.
#[tokio::test(start_paused = true)]
async fn the_handle_tells_what_a_layer_hides() {
    for (outcome, of_held, of_other) in [
        (Outcome::NeverSent, 17, 17),
        (Outcome::ConnectionLost, 3, 1),
    ] {
        for (path, calls) in [(HELD, of_held), (OTHER, of_other)] {
            let pool = Pool::new(move |seen| {
                let attempt: &steadfast_core::Attempt = seen.extensions.get().unwrap();
                attempt.ended(outcome);
                Some(Err(Hides(refused()).into()))
            });
            whole(over(&pool), request(path, b"")).await.unwrap_err();
            assert_eq!(pool.calls(), calls);
        }
    }
    let pool = Pool::new(|_| Some(Err(Hides(refused()).into())));
    whole(over(&pool), request(HELD, b"")).await.unwrap_err();
    assert_eq!(pool.calls(), 1);
}

/// T5: the error of a request's own layers isn't dressed up: it may be looked for.
#[tokio::test(start_paused = true)]
async fn a_stranger_stays_itself() {
    let error = error(HELD, || Hides("x".into()).into()).await;
    assert!(error.is::<Hides>());
    let shared: Arc<dyn Error + Send + Sync> = Arc::from(error);
    assert_eq!(shared.to_string(), "something went wrong");
}
