//! Calls that are dropped wherever they may be.

use std::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll, Waker},
    thread,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body::{Body, Frame};
use steadfast_core::{BoxError, Observed, ObservedBody};
use steadfast_sparse::{
    Admission, FlowId, SparseConfig, SparseFlow, SparseFlowLayer, SparseObserver, SparseReading,
    Watermark,
};
use tower::{Layer, Service, util::ServiceFn};

/// A head, or a body: Pending so many times before each of so many events, and then over.
#[derive(Clone, Copy)]
struct Steps {
    pending: u8,
    events: u8,
    fails: bool,
}

/// The head of an answer to come.
struct Head(Steps);

impl Future for Head {
    type Output = Result<Response<Steps>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.0.pending > 0 {
            self.0.pending -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.0.fails {
            return Poll::Ready(Err("asked to".into()));
        }
        Poll::Ready(Ok(Response::new(self.0)))
    }
}

impl Body for Steps {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.events == 0 {
            return Poll::Ready(None);
        }
        self.events -= 1;
        Poll::Ready(Some(match (self.events, self.fails) {
            (0, true) => Err("broken".into()),
            _ => Ok(Frame::data(Bytes::from_static(b"data"))),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.events == 0
    }
}

type Inner = ServiceFn<fn(Request<Steps>) -> Head>;

fn answer(request: Request<Steps>) -> Head {
    Head(request.into_body())
}

/// Where a call is.
enum Call {
    Head(Pin<Box<Observed<Admission<Inner, Steps>, SparseObserver>>>),
    Body(Pin<Box<ObservedBody<Steps, SparseObserver>>>),
    Over,
}

impl Call {
    fn step(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        *self = match self {
            Self::Head(future) => match future.as_mut().poll(&mut cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(response)) => Self::Body(Box::pin(response.into_body())),
                Poll::Ready(Err(_)) => Self::Over,
            },
            Self::Body(body) => match body.as_mut().poll_frame(&mut cx) {
                Poll::Pending | Poll::Ready(Some(Ok(_))) => return,
                Poll::Ready(Some(Err(_)) | None) => Self::Over,
            },
            Self::Over => return,
        };
    }
}

fn request(random: &mut Rng) -> Request<Steps> {
    let mut request = Request::new(Steps {
        pending: random.u8(0..3),
        events: random.u8(0..3),
        fails: random.u8(0..8) == 0,
    });
    request
        .extensions_mut()
        .insert(FlowId::of(random.u8(0..12)));
    request
}

fn layer() -> (SparseFlowLayer, SparseFlow<Inner>) {
    let layer = SparseFlowLayer::client(SparseConfig {
        places: 6,
        reserve: 1,
        watermark: Watermark::Calls(2),
        credits: 5,
        max_waiting_per_flow: 8,
        max_waiting: 40,
        ..SparseConfig::default()
    })
    .unwrap();
    let service = layer.layer(tower::service_fn(answer as fn(_) -> _));
    (layer, service)
}

/// Makes so many calls, with up to 20 open at a time: each step moves one of them on, or drops it.
fn campaign(mut service: SparseFlow<Inner>, calls: u64, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let mut open: Vec<Call> = Vec::new();
    let mut made = 0;
    while made < calls {
        if open.len() < 20 && random.bool() {
            open.push(Call::Head(Box::pin(service.call(request(&mut random)))));
            made += 1;
        } else if !open.is_empty() {
            let at = random.usize(0..open.len());
            if random.u8(0..6) == 0 {
                drop(open.swap_remove(at));
            } else {
                open[at].step();
                if matches!(open[at], Call::Over) {
                    open.swap_remove(at);
                }
            }
        }
    }
}

/// On four threads, so many calls in all; afterwards nothing is left, and every place can be had.
fn check(calls: u64) {
    let (layer, mut service) = layer();
    thread::scope(|scope| {
        for seed in 0..4 {
            let service = service.clone();
            scope.spawn(move || campaign(service, calls / 4, seed));
        }
    });
    assert_eq!(layer.snapshot(), SparseReading::default());
    let mut random = Rng::with_seed(9);
    let all: Vec<_> = (0..6).map(|_| service.call(request(&mut random))).collect();
    assert_eq!(layer.snapshot().running.iter().sum::<u32>(), 6);
    drop(all);
    assert_eq!(layer.snapshot(), SparseReading::default());
}

/// F5: a million calls, dropped at random at every point: every counter ends at 0, and no place is lost.
#[test]
fn a_million_calls_dropped_anywhere() {
    check(1_000_000);
}

/// F5: fifty times as many.
#[test]
#[ignore = "long: fifty million calls dropped at random, about five minutes"]
fn long_fifty_million_calls_dropped_anywhere() {
    check(50_000_000);
}

/// F5: no wake-up is lost: tasks on several threads that wait for each other's places, and give up at random, all
/// come to their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost() {
    let (layer, service) = layer();
    let served = std::sync::Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..32 {
        let (mut service, served) = (service.clone(), served.clone());
        let mut random = Rng::with_seed(seed);
        tasks.spawn(async move {
            for _ in 0..1_000 {
                let call = service.call(request(&mut random));
                if random.u8(0..4) == 0 {
                    let turns = random.u8(0..4);
                    let gives_up = async {
                        for _ in 0..turns {
                            tokio::task::yield_now().await;
                        }
                    };
                    tokio::select! { _ = call => {} () = gives_up => {} }
                    continue;
                }
                if let Ok(response) = call.await {
                    let mut body = Box::pin(response.into_body());
                    while let Poll::Ready(Some(Ok(_))) =
                        std::future::poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await
                    {
                    }
                    served.fetch_add(1, Relaxed);
                }
            }
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.unwrap();
    }
    assert_eq!(layer.snapshot(), SparseReading::default());
    assert!(served.load(Relaxed) > 5_000);
}
