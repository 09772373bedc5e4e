//! Requests beside others, on one connection.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use hyper::rt::Executor;
use steadfast_testkit::peer::{Answer, Last, Peer, PeerState, Ping, Script, Settings, Step};
use tokio::sync::Notify;
use tonic::transport::Channel;

use super::{
    HANG, Opened, Tune, background, by_socket, endpoint, in_memory, keepalive, open, opened, settle,
};
use crate::surface::{call::Boxed, row::Open};

/// How far a request has come when its connection breaks.
#[derive(Clone, Copy)]
pub(crate) enum Queued {
    /// In h2, for a free stream.
    InH2,
    /// In hyper, behind that one.
    InHyper,
}

/// One stream is allowed and taken; then the connection ends with these steps.
pub(crate) fn queued(place: Queued, end: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Open {
    let connect = |script| by_socket(script, |endpoint| endpoint);
    crowded(place, Script::max_streams(1), connect, end)
}

/// The same, and the connection ends because the client finds it dead; in memory.
pub(crate) fn queued_while_deaf(place: Queued) -> Open {
    let script = Script::max_streams(1).ping(Ping::Ignore);
    crowded(
        place,
        script,
        |script| in_memory(script, keepalive),
        Vec::new,
    )
}

fn crowded(
    place: Queued,
    script: Script,
    connect: fn(Script) -> (Peer, Channel),
    end: impl Fn() -> Vec<Step> + Send + Sync + 'static,
) -> Open {
    let end = Arc::new(end);
    open(move || {
        let (script, end) = (script.clone(), Arc::clone(&end));
        async move {
            let (peer, channel) = connect(script);
            let peer = Arc::new(peer);
            let mut before = vec![tokio::spawn(background(channel.clone()))];
            peer.wait_until(HANG, one_is_taken).await.unwrap();
            if matches!(place, Queued::InHyper) {
                before.push(tokio::spawn(background(channel.clone())));
                settle().await;
            }
            let breaks = Arc::clone(&peer);
            let meanwhile = async move {
                settle().await;
                let end = end();
                if !end.is_empty() {
                    assert!(breaks.inject(0, end).await, "the connection is open");
                }
            };
            Opened {
                channel: Ok(channel),
                meanwhile: Some(Box::pin(meanwhile)),
                keep: Box::new((peer, before)),
            }
        }
    })
}

/// The only stream is taken, and the client knows that it is the only one.
fn one_is_taken(state: &PeerState) -> bool {
    state.requests.len() == 1 && state.connections[0].settings_acknowledged
}

/// A request that waits in h2, whose stream is opened when the other one ends, and whose connection is gone
/// before hyper's dispatch task has its next turn: only for that task it still waits. hyper spawns that task
/// third on a channel, after tonic's worker and the connection's own task.
pub(crate) fn opened_unnoticed() -> Open {
    open(|| async {
        let peer = Arc::new(Peer::start(Script::max_streams(1)).unwrap());
        let tasks = Tasks::default();
        let endpoint = endpoint(peer.uri()).executor(tasks.clone());
        let channel = endpoint.connect_lazy();
        let first = tokio::spawn(background(channel.clone()));
        peer.wait_until(HANG, one_is_taken).await.unwrap();
        let watched = Arc::clone(&peer);
        let meanwhile = async move {
            settle().await;
            tasks.hold();
            watched.release(1);
            let arrived = |state: &PeerState| state.requests.len() == 2;
            watched.wait_until(HANG, arrived).await.unwrap();
            assert!(watched.inject(0, [Step::Fin]).await, "it is open");
            tasks.0.connection_over.notified().await;
            tasks.let_go();
        };
        Opened {
            channel: Ok(channel),
            meanwhile: Some(Box::pin(meanwhile)),
            keep: Box::new((peer, first)),
        }
    })
}

/// Runs a channel's tasks, and can hold its dispatch task.
#[derive(Clone, Default)]
struct Tasks(Arc<State>);

#[derive(Default)]
struct State {
    spawned: AtomicUsize,
    connection_over: Notify,
    gate: Mutex<Gate>,
}

#[derive(Default)]
struct Gate {
    held: bool,
    waker: Option<Waker>,
}

impl Tasks {
    fn hold(&self) {
        self.0.gate.lock().unwrap().held = true;
    }

    fn let_go(&self) {
        let waker = {
            let mut gate = self.0.gate.lock().unwrap();
            gate.held = false;
            gate.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for Tasks {
    fn execute(&self, mut task: Boxed<()>) {
        let state = Arc::clone(&self.0);
        match state.spawned.fetch_add(1, Ordering::Relaxed) {
            1 => tokio::spawn(async move {
                task.await;
                state.connection_over.notify_one();
            }),
            2 => tokio::spawn(poll_fn(move |cx| {
                let mut gate = state.gate.lock().unwrap();
                if gate.held {
                    // Pending: `let_go` wakes it.
                    gate.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                drop(gate);
                task.as_mut().poll(cx)
            })),
            _ => tokio::spawn(task),
        };
    }
}

/// A request with a stream above the last one that the GOAWAY names; the one below it stays open.
pub(crate) fn above_the_last_stream() -> Open {
    open(|| async {
        let script = Script::new(|request| match request.index {
            0 => Answer::silence(),
            _ => Answer::steps([Step::AwaitRequest, Step::goaway(0, Last::Id(1))]),
        });
        let peer = Arc::new(Peer::start(script).unwrap());
        let channel = endpoint(peer.uri()).connect_lazy();
        let first = tokio::spawn(background(channel.clone()));
        let one = |state: &PeerState| state.requests.len() == 1;
        peer.wait_until(HANG, one).await.unwrap();
        opened(channel, (peer, first))
    })
}

/// A neighbour of 1,200 streams that are dropped at once, and whose answers come all the same.
pub(crate) fn beside_a_mass_cancel() -> Open {
    const DROPPED: usize = 1200;
    open(|| async {
        let script = Script::new(|request| {
            let begun = [Step::headers(), Step::good_message()];
            if request.index == 0 {
                Answer::steps(begun)
            } else {
                Answer::silence().after_reset(begun)
            }
        });
        let peer = Arc::new(Peer::start(script).unwrap());
        let channel = endpoint(peer.uri()).connect_lazy();
        let others = channel.clone();
        let watched = Arc::clone(&peer);
        let meanwhile = async move {
            let requests = |count| move |state: &PeerState| state.requests.len() == count;
            watched.wait_until(HANG, requests(1)).await.unwrap();
            let calls: Vec<_> = (0..DROPPED)
                .map(|_| tokio::spawn(background(others.clone())))
                .collect();
            watched
                .wait_until(HANG, requests(1 + DROPPED))
                .await
                .unwrap();
            calls.iter().for_each(|call| call.abort());
        };
        Opened {
            channel: Ok(channel),
            meanwhile: Some(Box::pin(meanwhile)),
            keep: Box::new(peer),
        }
    })
}

/// A peer that allows no stream at all.
pub(crate) fn no_streams(tune: Tune) -> Open {
    let settings = Settings {
        max_concurrent_streams: Some(0),
        ..Settings::default()
    };
    let script = Script::good().settings(settings);
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let channel = tune(endpoint(peer.uri())).connect_lazy();
        async move {
            // The first request would go out before the SETTINGS came.
            let first = tokio::spawn(background(channel.clone()));
            let seen = |state: &PeerState| matches!(&state.connections[..], [only] if only.settings_acknowledged);
            peer.wait_until(HANG, seen).await.unwrap();
            opened(channel, (peer, first))
        }
    })
}
