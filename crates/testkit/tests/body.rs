//! The scripted body: every frame, every wait, every lie.

use bytes::Bytes;
use http_body::{Body, SizeHint};
use http_body_util::BodyExt;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};
use steadfast_testkit::body::ScriptBody;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn frames_come_in_order_and_hints_are_honest() {
    let (mut body, watch) = ScriptBody::new()
        .message(b"abc")
        .data("x")
        .status(5)
        .start();
    assert_eq!(
        (body.size_hint().exact(), body.is_end_stream()),
        (Some(9), false)
    );
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        Bytes::from_static(b"\0\0\0\0\x03abc")
    );
    assert_eq!((body.size_hint().exact(), watch.left()), (Some(1), 2));
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "x"
    );
    assert!(!body.is_end_stream());
    assert_eq!(
        body.frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap()["grpc-status"],
        "5"
    );
    assert!(body.is_end_stream());
    assert_eq!(watch.ends(), 0);
    assert!(body.frame().await.is_none());
    assert_eq!(
        (watch.polls(), watch.ends(), watch.pending_polls()),
        (4, 1, 0)
    );
}

#[test]
fn a_wait_stores_the_last_waker_and_release_wakes_it() {
    let (body, watch) = ScriptBody::new().wait().data("x").start();
    let mut body = pin!(body);
    let (first, second) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    for wakes in [&first, &second] {
        let waker = Waker::from(Arc::clone(wakes));
        assert!(
            body.as_mut()
                .poll_frame(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    assert_eq!((watch.wakers(), watch.pending_polls()), (1, 2));
    watch.wake();
    assert_eq!(
        (
            first.0.load(Relaxed),
            second.0.load(Relaxed),
            watch.wakers()
        ),
        (0, 1, 0)
    );
    let waker = Waker::from(Arc::clone(&first));
    assert!(
        body.as_mut()
            .poll_frame(&mut Context::from_waker(&waker))
            .is_pending(),
        "a wake is not a release"
    );
    watch.release();
    assert_eq!(first.0.load(Relaxed), 1);
    assert!(matches!(
        body.as_mut().poll_frame(&mut Context::from_waker(&waker)),
        Poll::Ready(Some(Ok(_)))
    ));
}

#[tokio::test]
async fn a_release_before_the_wait_is_kept() {
    let (body, watch) = ScriptBody::new().wait().wait().data("x").start();
    watch.release();
    watch.release();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "x");
    assert_eq!(watch.pending_polls(), 0);
}

#[tokio::test]
async fn errors_are_given_and_the_script_goes_on() {
    let (mut body, _watch) = ScriptBody::new().error("cut").data("x").start();
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "cut");
    assert!(body.frame().await.unwrap().is_ok());
}

#[test]
fn lies_are_told_to_the_end() {
    let hint = SizeHint::with_exact(7);
    let (body, watch) = ScriptBody::new()
        .claim_end_stream(false)
        .claim_size_hint(hint)
        .start();
    assert_eq!(
        (body.is_end_stream(), body.size_hint().exact()),
        (false, Some(7))
    );
    let (early, _) = ScriptBody::new().data("x").claim_end_stream(true).start();
    assert!(early.is_end_stream());
    assert!(!watch.is_dropped());
    drop(body);
    assert!(watch.is_dropped());
}
