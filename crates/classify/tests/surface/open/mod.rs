//! Channels on which a failure is about to happen.

pub(crate) mod bodies;
pub(crate) mod dials;
pub(crate) mod failing;
pub(crate) mod gone;
pub(crate) mod queued;

use std::{future::Future, sync::Arc, time::Duration};

use steadfast_testkit::{
    memory,
    peer::{Answer, Last, Peer, Script, Step},
};
use tokio::task::yield_now;
use tonic::transport::{Channel, Endpoint};
use tower::{Service, ServiceExt};

use super::{
    HANG, PATIENCE,
    call::{Boxed, Opened, PATH},
    row::Open,
};

/// How the row's endpoint differs from a plain one.
pub(crate) type Tune = fn(Endpoint) -> Endpoint;

pub(crate) fn endpoint(uri: impl Into<String>) -> Endpoint {
    Endpoint::from_shared(uri.into()).expect("a good URI")
}

/// A lazy channel, and nothing else to do.
pub(crate) fn opened(channel: Channel, keep: impl Send + 'static) -> Opened {
    Opened {
        channel: Ok(channel),
        meanwhile: None,
        keep: Box::new(keep),
    }
}

/// What `make` makes.
pub(crate) fn open<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Open
where
    F: Future<Output = Opened> + Send + 'static,
{
    Arc::new(move || Box::pin(make()) as Boxed<Opened>)
}

/// A channel to a peer with this script.
pub(crate) fn peer(script: Script) -> Open {
    tuned(script, |endpoint| endpoint)
}

/// The same with settings of the client's.
pub(crate) fn tuned(script: Script, tune: Tune) -> Open {
    open(move || {
        let (peer, channel) = by_socket(script.clone(), tune);
        async { opened(channel, peer) }
    })
}

/// The same without sockets, for a clock that is paused.
pub(crate) fn tuned_in_memory(script: Script, tune: Tune) -> Open {
    open(move || {
        let (peer, channel) = in_memory(script.clone(), tune);
        async { opened(channel, peer) }
    })
}

/// A peer with this script and a channel to it.
pub(crate) fn by_socket(script: Script, tune: Tune) -> (Peer, Channel) {
    let peer = Peer::start(script).unwrap();
    let channel = tune(endpoint(peer.uri())).connect_lazy();
    (peer, channel)
}

/// The same without sockets.
pub(crate) fn in_memory(script: Script, tune: Tune) -> (Peer, Channel) {
    let (network, incoming) = memory::network();
    let peer = Peer::serve(incoming, move |_| script.clone());
    let endpoint = tune(endpoint("http://memory"));
    (peer, endpoint.connect_with_connector_lazy(network))
}

/// The same peer with the scheme `https`, and no TLS configured.
pub(crate) fn https(script: Script) -> Open {
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let channel = endpoint(peer.uri().replace("http", "https")).connect_lazy();
        async { opened(channel, peer) }
    })
}

/// A peer that answers each request with these steps, once the request has come.
pub(crate) fn steps(steps: impl IntoIterator<Item = Step>) -> Open {
    peer(scripted(steps))
}

/// The script of such a peer.
pub(crate) fn scripted(steps: impl IntoIterator<Item = Step>) -> Script {
    let steps = std::iter::once(Step::AwaitRequest).chain(steps);
    Script::always(Answer::steps(steps))
}

/// The same with headers and one message before.
pub(crate) fn after_message(rest: impl IntoIterator<Item = Step>) -> Open {
    let begun = [Step::headers(), Step::good_message()];
    steps(begun.into_iter().chain(rest))
}

/// Everything in this process that can go on has gone on: the tests' runtime has one thread, and a yield
/// lets each ready task run once.
pub(crate) async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// A call whose end nobody looks at.
pub(crate) async fn background(mut channel: Channel) {
    let request = http::Request::post(PATH)
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())
        .unwrap();
    if let Ok(ready) = channel.ready().await
        && let Ok(response) = ready.call(request).await
    {
        drop(response);
        std::future::pending::<()>().await;
    }
}

/// The short time limit of the rows that have one.
pub(crate) const LIMIT: Duration = Duration::from_millis(50);

/// Keepalive that expires.
pub(crate) fn keepalive(endpoint: Endpoint) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(LIMIT)
        .keep_alive_timeout(LIMIT)
}

/// GOAWAY.
pub(crate) fn goaway(code: u32, last: Last) -> Step {
    Step::goaway(code, last)
}

/// A while, much shorter than the rows that hang are watched.
pub(crate) fn later() -> Step {
    Step::Wait(PATIENCE / 4)
}
