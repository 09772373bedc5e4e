//! B1: an exchange ends exactly once, whichever way it ends. The five ends of a body, a body that is
//! at its end when it comes, and all that can happen to the future before it.

mod support;

use std::{
    future::{self, Future},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use proptest::prelude::*;
use steadfast_core::{BoxError, Observed, ObservedBody};
use support::{Broken, Notes, Recorder, Script, Step, Told, is_end, poll_frame};

type Watched = ObservedBody<Script, Recorder>;

/// Polls a future once with a waker that does nothing.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn observed(
    body: Script,
    observer: Recorder,
) -> Observed<future::Ready<Result<Response<Script>, Broken>>, Recorder> {
    Observed::new(future::ready(Ok(Response::new(body))), observer)
}

/// The body of an exchange whose head came at once.
fn body_of(body: Script, observer: Recorder) -> Watched {
    match poll(&mut observed(body, observer)) {
        Poll::Ready(Ok(response)) => response.into_body(),
        other => panic!("no head: {other:?}"),
    }
}

fn data(text: &'static str) -> Told {
    Told::Data(Bytes::from_static(text.as_bytes()))
}

/// Reads to `None`, over waits, and gives back what came: data as text, trailers as `trailers`.
fn read_all(body: &mut Watched) -> Vec<String> {
    let mut came = Vec::new();
    loop {
        match poll_frame(body) {
            Poll::Ready(None) => return came,
            Poll::Ready(Some(Ok(frame))) => came.push(frame.into_data().map_or_else(
                |_| "trailers".to_owned(),
                |data| String::from_utf8_lossy(&data).into_owned(),
            )),
            Poll::Ready(Some(Err(error))) => came.push(format!("error: {error}")),
            Poll::Pending => {}
        }
    }
}

/// B1, first end: a trailers frame. The frame goes up, and the end carries it.
#[test]
fn trailers_end_the_exchange() {
    let notes = Notes::default();
    let script = Script::new([Step::Data("a"), Step::Trailers("14")]);
    let mut body = body_of(script, notes.observer());
    assert_eq!(notes.ends(), 0, "the head is not the end");
    assert_eq!(read_all(&mut body), ["a", "trailers"]);
    drop(body);
    let told = [Told::Head(200), data("a"), Told::Trailers("14".into())];
    assert_eq!(notes.all(), told);
}

/// B1: the end is told when the trailers frame is handed up, not when the caller asks once more.
#[test]
fn trailers_end_it_without_another_poll() {
    let notes = Notes::default();
    let mut body = body_of(Script::new([Step::Trailers("0")]), notes.observer());
    assert!(poll_frame(&mut body).is_ready());
    assert_eq!(notes.ends(), 1);
}

/// B1, second end: `None`.
#[test]
fn the_end_of_the_stream_ends_the_exchange() {
    let notes = Notes::default();
    let mut body = body_of(Script::new([Step::Data("a")]), notes.observer());
    assert_eq!(read_all(&mut body), ["a"]);
    assert_eq!(notes.all(), [Told::Head(200), data("a"), Told::Eos]);
    assert_eq!(read_all(&mut body), Vec::<String>::new());
    drop(body);
    assert_eq!(notes.ends(), 1);
}

/// B1, third end: an error. It goes up unchanged, then `None`; the stream below is given up at once.
#[test]
fn an_error_ends_the_exchange() {
    let notes = Notes::default();
    let script = Script::new([Step::Data("a"), Step::Fail("cut"), Step::Data("never")]);
    let alive = script.alive();
    let mut body = body_of(script, notes.observer());
    assert!(poll_frame(&mut body).is_ready());
    assert_eq!(Arc::strong_count(&alive), 2);
    let Poll::Ready(Some(Err(error))) = poll_frame(&mut body) else {
        panic!("the error didn't come");
    };
    assert!(error.is::<Broken>(), "the error keeps its type");
    assert_eq!(Arc::strong_count(&alive), 1, "the stream is given up");
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    drop(body);
    let told = [Told::Head(200), data("a"), Told::Failed("cut".into())];
    assert_eq!(notes.all(), told);
}

