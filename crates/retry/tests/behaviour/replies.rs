//! Replies that break off: kept ones are fetched anew, streams until their first message, and what a failed
//! attempt delivered doesn't count.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt;
use steadfast_classify::body_error;
use steadfast_core::Outcome;
use steadfast_retry::{Progress, RetryConfig, Sink};
use steadfast_testkit::body::BodyScript;
use tower::ServiceExt;

use crate::{
    MS, over, over_with,
    support::{
        HELD, OTHER, Pool, Reply, STREAM, framed, good, grpc, http, poll_once, read, request,
        status, whole,
    },
};

fn body() -> BodyScript {
    BodyScript::default()
}

/// Replies that end before their time: by an error, without a status, and with OK inside a message.
const BROKEN: [fn() -> Reply; 4] = [
    || grpc(body().message(b"lost").error("cut")),
    || grpc(body().message(b"lost")),
    || grpc(body().message(b"lost").claim_end_stream(false)),
    || {
        grpc(
            body()
                .message(b"lost")
                .data(&b"\0\0\0\0\x09half"[..])
                .status(0),
        )
    },
];

/// T2, T3: of a kept reply that broke off the caller sees nothing: it gets the next one, whole. Not so for
/// a method that isn't named idempotent.
#[tokio::test(start_paused = true)]
async fn a_kept_reply_comes_whole() {
    for broken in BROKEN {
        let pool = Pool::scripted([broken, broken, good]);
        let answer = whole(over(&pool), request(HELD, b"")).await;
        assert_eq!(answer.unwrap(), (framed(b"good").into(), 0));
        assert_eq!(pool.calls(), 3);
        let pool = Pool::scripted([broken, good]);
        let response = over(&pool).oneshot(request(OTHER, b"")).await.unwrap();
        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, framed(b"lost"), "it passes through");
        drop(body);
        assert_eq!(pool.calls(), 1);
    }
}

/// T2: all frames of a kept reply, empty ones and its trailers come up, in order, and its size is known.
#[tokio::test(start_paused = true)]
async fn a_kept_reply_is_unchanged() {
    let pool = Pool::scripted([|| {
        let frames = ["\0\0\0\0\x04a", "", "bc", "d"];
        let frames = frames.into_iter().fold(body(), BodyScript::data);
        grpc(frames.message(b"m").status(0))
    }]);
    let response = over(&pool).oneshot(request(HELD, b"")).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let mut body = response.into_body();
    assert_eq!(body.size_hint().exact(), Some(9 + 6));
    let mut frames = Vec::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        assert!(trailers.is_none());
        match frame.unwrap().into_data() {
            Ok(data) => frames.push(data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert_eq!(
        frames,
        [&b"\0\0\0\0\x04a"[..], b"", b"bc", b"d", &framed(b"m")]
    );
    assert_eq!(trailers.unwrap()["grpc-status"], "0");
    assert!(body.is_end_stream());
}

/// T2: a reply over the limit is passed on from there, with what was kept of it, and isn't repeated; at the
/// limit it is.
#[tokio::test(start_paused = true)]
async fn a_large_reply_passes_through() {
    let small = |config: &mut RetryConfig| config.reply_limit = 20;
    fn at_the_limit() -> Reply {
        grpc(body().message(b"12345").message(b"67890"))
    }
    let pool = Pool::scripted([at_the_limit, good]);
    whole(over_with(&pool, small), request(HELD, b""))
        .await
        .unwrap();
    assert_eq!(pool.calls(), 2);
    fn over_it() -> Reply {
        grpc(
            body()
                .message(b"12345")
                .message(b"678901")
                .wait()
                .message(b"x")
                .status(0),
        )
    }
    let pool = Pool::scripted([over_it, good]);
    let response = over_with(&pool, small)
        .oneshot(request(HELD, b""))
        .await
        .unwrap();
    let mut body = response.into_body();
    for expected in [&b"12345"[..], b"678901"] {
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data, framed(expected));
    }
    assert!(
        poll_once(&mut body.frame()).await.is_pending(),
        "the rest comes as it comes"
    );
    assert_eq!(pool.calls(), 1);
}

/// T2, T3: what is over the limit is a single attempt's: a broken reply's part isn't added to the next one's.
#[tokio::test(start_paused = true)]
async fn the_limit_is_of_one_attempt() {
    fn half() -> Reply {
        grpc(body().message(&[0; 10]))
    }
    fn good_20() -> Reply {
        grpc(body().message(&[1; 15]).status(0))
    }
    let pool = Pool::scripted([half, half, good_20]);
    let retry = over_with(&pool, |config| config.reply_limit = 20);
    let answer = whole(retry, request(HELD, b"")).await.unwrap();
    assert_eq!(answer, (framed(&[1; 15]).into(), 0));
}

/// T2: a stream is repeated until its first message came up, also when its head came long before; its head
/// isn't held back for that.
#[tokio::test(start_paused = true)]
async fn a_stream_until_its_first_message() {
    for broken in [
        (|| grpc(body().wait())) as fn() -> Reply,
        || grpc(body().data("").claim_end_stream(false)),
        || grpc(body()),
    ] {
        let pool = Pool::scripted([broken, || {
            grpc(body().message(b"a").message(b"b").status(0))
        }]);
        let retry = over_with(&pool, |config| config.attempt_timeout = Some(100 * MS));
        let response = retry.oneshot(request(STREAM, b"abc")).await.unwrap();
        let answer = read(response).await.unwrap();
        assert_eq!(answer, ([framed(b"a"), framed(b"b")].concat().into(), 0));
        let seen = pool.seen();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[1].body, framed(b"abc"));
    }
    let pool = Pool::scripted([|| grpc(body().wait())]);
    let head = over(&pool).oneshot(request(STREAM, b"")).await;
    assert_eq!(head.unwrap().headers()["content-type"], "application/grpc");
}

