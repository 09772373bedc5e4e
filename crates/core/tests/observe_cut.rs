//! An observer that ends its exchange before it is polled, and one whose call never began.

mod support;

use std::{
    future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use http::Response;
use steadfast_core::{BoxError, End, Observe, Observed};
use support::{Broken, Script, Step, poll_frame};

/// Ends its exchange once it is told to, and counts the ends.
#[derive(Clone, Default)]
struct Cuts {
    now: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
}

impl Observe for Cuts {
    fn cut(&mut self) -> Option<BoxError> {
        let now = self.now.load(Ordering::SeqCst);
        now.then(|| "cut (a test says so)".into())
    }

    fn end(self, end: End<'_>) {
        assert!(matches!(end, End::Failed(_)));
        self.failed.fetch_add(1, Ordering::SeqCst);
    }
}

type Ready = future::Ready<Result<Response<Script>, Broken>>;

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// S4: a cut comes before what the transport has ready, in the body as before the head; the stream below
/// is given up at once, and the end is told once.
#[test]
fn a_cut_comes_before_what_is_ready() {
    let cuts = Cuts::default();
    let script = Script::new([Step::Data("a"), Step::Data("never"), Step::Trailers("0")]);
    let alive = script.alive();
    let response = future::ready(Ok::<_, Broken>(Response::new(script)));
    let Poll::Ready(Ok(response)) = poll(&mut Observed::new(response, cuts.clone())) else {
        panic!("no head")
    };
    let mut body = response.into_body();
    assert!(matches!(poll_frame(&mut body), Poll::Ready(Some(Ok(_)))));
    cuts.now.store(true, Ordering::SeqCst);
    assert!(matches!(poll_frame(&mut body), Poll::Ready(Some(Err(_)))));
    assert_eq!(Arc::strong_count(&alive), 1, "the stream is given up");
    assert!(matches!(poll_frame(&mut body), Poll::Ready(None)));
    drop(body);
    assert_eq!(cuts.failed.load(Ordering::SeqCst), 1);

    let response = future::ready(Ok::<_, Broken>(Response::new(Script::new([]))));
    let mut call = Observed::new(response, cuts.clone());
    assert!(matches!(poll(&mut call), Poll::Ready(Err(_))));
    drop(call);
    assert_eq!(cuts.failed.load(Ordering::SeqCst), 2);
}

/// S4: a call that was refused ends at its first poll.
#[test]
fn a_refused_call_ends_at_once() {
    let cuts = Cuts::default();
    cuts.now.store(true, Ordering::SeqCst);
    let mut call: Observed<Ready, Cuts> = Observed::refused(cuts.clone());
    assert!(matches!(poll(&mut call), Poll::Ready(Err(_))));
    drop(call);
    assert_eq!(cuts.failed.load(Ordering::SeqCst), 1);
}
