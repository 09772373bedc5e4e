//! How long a place is held, and who gets it next.

mod support;

use std::{
    future::{pending, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use steadfast_core::BoxError;
use steadfast_sparse::SparseFlowLayer;
use steadfast_testkit::body::{BodyScript, ScriptBody};
use support::{SOON, counts, of, places, settle, start};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};

type Answer = Response<steadfast_core::ObservedBody<ScriptBody, steadfast_sparse::SparseObserver>>;

/// A way for an exchange to end once its head has come.
type End = fn(Answer) -> Pin<Box<dyn Future<Output = ()>>>;

fn read_to_the_end(answer: Answer) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async {
        let mut body = answer.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        // Kept, so that it isn't the drop that ends it.
        std::mem::forget(body);
    })
}

/// Reads as one who trusts `is_end_stream` and never asks for what comes after the last frame.
fn read_while_there_is_more(answer: Answer) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async {
        let mut body = answer.into_body();
        while !body.is_end_stream() {
            body.frame().await.unwrap().unwrap();
        }
        std::mem::forget(body);
    })
}

fn keep(answer: Answer) -> Pin<Box<dyn Future<Output = ()>>> {
    std::mem::forget(answer);
    Box::pin(async {})
}

fn drop_it(answer: Answer) -> Pin<Box<dyn Future<Output = ()>>> {
    drop(answer);
    Box::pin(async {})
}

/// F5: a place is held from the grant to the end of the body, whichever way it ends, and goes on at once.
#[tokio::test(start_paused = true)]
async fn a_place_is_held_until_the_body_ends() {
    let held = || ScriptBody::new().data("one");
    let ends: [(&str, BodyScript, End); 7] = [
        ("trailers", held().status(0), read_to_the_end),
        (
            "end of stream",
            held().claim_end_stream(false),
            read_to_the_end,
        ),
        ("is_end_stream", held(), read_while_there_is_more),
        ("error", held().error("broken"), read_to_the_end),
        ("drop of the body", held().wait(), drop_it),
        ("at its end when it came", ScriptBody::new(), keep),
        (
            "trailers alone",
            ScriptBody::new().trailers(HeaderMap::new()),
            read_to_the_end,
        ),
    ];
    for (name, script, end) in ends {
        let (layer, mut service, inner) = start(places(1));
        let at_its_end = name == "at its end when it came";
        inner.give(script.start().0);
        let first = service.ready().await.unwrap().call(of("a")).await.unwrap();
        let second = tokio::spawn(service.ready().await.unwrap().call(of("b")));
        settle().await;
        if !at_its_end {
            assert_eq!(
                counts(&layer),
                (1, 1),
                "{name}: held while the body is open"
            );
            assert_eq!(inner.calls(), 1, "{name}");
        }
        end(first).await;
        let second = timeout(SOON, second).await.expect(name).unwrap().unwrap();
        assert_eq!(inner.calls(), 2, "{name}");
        drop(second);
        assert_eq!(counts(&layer), (0, 0), "{name}");
        assert_eq!(layer.snapshot().flows, 0, "{name}");
    }
}

/// F5: a call that fails before its head, or panics, gives its place back too.
#[tokio::test(start_paused = true)]
async fn a_failed_call_gives_its_place_back() {
    let layer = SparseFlowLayer::client(places(1)).unwrap();
    let failing = service_fn(|request: Request<()>| async move {
        match request.uri().path() {
            "/fails" => Err::<Response<ScriptBody>, BoxError>("no".into()),
            "/panics" => panic!("asked to"),
            _ => pending().await,
        }
    });
    let mut service = layer.layer(failing);
    let mut call = |path: &str| {
        let request = Request::builder().uri(path).body(()).unwrap();
        tokio::spawn(service.call(request))
    };
    assert_eq!(call("/fails").await.unwrap().unwrap_err().to_string(), "no");
    assert_eq!(counts(&layer), (0, 0));
    assert!(call("/panics").await.unwrap_err().is_panic());
    assert_eq!(counts(&layer), (0, 0));
    let hangs = call("/hangs");
    settle().await;
    assert_eq!(counts(&layer), (1, 0));
    hangs.abort();
    assert!(hangs.await.unwrap_err().is_cancelled());
    assert_eq!(counts(&layer), (0, 0));
}

/// F5: a service that panics in `call` itself leaves no exchange; its place comes back all the same.
#[tokio::test(start_paused = true)]
async fn a_service_that_panics_in_call_keeps_no_place() {
    let layer = SparseFlowLayer::client(places(1)).unwrap();
    let service = layer.layer(service_fn(
        |_: Request<()>| -> std::future::Ready<Result<Response<ScriptBody>, BoxError>> {
            panic!("asked to")
        },
    ));
    let call = tokio::spawn(service.oneshot(of("a")));
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(counts(&layer), (0, 0));
}