/// T2: after its first message a stream is nobody's to repeat here.
#[tokio::test(start_paused = true)]
async fn a_stream_after_its_first_message() {
    let pool = Pool::scripted([|| grpc(body().message(b"a").error("cut")), good]);
    let response = over(&pool).oneshot(request(STREAM, b"")).await.unwrap();
    let mut body = response.into_body();
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(data, framed(b"a"));
    body.frame().await.unwrap().unwrap_err();
    assert!(body.frame().await.is_none());
    assert_eq!(pool.calls(), 1);
    let pool = Pool::scripted([|| grpc(BodyScript::default().message(b"a")), good]);
    let answer = whole(over(&pool), request(STREAM, b"")).await.unwrap();
    assert_eq!(
        (answer.1, pool.calls()),
        (99, 1),
        "without a status, as it came"
    );
}

/// T2: the last attempt of a stream that never had a message: its status, or why there is none.
#[tokio::test(start_paused = true)]
async fn a_stream_in_the_end() {
    let pool = Pool::scripted([|| grpc(body().status(5))]);
    let answer = whole(over(&pool), request(STREAM, b"")).await.unwrap();
    assert_eq!((answer.1, pool.calls()), (5, 1));
    for end in [
        (|| grpc(body().claim_end_stream(false))) as fn() -> Reply,
        || grpc(body()),
    ] {
        let pool = Pool::scripted([end]);
        let error = whole(over(&pool), request(STREAM, b"")).await.unwrap_err();
        assert_eq!(pool.calls(), 3);
        let text = error.to_string();
        assert!(
            text.contains("without a status") && text.contains("3 attempts"),
            "{text}"
        );
    }
    // The caller has the first head: what later heads say is said by trailers, or is an error.
    let waits = || grpc(body().claim_end_stream(false));
    let pool = Pool::scripted([waits, || status(5)]);
    let answer = whole(over(&pool), request(STREAM, b"")).await.unwrap();
    assert_eq!(answer, (Bytes::new(), 5));
    let pool = Pool::scripted([waits, || http(404)]);
    let error = whole(over(&pool), request(STREAM, b"")).await.unwrap_err();
    assert!(error.to_string().contains("HTTP status 404"), "{error}");
}