/// B1, fourth end: `is_end_stream` after a data frame; a reader that trusts it never asks again.
#[test]
fn the_hint_after_a_frame_ends_the_exchange() {
    let notes = Notes::default();
    let script = Script::new([Step::Data("a"), Step::Data("b")]).tells_end();
    let mut body = body_of(script, notes.observer());
    assert!(poll_frame(&mut body).is_ready());
    assert_eq!(notes.ends(), 0);
    assert!(poll_frame(&mut body).is_ready());
    let told = [Told::Head(200), data("a"), data("b"), Told::Eos];
    assert_eq!(notes.all(), told, "told before the body is dropped");
    drop(body);
    assert_eq!(notes.ends(), 1);
}

/// B1, fifth end: the body is dropped, unread or half-read or waiting.
#[test]
fn a_drop_ends_the_exchange() {
    for polls in 0..3 {
        let notes = Notes::default();
        let script = Script::new([Step::Data("a"), Step::Pending, Step::Data("b")]);
        let alive = script.alive();
        let mut body = body_of(script, notes.observer());
        for _ in 0..polls {
            let _ = poll_frame(&mut body);
        }
        assert_eq!(notes.ends(), 0);
        drop(body);
        assert_eq!(notes.events().last(), Some(&Told::Dropped));
        assert_eq!(notes.ends(), 1);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// B1: a body that is at its end when it comes (trailers-only answers) ends the exchange unread.
#[test]
fn a_body_at_its_end_ends_the_exchange_with_the_head() {
    let notes = Notes::default();
    let body = body_of(Script::new([]).tells_end(), notes.observer());
    assert_eq!(notes.all(), [Told::Head(200), Told::Eos]);
    assert!(body.is_end_stream());
    drop(body);
    assert_eq!(notes.ends(), 1);
}

/// B1: a future dropped before its first poll.
#[test]
fn a_future_dropped_unpolled_ends_the_exchange() {
    let notes = Notes::default();
    drop(observed(Script::new([]), notes.observer()));
    assert_eq!(notes.all(), [Told::Dropped]);
}

/// B1: a future dropped while it waits for the head.
#[test]
fn a_future_dropped_at_pending_ends_the_exchange() {
    let notes = Notes::default();
    let inner = future::pending::<Result<Response<Script>, Broken>>();
    let mut future = Observed::new(inner, notes.observer());
    assert!(poll(&mut future).is_pending());
    assert!(poll(&mut future).is_pending());
    drop(future);
    assert_eq!(notes.all(), [Told::Waiting, Told::Waiting, Told::Dropped]);
}

/// B1: a response that is dropped before its body was looked at.
#[test]
fn a_response_dropped_at_once_ends_the_exchange() {
    let notes = Notes::default();
    let response = poll(&mut observed(
        Script::new([Step::Data("a")]),
        notes.observer(),
    ));
    drop(response);
    assert_eq!(notes.all(), [Told::Head(200), Told::Dropped]);
}

/// B1: a call that fails has no head.
#[test]
fn a_call_error_ends_the_exchange() {
    let notes = Notes::default();
    let inner = future::ready(Err::<Response<Script>, _>(Broken::new("refused")));
    let mut future = Observed::new(inner, notes.observer());
    let Poll::Ready(Err(error)) = poll(&mut future) else {
        panic!("the error didn't come");
    };
    assert!(error.is::<Broken>(), "the error keeps its type");
    assert_eq!(notes.all(), [Told::Failed("refused".into())]);
    drop(future);
    assert_eq!(notes.ends(), 1);
}

/// B1: a future that its caller keeps after it resolved holds nothing of the exchange: what it drove
/// is dropped, permits included, and the observer went on with the body.
#[test]
fn a_resolved_future_that_is_kept_holds_nothing() {
    struct Holds(Option<Response<Script>>, #[expect(dead_code)] Arc<()>);
    impl Future for Holds {
        type Output = Result<Response<Script>, Broken>;
        fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
            Poll::Ready(self.0.take().ok_or_else(|| Broken::new("polled twice")))
        }
    }
    let permit = Arc::new(());
    let notes = Notes::default();
    let response = Response::new(Script::new([Step::Data("a")]));
    let inner = Holds(Some(response), Arc::clone(&permit));
    let mut kept = Observed::new(inner, notes.observer());
    let Poll::Ready(Ok(response)) = poll(&mut kept) else {
        panic!("no head");
    };
    assert_eq!(Arc::strong_count(&permit), 1, "the permit is back");
    assert_eq!(notes.ends(), 0);
    let mut body = response.into_body();
    assert_eq!(read_all(&mut body), ["a"]);
    assert_eq!(notes.ends(), 1, "told while the future is still kept");
    drop(body);
    drop(kept);
    assert_eq!(notes.all(), [Told::Head(200), data("a"), Told::Eos]);
}

/// S4's means: an observer ends the exchange while the head is awaited. The inner future goes at once.
#[test]
fn an_observer_ends_the_wait_for_the_head() {
    let permit = Arc::new(());
    let held = Arc::clone(&permit);
    let notes = Notes::default();
    let inner = Box::pin(async move {
        let _held = held;
        future::pending::<Result<Response<Script>, Broken>>().await
    });
    let mut future = Observed::new(inner, notes.ending_at(2));
    assert!(poll(&mut future).is_pending());
    assert_eq!(Arc::strong_count(&permit), 2);
    let Poll::Ready(Err(error)) = poll(&mut future) else {
        panic!("not ended");
    };
    assert_eq!(error.to_string(), "ended here");
    assert_eq!(Arc::strong_count(&permit), 1, "the stream is given up");
    drop(future);
    let told = [
        Told::Waiting,
        Told::Waiting,
        Told::Failed("ended here".into()),
    ];
    assert_eq!(notes.all(), told);
}

/// S4's means: an observer ends the exchange while a frame is awaited: its error, then `None`.
#[test]
fn an_observer_ends_the_wait_for_a_frame() {
    let notes = Notes::default();
    let script = Script::new([Step::Data("a"), Step::Pending, Step::Data("late")]);
    let alive = script.alive();
    let mut body = body_of(script.with_hint(9), notes.ending_at(1));
    assert!(poll_frame(&mut body).is_ready());
    let Poll::Ready(Some(Err(error))) = poll_frame(&mut body) else {
        panic!("not ended");
    };
    assert_eq!(error.to_string(), "ended here");
    assert_eq!(Arc::strong_count(&alive), 1, "the stream is given up");
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    drop(body);
    assert_eq!(notes.ends(), 1);
}

/// S1: `waiting` is said only when the caller polled and got nothing; a ready frame is never lost to it.
#[test]
fn a_ready_frame_is_handed_up_without_a_wait() {
    let notes = Notes::default();
    // Would end at the first wait, and there is none.
    let script = Script::new([Step::Data("a"), Step::Data("b"), Step::Trailers("0")]);
    let mut body = body_of(script, notes.ending_at(1));
    assert_eq!(read_all(&mut body), ["a", "b", "trailers"]);
    assert_eq!(notes.ends(), 1);
}

/// X1: the hints of the body below are passed on.
#[test]
fn the_hints_are_forwarded() {
    let notes = Notes::default();
    let script = Script::new([Step::Data("a"), Step::Data("b")]).tells_end();
    let mut body = body_of(script.with_hint(42), notes.observer());
    assert_eq!(body.size_hint().exact(), Some(42));
    assert!(!body.is_end_stream());
    let _ = poll_frame(&mut body);
    assert!(!body.is_end_stream());
    let _ = poll_frame(&mut body);
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(42), "the inner body's word");
}

/// X6: a body that lies about its end loses no frame, and the observer hears nothing after its end.
#[test]
fn a_lie_about_the_end_loses_no_frame() {
    #[derive(Debug)]
    struct Liar(Script);
    impl Body for Liar {
        type Data = Bytes;
        type Error = Broken;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Broken>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }
        fn is_end_stream(&self) -> bool {
            true
        }
    }
    let notes = Notes::default();
    let liar = Liar(Script::new([
        Step::Data("a"),
        Step::Pending,
        Step::Trailers("0"),
    ]));
    let mut future = Observed::new(
        future::ready(Ok::<_, BoxError>(Response::new(liar))),
        notes.ending_at(1),
    );
    let Poll::Ready(Ok(response)) = poll(&mut future) else {
        panic!("no head");
    };
    let mut body = response.into_body();
    assert!(matches!(poll_frame(&mut body), Poll::Ready(Some(Ok(_)))));
    assert!(poll_frame(&mut body).is_pending());
    assert!(matches!(poll_frame(&mut body), Poll::Ready(Some(Ok(_)))));
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    assert_eq!(notes.all(), [Told::Head(200), Told::Eos]);
}