/// F5: a call that is dropped while it waits leaves the queue at once, and the others keep their turns.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_the_queue() {
    let (layer, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    // Never polled, polled, and two that stay.
    let unpolled = service.call(of("b"));
    let polled = tokio::spawn(service.call(of("c")));
    let stays = tokio::spawn(service.call(of("d")));
    settle().await;
    assert_eq!(counts(&layer), (1, 3));
    drop(unpolled);
    assert_eq!(counts(&layer), (1, 2));
    polled.abort();
    settle().await;
    assert_eq!(counts(&layer), (1, 1));
    drop(first);
    drop(timeout(SOON, stays).await.unwrap().unwrap().unwrap());
    assert_eq!(counts(&layer), (0, 0));
    assert_eq!(inner.calls(), 2);
}

/// F5: a call that has its place and is dropped before it was polled again gives it to the next.
#[tokio::test(start_paused = true)]
async fn a_granted_call_that_is_dropped_passes_its_place_on() {
    let (layer, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut second = Box::pin(service.call(of("b")));
    assert!(poll_once(second.as_mut()).is_pending());
    let third = tokio::spawn(service.call(of("c")));
    settle().await;
    drop(first);
    assert_eq!(
        counts(&layer),
        (1, 1),
        "the second has it, and doesn't know yet"
    );
    drop(second);
    drop(timeout(SOON, third).await.unwrap().unwrap().unwrap());
    assert_eq!(counts(&layer), (0, 0));
}

/// F5: nor does a caller that never polls hold more than its own place: the next place goes to the next.
#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_poll_blocks_no_one_else() {
    let (layer, mut service, _) = start(places(2));
    let lazy = service.call(of("a"));
    let second = service.call(of("b")).await.unwrap();
    drop(second);
    for _ in 0..3 {
        drop(service.call(of("b")).await.unwrap());
    }
    assert_eq!(counts(&layer), (1, 0));
    drop(lazy);
    assert_eq!(counts(&layer), (0, 0));
}

/// F5: the waker of the last poll is woken, when the task that polls has changed.
#[tokio::test(start_paused = true)]
async fn the_last_waker_is_woken() {
    let (_, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut second = Box::pin(service.call(of("b")));
    assert!(poll_once(second.as_mut()).is_pending());
    let elsewhere = tokio::spawn(second);
    settle().await;
    drop(first);
    drop(timeout(SOON, elsewhere).await.unwrap().unwrap().unwrap());
}

/// F6: the service is always ready, and a clone shares the places.
#[tokio::test(start_paused = true)]
async fn it_is_always_ready_and_clones_share_the_places() {
    let (layer, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut other = layer.layer(inner.clone());
    poll_fn(|cx| {
        assert!(service.poll_ready(cx).is_ready());
        assert!(service.clone().poll_ready(cx).is_ready());
        assert!(other.poll_ready(cx).is_ready());
        Poll::Ready(())
    })
    .await;
    let mut waits = pin!(other.call(of("b")));
    assert!(poll_once(waits.as_mut()).is_pending());
    assert_eq!(counts(&layer), (1, 1));
    drop(first);
    drop(waits.await.unwrap());
}

/// F6: calls wait in the order in which they were made, not in that of their first polls.
#[tokio::test(start_paused = true)]
async fn the_order_is_that_of_the_calls() {
    let (_, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let first = service.call(of("a")).await.unwrap();
    let mut second = Box::pin(service.call(of("b")));
    let mut third = Box::pin(service.call(of("c")));
    assert!(poll_once(third.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    drop(first);
    assert!(poll_once(third.as_mut()).is_pending());
    let Poll::Ready(Ok(answer)) = poll_once(second.as_mut()) else {
        panic!("it was its turn")
    };
    drop(answer);
    assert!(poll_once(third.as_mut()).is_ready());
}

/// X3: switched off, it counts nothing and holds nobody up.
#[tokio::test(start_paused = true)]
async fn switched_off_it_lets_everything_through() {
    let (layer, mut service, inner) = start(steadfast_sparse::SparseConfig {
        enabled: false,
        ..places(1)
    });
    let mut open = Vec::new();
    for _ in 0..10 {
        inner.give(ScriptBody::new().wait().start().0);
        open.push(service.call(of("a")).await.unwrap());
    }
    assert_eq!(counts(&layer), (0, 0));
}

/// A runtime isn't needed: neither for the layer, nor for calls without a limit.
#[test]
fn it_works_outside_a_runtime() {
    let (layer, mut service, inner) = start(places(1));
    inner.give(ScriptBody::new().wait().start().0);
    let mut first = Box::pin(service.call(of("a")));
    let Poll::Ready(Ok(first)) = poll_once(first.as_mut()) else {
        panic!("nobody else is there")
    };
    let mut second = Box::pin(service.call(of("b")));
    assert!(poll_once(second.as_mut()).is_pending());
    drop(first);
    assert!(poll_once(second.as_mut()).is_ready());
    drop(second);
    assert_eq!(counts(&layer), (0, 0));
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
