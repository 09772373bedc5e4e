//! The error of a stream that doesn't go on.

use std::error::Error as _;

use steadfast_classify::call_error;
use steadfast_core::{LocalKind, Outcome};
use tonic::{Code, Status};

use super::{support::*, *};

/// R2: after the last attempt the error says how often it was sent, on which channels, and the deepest cause; and its
/// source is the transport's.
#[tokio::test(start_paused = true)]
async fn the_last_error_names_attempts_channels_and_the_cause() {
    let pool = Pool::scripted([|| grpc(numbers(0..0).error("cut by a saw"))]);
    let error = call(over(&pool), up_to(2)).await.unwrap_err();
    assert_eq!(call_error(&*error), Outcome::ConnectionLost);
    let status = error.downcast::<Status>().unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    let text = status.message();
    assert!(
        text.contains("cut by a saw") && text.contains("after 3 attempts"),
        "{text}"
    );
    for seen in pool.seen() {
        assert!(text.contains(&seen.channel.to_string()), "{text}");
    }
    assert!(status.source().is_some());
}

/// R3: a status that isn't followed goes up as the server sent it.
#[tokio::test(start_paused = true)]
async fn a_status_goes_up_as_it_came() {
    for code in (1..=16).filter(|code| *code != 14) {
        let pool = Pool::new(move |_| grpc(numbers(0..1).status(code)));
        assert_eq!(call(over(&pool), up_to(2)).await.unwrap(), (all(1), code));
        assert_eq!(pool.calls(), 1);
        // In the head, of the first attempt and of a later one.
        let pool = Pool::new(move |_| status(code));
        assert_eq!(
            call(over(&pool), up_to(2)).await.unwrap(),
            (Bytes::new(), code)
        );
        let pool = Pool::new(move |seen| match seen.number {
            0 => grpc(numbers(0..1).error("cut")),
            _ => status(code),
        });
        assert_eq!(call(over(&pool), up_to(2)).await.unwrap(), (all(1), code));
        assert_eq!(pool.calls(), 2);
    }
}

/// R3: so does a bare HTTP status; where the caller has a head already, it is an error that names it.
#[tokio::test(start_paused = true)]
async fn a_bare_http_status_goes_up() {
    let pool = Pool::scripted([|| http(404)]);
    let response = over(&pool).oneshot(up_to(2)).await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "<html>"
    );
    let pool = Pool::scripted([|| grpc(numbers(0..1).error("cut")), || http(404)]);
    let error = call(over(&pool), up_to(2)).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

/// R2: a stream that was silent, and can't go on, says so.
#[tokio::test(start_paused = true)]
async fn a_gap_that_cannot_go_on_says_so() {
    struct Never;
    impl Rule for Never {
        fn method(&self) -> &str {
            STREAM
        }
        fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
            Ok(Box::new(Self))
        }
    }
    impl Progress for Never {
        fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
            Ok(Pass::AsIs)
        }
        fn rest(&mut self) -> Result<Rest, BoxError> {
            Ok(Rest::cannot("it never can"))
        }
    }
    let pool = Pool::scripted([|| grpc(numbers(0..1).wait())]);
    let service = ResumableStreamLayer::default()
        .rule(Never)
        .unwrap()
        .layer(pool);
    let error = call(service, up_to(2)).await.unwrap_err();
    assert_eq!(call_error(&*error), Outcome::Local(LocalKind::GapTimeout));
    let text = error.to_string();
    assert!(
        text.contains("resume.gap_timeout") && text.contains("it never can"),
        "{text}"
    );
}

/// R7: a message over the limit, packed or unpacked, and bytes that are none, end the stream with a clear error.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_ends_the_stream() {
    let cases: [(&'static [u8], Code, &str); 4] = [
        (
            &[0, 0, 0, 0, 11],
            Code::OutOfRange,
            "11 bytes is over resume.message_limit, 10 bytes",
        ),
        (
            &[0, 0xff, 0xff, 0xff, 0xff],
            Code::OutOfRange,
            "resume.message_limit",
        ),
        (&[2, 0, 0, 0, 0], Code::Internal, "the flag 2"),
        (&[1, 0, 0, 0, 1, 0], Code::Internal, "names no compression"),
    ];
    for (bytes, code, says) in cases {
        let pool = Pool::new(move |_| grpc(numbers(0..1).data(bytes).wait()));
        let service = over_with(&pool, |config| config.message_limit = 10);
        let mut body = open(service, up_to(3)).await;
        assert_eq!(data(&mut body).await, framed(&[0]));
        let error = body.frame().await.unwrap().unwrap_err();
        let status = error.downcast::<Status>().unwrap();
        assert_eq!(status.code(), code);
        let text = status.message();
        assert!(text.contains(says) && text.contains(STREAM), "{text}");
        assert!(body.frame().await.is_none());
        assert_eq!(pool.calls(), 1);
    }
}