/// X6: a panic below unwinds through the future, and the exchange has ended all the same.
#[test]
fn a_panic_below_ends_the_exchange() {
    let notes = Notes::default();
    let inner = future::poll_fn(|_| -> Poll<Result<Response<Script>, Broken>> { panic!("below") });
    let mut future = Observed::new(inner, notes.observer());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _ = poll(&mut future);
    }));
    assert!(caught.is_err());
    assert_eq!(notes.all(), [Told::Dropped]);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop_oneof![Just("a"), Just("bc"), Just("")].prop_map(Step::Data),
        3 => Just(Step::Pending),
        1 => Just(Step::Trailers("0")),
        1 => Just(Step::Fail("cut")),
    ];
    prop::collection::vec(step, 0..12)
}

proptest! {
    /// B1, for any body, however it goes on after its end, read however far, ended or not by its
    /// observer: one head, one end, nothing after the end; and every frame goes up in order.
    #[test]
    fn any_exchange_ends_once(
        steps in steps(),
        tells_end in any::<bool>(),
        polls in 0_usize..16,
        ends_at in prop::option::of(1_usize..6),
    ) {
        let notes = Notes::default();
        let observer = ends_at.map_or_else(|| notes.observer(), |nth| notes.ending_at(nth));
        let script = Script::new(steps.clone());
        let script = if tells_end { script.tells_end() } else { script };
        let alive = script.alive();
        let mut body = body_of(script, observer);

        let mut expected = steps.iter();
        for _ in 0..polls {
            let step = expected.next();
            match poll_frame(&mut body) {
                Poll::Ready(Some(Ok(frame))) => match step {
                    Some(Step::Data(text)) => prop_assert_eq!(frame.data_ref().unwrap(), text),
                    Some(Step::Trailers(_)) => prop_assert!(frame.is_trailers()),
                    other => prop_assert!(false, "{:?} gave a frame", other),
                },
                Poll::Ready(Some(Err(error))) => match step {
                    Some(Step::Fail(text)) => prop_assert_eq!(error.to_string(), *text),
                    Some(Step::Pending) => prop_assert_eq!(error.to_string(), "ended here"),
                    other => prop_assert!(false, "{:?} gave an error", other),
                },
                Poll::Ready(None) => {
                    // At its end, or given up after an error.
                    prop_assert!(step.is_none() || Arc::strong_count(&alive) == 1);
                }
                Poll::Pending => prop_assert_eq!(step, Some(&Step::Pending)),
            }
            prop_assert!(notes.ends() <= 1);
        }
        drop(body);
        prop_assert_eq!(Arc::strong_count(&alive), 1);

        let told = notes.all();
        prop_assert_eq!(&told[0], &Told::Head(200));
        prop_assert_eq!(told.iter().filter(|t| matches!(t, Told::Head(_))).count(), 1);
        prop_assert_eq!(notes.ends(), 1);
        prop_assert!(is_end(told.last().unwrap()), "nothing comes after the end");
    }
}
