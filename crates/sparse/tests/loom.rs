//! Interleavings of the grant path, tried by loom one after another.
//!
//! `RUSTFLAGS="--cfg steadfast_loom" cargo test -p steadfast-sparse --release --test loom`, with a target
//! folder of its own: the flag rebuilds everything.
#![cfg(steadfast_loom)]

use std::{
    future::{Ready, poll_fn, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use loom::{future::block_on, thread};
use steadfast_core::BoxError;
use steadfast_sparse::{
    FlowId, SparseConfig, SparseFlow, SparseFlowLayer, SparseReading, Watermark,
};
use tower::{Layer, Service, util::ServiceFn};

type Answer = Ready<Result<Response<Empty<Bytes>>, BoxError>>;
type Tested = SparseFlow<ServiceFn<fn(Request<()>) -> Answer>>;

fn answer(_: Request<()>) -> Answer {
    ready(Ok(Response::new(Empty::new())))
}

/// Tries the interleavings with at most three preemptions.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// A layer with one place.
fn layer() -> (SparseFlowLayer, Tested) {
    let layer = SparseFlowLayer::client(SparseConfig {
        places: 1,
        watermark: Watermark::Calls(1),
        ..SparseConfig::default()
    })
    .unwrap();
    let service = layer.layer(tower::service_fn(answer as fn(_) -> _));
    (layer, service)
}

fn of(flow: u8) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(FlowId::of(flow));
    request
}

/// F5: whoever waits is woken when the place is free: none of two waits for ever, nor does a third that came before
/// them.
#[test]
fn the_place_goes_on() {
    model(|| {
        let (layer, mut service) = layer();
        let first = service.call(of(0));
        let threads: Vec<_> = (1..=2)
            .map(|flow| {
                let mut service = service.clone();
                thread::spawn(move || drop(block_on(service.call(of(flow))).unwrap()))
            })
            .collect();
        drop(first);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(layer.snapshot(), SparseReading::default());
    });
}

/// F5: a call that is dropped while it is being granted its place passes it on.
#[test]
fn a_grant_that_meets_a_drop_is_passed_on() {
    model(|| {
        let (layer, mut service) = layer();
        let first = service.call(of(0));
        let leaves = service.call(of(1));
        let mut stays = service.clone();
        let waits = thread::spawn(move || drop(block_on(stays.call(of(2))).unwrap()));
        let goes = thread::spawn(move || {
            let mut leaves = pin!(leaves);
            let _ = leaves
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        });
        drop(first);
        goes.join().unwrap();
        waits.join().unwrap();
        assert_eq!(layer.snapshot(), SparseReading::default());
    });
}

/// F5: a task that polls with another waker while the grant is made is woken through one of them.
#[test]
fn a_grant_that_meets_a_poll_is_seen() {
    model(|| {
        let (layer, mut service) = layer();
        let first = service.call(of(0));
        let second = service.call(of(1));
        let waits = thread::spawn(move || {
            block_on(async {
                let mut second = pin!(second);
                let early = poll_fn(|_| {
                    let mut nobody = Context::from_waker(Waker::noop());
                    Poll::Ready(second.as_mut().poll(&mut nobody))
                })
                .await;
                match early {
                    Poll::Ready(answer) => drop(answer.unwrap()),
                    Poll::Pending => drop(second.await.unwrap()),
                }
            });
        });
        drop(first);
        waits.join().unwrap();
        assert_eq!(layer.snapshot(), SparseReading::default());
    });
}
