//! S8: what a call and a frame cost in allocations, and what the layer does while nobody waits: nothing.

use std::{
    future::Ready,
    future::{Future, ready},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use steadfast_core::{BoxError, Place};
use steadfast_stall::{StallConfig, StallDetectLayer};
use steadfast_testkit::alloc::{AllocationCount, CountingAllocator, count};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

fn layer() -> StallDetectLayer<()> {
    let probe = |_: &Place| Ok::<_, BoxError>(Request::new(()));
    StallDetectLayer::new(StallConfig::default(), probe).unwrap()
}

/// Pending at every other poll, and a frame of data at the rest.
struct Stutters {
    turn: bool,
    frames: usize,
}

impl Body for Stutters {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.turn = !self.turn;
        if self.turn {
            // Pending: the test polls again by itself.
            return Poll::Pending;
        }
        self.frames -= 1;
        let frame = (self.frames > 0).then(|| Ok(Frame::data(Bytes::from_static(b"abc"))));
        Poll::Ready(frame)
    }
}

#[derive(Clone)]
struct Answers;

impl Service<Request<()>> for Answers {
    type Response = Response<Stutters>;
    type Error = BoxError;
    type Future = Late;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Late {
        let body = Stutters {
            turn: false,
            frames: 100,
        };
        Late(false, ready(Ok(Response::new(body))))
    }
}

/// Pending once.
struct Late(bool, Ready<Result<Response<Stutters>, BoxError>>);

impl Future for Late {
    type Output = Result<Response<Stutters>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.0, true) {
            // Pending: the test polls again by itself.
            return Poll::Pending;
        }
        Pin::new(&mut self.1).poll(cx)
    }
}

/// One call that waits for its head and for each of its frames.
fn call<S>(service: &mut S, request: Request<()>, cx: &mut Context<'_>) -> usize
where
    S: Service<Request<()>, Error = BoxError>,
    S::Future: Future<Output = Result<S::Response, BoxError>>,
    S::Response: IntoBody,
{
    assert!(service.poll_ready(cx).is_ready());
    let mut call = pin!(service.call(request));
    assert!(call.as_mut().poll(cx).is_pending());
    let Poll::Ready(Ok(response)) = call.poll(cx) else {
        panic!("no head")
    };
    let mut body = pin!(response.into_body());
    let mut frames = 0;
    loop {
        match body.as_mut().poll_frame(cx) {
            Poll::Pending => {}
            Poll::Ready(Some(frame)) => {
                assert!(frame.is_ok());
                frames += 1;
            }
            Poll::Ready(None) => return frames,
        }
    }
}

trait IntoBody {
    type Body: Body<Data = Bytes, Error = BoxError>;
    fn into_body(self) -> Self::Body;
}

impl<B: Body<Data = Bytes, Error = BoxError>> IntoBody for Response<B> {
    type Body = B;
    fn into_body(self) -> B {
        Self::into_body(self)
    }
}

/// S8: once its seat is there, a call allocates nothing, nor does a frame, whether its caller waited for it
/// or not, and whichever task it is.
#[tokio::test(start_paused = true)]
async fn calls_and_frames_allocate_nothing() {
    let layer = layer();
    let mut service = layer.layer(Answers);
    let wakers = [noop(), noop()];
    let plain = || Request::new(());
    let mut cx = Context::from_waker(&wakers[0]);
    assert_eq!(call(&mut service, plain(), &mut cx), 99);
    // The pacemaker that this started allocates on this thread, when it has its turn: not here.
    let requests = [plain(), plain()];
    let allocations = count(|| {
        for (request, waker) in requests.into_iter().zip(&wakers) {
            call(&mut service, request, &mut Context::from_waker(waker));
        }
    });
    assert_eq!(allocations, 0);
    let nested = count(|| {
        // Two at once need a second seat.
        let mut first = pin!(service.call(Request::new(())));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        call(&mut service.clone(), Request::new(()), &mut cx)
    });
    println!("a second seat: {nested} allocations, once");
    let nested = count(|| {
        let mut first = pin!(service.call(Request::new(())));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        call(&mut service.clone(), Request::new(()), &mut cx)
    });
    assert_eq!(nested, 0);
    assert_eq!(layer.snapshot()[0].waiting, 0);
}

/// A waker that isn't the same as another one of its kind.
fn noop() -> Waker {
    struct Noop;
    impl std::task::Wake for Noop {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    std::sync::Arc::new(Noop).into()
}

/// S12: while nobody waits the pacemaker rests: in an hour it does nothing at all.
#[tokio::test(start_paused = true)]
async fn nothing_runs_while_nobody_waits() {
    let layer = layer();
    let mut service = layer.layer(Answers);
    let waker = noop();
    let mut cx = Context::from_waker(&waker);
    call(&mut service, Request::new(()), &mut cx);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = AllocationCount::current_thread();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let idle = AllocationCount::current_thread().since(before).allocations;
    assert!(idle < 5, "{idle} allocations");
    // And while somebody does, it ticks.
    let mut held = pin!(service.call(Request::new(())));
    assert!(held.as_mut().poll(&mut cx).is_pending());
    let before = AllocationCount::current_thread();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let busy = AllocationCount::current_thread().since(before).allocations;
    assert!(busy >= 1_000, "{busy} allocations");
}
