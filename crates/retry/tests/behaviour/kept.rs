//! What of a request is kept to be sent again, and what isn't.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use steadfast_retry::RetryConfig;
use steadfast_testkit::body::{BodyScript, BodyWatch};
use tonic::body::Body;
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    layer, over, over_with,
    support::{HELD, OTHER, Pool, framed, good, lost, never_sent, poll_once, request, whole},
};

fn with(body: BodyScript) -> (Request<Body>, BodyWatch) {
    let (body, watch) = body.start();
    (Request::post(HELD).body(Body::new(body)).unwrap(), watch)
}

fn script() -> BodyScript {
    BodyScript::default()
}

/// T4: a request is kept up to the limit, however many frames it has; over it, it goes through whole, once.
#[tokio::test(start_paused = true)]
async fn up_to_the_limit() {
    let small = |config: &mut RetryConfig| config.request_limit = 10;
    for (frames, calls) in [
        (vec!["1234567890"], 3),
        (vec!["12345", "", "67890"], 3),
        (vec![], 3),
        (vec!["12345678901"], 1),
        (vec!["12345", "67890", "1"], 1),
        (vec!["12345", "678901", "2345", "6"], 1),
    ] {
        let expected = frames.concat();
        let pool = Pool::scripted([lost, never_sent, good]);
        let (request, _) = with(frames.into_iter().fold(script(), BodyScript::data));
        let answer = whole(over_with(&pool, small), request).await;
        assert_eq!(answer.is_ok(), calls == 3, "{expected}");
        let seen = pool.seen();
        assert_eq!(seen.len(), calls);
        assert!(seen.iter().all(|seen| seen.body == expected), "{expected}");
    }
    let (request, _) = with(script().data(vec![0; 1 << 20]));
    let pool = Pool::scripted([lost, good]);
    whole(over(&pool), request).await.unwrap();
    let (request, _) = with(script().data(vec![0; (1 << 20) + 1]));
    let pool = Pool::scripted([lost, good]);
    whole(over(&pool), request).await.unwrap_err();
    assert_eq!(pool.seen()[0].body.len(), (1 << 20) + 1);
}

/// T4: a request with trailers goes through with them, once.
#[tokio::test(start_paused = true)]
async fn trailers_pass_through() {
    let service = service_fn(async |request: Request<Body>| {
        let body = request.into_body().collect().await?;
        assert_eq!(body.trailers().unwrap()["x-end"], "1");
        assert_eq!(body.to_bytes(), "abc");
        lost().expect("it answers")
    });
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", "1".parse().unwrap());
    let (request, _) = with(script().data("abc").trailers(trailers));
    let retry = layer(RetryConfig::default());
    let answer = retry.layer(service).oneshot(request).await;
    assert!(answer.is_err());
    assert_eq!(retry.snapshot().repeated, 0);
}

/// T4: a caller who writes as it reads isn't kept waiting: the head goes out before the first message is
/// there, and the messages go through.
#[tokio::test(start_paused = true)]
async fn an_upload_is_not_held() {
    for messages in [0, 2] {
        let mut pool = Pool::scripted([good]);
        pool.hasty = true;
        let mut upload = script();
        for _ in 0..messages {
            upload = upload.data("abc");
        }
        let (request, watch) = with(upload.wait().data("late"));
        let response = over(&pool).oneshot(request).await.unwrap();
        assert!(watch.left() > 0, "nobody waited for it");
        assert_eq!(
            response.into_body().collect().await.unwrap().to_bytes(),
            framed(b"good")
        );
    }
    let pool = Pool::scripted([good]);
    let (request, watch) = with(script().data("a").wait().data("b"));
    let mut call = Box::pin(whole(over(&pool), request));
    assert!(poll_once(&mut call).await.is_pending());
    watch.release();
    call.await.unwrap();
    assert_eq!(pool.seen()[0].body, "ab");
}

/// T4: an upload is sent again only while nothing of it was sent, and then whole.
#[tokio::test(start_paused = true)]
async fn an_upload_until_its_first_message() {
    for begun in [false, true] {
        for failure in [lost, never_sent] {
            let mut pool = Pool::scripted([failure, failure, good]);
            pool.hasty = !begun;
            let script = script().data("a").data("b").wait().data("c");
            let (request, watch) = with(script);
            let mut call = Box::pin(whole(over(&pool), request));
            if begun {
                assert!(poll_once(&mut call).await.is_pending());
                assert_eq!(pool.calls(), 1);
                watch.release();
                call.await.unwrap_err();
                assert_eq!(
                    (pool.calls(), pool.seen()[0].body.clone()),
                    (1, Bytes::from("abc"))
                );
                continue;
            }
            call.await.unwrap();
            assert_eq!(pool.calls(), 3);
            assert!(watch.is_dropped());
        }
    }
}

/// T4: an upload that came back is sent whole by the next attempt.
#[tokio::test(start_paused = true)]
async fn an_upload_comes_back_whole() {
    let hasty = std::sync::atomic::AtomicBool::new(true);
    let hasty = std::sync::Arc::new(hasty);
    let service = service_fn(move |request: Request<Body>| {
        let first = hasty.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            if first {
                return never_sent().expect("it answers");
            }
            let body = request.into_body().collect().await?.to_bytes();
            assert_eq!(body, "abc");
            good().expect("it answers")
        }
    });
    let (mut request, watch) = with(script().data("a").data("b").wait().data("c"));
    *request.uri_mut() = OTHER.parse().unwrap();
    let mut call = Box::pin(
        layer(RetryConfig::default())
            .layer(service)
            .oneshot(request),
    );
    assert!(poll_once(&mut call).await.is_pending());
    watch.release();
    call.await.unwrap();
}

/// T4: a request whose own body fails is never sent, and the caller gets its body's error.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_itself() {
    let pool = Pool::scripted([good]);
    let (request, _) = with(script().data("a").error("too large to be encoded"));
    let error = whole(over(&pool), request).await.unwrap_err();
    assert_eq!(pool.calls(), 0);
    assert!(
        error.to_string().contains("too large to be encoded"),
        "{error}"
    );
}

/// T4: what goes down tells its end with its last frame, and never its exact size: hyper would make a
/// content-length of it.
#[tokio::test(start_paused = true)]
async fn hints_of_the_request() {
    let service = service_fn(async |request: Request<Body>| {
        let mut body = request.into_body();
        let hint = body.size_hint();
        assert_eq!((hint.exact(), hint.lower(), hint.upper()), (None, 8, None));
        assert!(!body.is_end_stream());
        body.frame().await.unwrap()?;
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
        good().expect("it answers")
    });
    let call = layer(RetryConfig::default()).layer(service);
    call.oneshot(request(HELD, b"abc")).await.unwrap();
}

/// A body of another kind than tonic's.
struct Own(Option<Bytes>);

impl http_body::Body for Own {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// X1: requests may have any body.
#[tokio::test(start_paused = true)]
async fn any_body_will_do() {
    let pool = Pool::scripted([lost, good]);
    let request = Request::post(HELD).body(Own(Some(Bytes::from("abc"))));
    over(&pool).oneshot(request.unwrap()).await.unwrap();
    assert!(pool.seen().iter().all(|seen| seen.body == "abc"));
    assert_eq!(pool.calls(), 2);
}
