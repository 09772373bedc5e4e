//! `InFlightLayer`: B1's count where no pool does it, back at zero after every kind of end.

mod support;

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use steadfast_core::{BoxError, ChannelLayer, InFlightLayer, Meter, Metered};
use support::{Broken, Script, Step, poll_frame};
use tower::{Service, service_fn};

/// Calls a channel whose service answers with `answer`, and gives its meter and the future.
fn call<F>(answer: F) -> (Meter, impl Future<Output = Result<Body, BoxError>> + Unpin)
where
    F: Future<Output = Result<Response<Script>, Broken>> + Unpin,
{
    let mut answer = Some(answer);
    let service = service_fn(move |_: Request<()>| answer.take().unwrap());
    let mut channel = InFlightLayer.layer_channel(Metered::new(service));
    let meter = channel.meter().clone();
    let ready = channel.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Ok(()))));
    assert_eq!(meter.read().in_flight(), 0, "counted at the call");
    let mut called = channel.call(Request::new(()));
    let head = poll_fn(move |cx| Pin::new(&mut called).poll(cx).map_ok(Response::into_body));
    (meter, head)
}

type Body = steadfast_core::ObservedBody<Script, steadfast_core::InFlightObserver>;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A channel's meter and the body of a call on it.
fn open(body: Script) -> (Meter, Body) {
    let (meter, mut head) = call(std::future::ready(Ok(Response::new(body))));
    assert_eq!(meter.read().in_flight(), 1);
    match poll(&mut head) {
        Poll::Ready(Ok(body)) => (meter, body),
        other => panic!("no head: {other:?}"),
    }
}

/// B1: the head is not the end; each of the five ends of the body is.
#[test]
fn each_of_the_five_ends_frees_the_place() {
    let ends = [
        (
            "trailers",
            Script::new([Step::Data("a"), Step::Trailers("0")]),
        ),
        ("error", Script::new([Step::Data("a"), Step::Fail("cut")])),
        (
            "hint",
            Script::new([Step::Data("a"), Step::Data("b")]).tells_end(),
        ),
    ];
    for (end, script) in ends {
        let (meter, mut body) = open(script);
        assert_eq!(meter.read().in_flight(), 1, "{end}: open at the head");
        assert!(poll_frame(&mut body).is_ready());
        assert_eq!(meter.read().in_flight(), 1, "{end}: open half-way");
        assert!(poll_frame(&mut body).is_ready());
        assert_eq!(meter.read().in_flight(), 0, "{end}: free at the end");
        drop(body);
        assert_eq!(meter.read().in_flight(), 0, "{end}: once");
    }

    let (meter, mut body) = open(Script::new([Step::Pending]));
    assert!(poll_frame(&mut body).is_pending());
    assert_eq!(meter.read().in_flight(), 1);
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    assert_eq!(meter.read().in_flight(), 0, "None");

    let (meter, body) = open(Script::new([Step::Data("a")]));
    assert_eq!(meter.read().in_flight(), 1);
    drop(body);
    assert_eq!(meter.read().in_flight(), 0, "dropped");
}

/// B1: a body that is at its end when it comes.
#[test]
fn a_body_at_its_end_frees_the_place() {
    let (meter, _body) = open(Script::new([]).tells_end());
    assert_eq!(meter.read().in_flight(), 0);
}

/// B1: a call that fails, and one whose caller goes away before or while it waits.
#[test]
fn a_call_without_a_body_frees_the_place() {
    let (meter, mut head) = call(std::future::ready(Err(Broken::new("refused"))));
    assert!(matches!(poll(&mut head), Poll::Ready(Err(_))));
    assert_eq!(meter.read().in_flight(), 0, "failed");

    for polls in 0..2 {
        let (meter, mut head) = call(std::future::pending());
        (0..polls).for_each(|_| assert!(poll(&mut head).is_pending()));
        assert_eq!(meter.read().in_flight(), 1);
        drop(head);
        assert_eq!(meter.read().in_flight(), 0, "dropped after {polls} polls");
    }
}

/// B1, X6: a service that panics in `call` leaves no count behind.
#[test]
fn a_panic_in_call_frees_the_place() {
    let service = service_fn(
        |_: Request<()>| -> std::future::Ready<Result<Response<Script>, Broken>> {
            panic!("never polled ready")
        },
    );
    let mut channel = InFlightLayer.layer_channel(Metered::new(service));
    let caught = catch_unwind(AssertUnwindSafe(|| drop(channel.call(Request::new(())))));
    assert!(caught.is_err());
    assert_eq!(channel.meter().read().in_flight(), 0);
}

/// X1: readiness and its error are the inner service's.
#[test]
fn readiness_is_passed_through() {
    struct NeverReady;
    impl Service<Request<()>> for NeverReady {
        type Response = Response<Script>;
        type Error = Broken;
        type Future = std::future::Ready<Result<Response<Script>, Broken>>;
        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            Poll::Ready(Err(Broken::new("discard me")))
        }
        fn call(&mut self, _request: Request<()>) -> Self::Future {
            std::future::ready(Err(Broken::new("never called")))
        }
    }
    let mut channel = InFlightLayer.layer_channel(Metered::new(NeverReady));
    let ready = channel.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(Err(error)) if error.is::<Broken>()));
}