/// X6: a repeated stream that is compressed in another way than the caller was told is an error, not garbage.
#[tokio::test(start_paused = true)]
async fn a_stream_keeps_its_compression() {
    fn compressed(encoding: &str, script: BodyScript) -> Reply {
        let head = Response::builder()
            .header("content-type", "application/grpc")
            .header("grpc-encoding", encoding);
        Some(Ok(head.body(crate::support::body(script)).unwrap()))
    }
    let rows = [
        ("gzip", "gzip", true),
        ("gzip", "identity", true),
        ("identity", "identity", true),
        ("identity", "gzip", false),
        ("gzip", "zstd", false),
    ];
    for (first, second, fine) in rows {
        let pool = Pool::new(move |seen| match seen.number {
            0 => compressed(first, body().claim_end_stream(false)),
            _ => compressed(second, body().message(b"x").status(0)),
        });
        let answer = whole(over(&pool), request(STREAM, b"")).await;
        assert_eq!(answer.is_ok(), fine, "{first}, {second}: {answer:?}");
    }
}

/// What a sink was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<(Vec<u8>, u32)>>);

impl Sink for Told {
    fn data(&self, data: &Bytes) {
        self.0.lock().unwrap().0.extend_from_slice(data);
    }

    fn start_over(&self) {
        let mut told = self.0.lock().unwrap();
        told.0.clear();
        told.1 += 1;
    }
}

/// T3: a server that sends 60 % and resets, three times, with 4 attempts: the bytes are exact, what was
/// delivered counts once, what was received 2.8 times.
#[tokio::test(start_paused = true)]
async fn what_a_failed_attempt_delivered_is_taken_back() {
    const WHOLE: usize = 1_000_000;
    let content: Vec<u8> = (0..WHOLE - 5).map(|at| (at % 251) as u8).collect();
    let content = framed(&content);
    let sent = Bytes::from(content.clone());
    let pool = Pool::new(move |seen| {
        let part = if seen.number < 3 {
            WHOLE * 6 / 10
        } else {
            WHOLE
        };
        let chunks = sent[..part].chunks(16_384);
        let script = chunks.fold(body(), |script, chunk| script.data(chunk.to_vec()));
        grpc(if seen.number < 3 {
            script
        } else {
            script.status(0)
        })
    });
    let told = Told::default();
    let progress = Progress::into_sink(told.clone());
    let mut request = request(HELD, b"");
    request.extensions_mut().insert(progress.clone());
    let retry = over_with(&pool, |config| config.attempts = 4);
    let (data, code) = whole(retry, request).await.unwrap();
    assert_eq!((code, pool.calls()), (0, 4));
    assert_eq!(data, content);
    assert_eq!(progress.delivered(), 1_000_000);
    assert_eq!(progress.received(), 2_800_000);
    let told = told.0.lock().unwrap();
    assert_eq!((&told.0, told.1), (&content, 3));
}

/// T3: progress is told of every reply, while it is on its way, and each byte once: kept, over the limit, a
/// stream, or of any other method.
#[tokio::test(start_paused = true)]
async fn progress_counts_every_reply_once() {
    for (path, limit) in [(HELD, 1_000), (HELD, 3), (STREAM, 1_000), (OTHER, 1_000)] {
        let pool = Pool::scripted([|| grpc(body().data("\0\0\0\0\x03").data("678").status(0))]);
        let progress = Progress::new();
        let mut request = request(path, b"");
        request.extensions_mut().insert(progress.clone());
        let retry = over_with(&pool, |config| config.reply_limit = limit);
        whole(retry, request).await.unwrap();
        assert_eq!(
            (progress.delivered(), progress.received()),
            (8, 8),
            "{path} {limit}"
        );
    }
}

/// T5: what a body's error means is still there in the final one, and it reads well.
#[tokio::test(start_paused = true)]
async fn a_cut_reply_keeps_its_cause() {
    let pool = Pool::scripted([|| grpc(body().message(b"x").error("peer gone"))]);
    let error = whole(over(&pool), request(HELD, b"")).await.unwrap_err();
    assert_eq!(body_error(&*error), Outcome::ConnectionLost);
    let text = error.to_string();
    assert!(
        text.contains("peer gone; after 3 attempts on channel #"),
        "{text}"
    );
    let broken = || grpc(body().message(b"x").error("peer gone"));
    let pool = Pool::scripted([broken]);
    let response = over(&pool).oneshot(request(OTHER, b"")).await.unwrap();
    let error = read(response).await.unwrap_err();
    assert_eq!(body_error(&*error), Outcome::ConnectionLost);
    let text = error.to_string();
    assert!(
        text.contains("peer gone; after 1 attempt on channel #"),
        "{text}"
    );
}
