//! The bottom of a channel's stack: where a request leaves the channel's layers for the transport.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Extensions, Request};
use tokio::sync::Notify;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Attempt, ChannelLayer, Metered};

/// A request extension: marks the request as a [`Probe`](crate::Probe)'s, and is told when the request
/// reaches the transport.
///
/// A probe is nobody's call: layers that count, charge or watch calls let it pass. Its deadline begins
/// when it reaches the transport, below any layer that fetches credentials; one that never gets there
/// was not attempted, and says nothing about the channel.
#[derive(Clone, Default)]
pub struct Probing(Arc<Reached>);

#[derive(Default)]
struct Reached {
    yes: AtomicBool,
    bell: Notify,
}

impl Probing {
    /// The mark of one probe.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a request with these extensions is a probe.
    #[must_use]
    #[inline]
    pub fn is_on(extensions: &Extensions) -> bool {
        extensions.get::<Self>().is_some()
    }

    /// For the transport: the request has reached it.
    pub fn reach(&self) {
        self.0.yes.store(true, Ordering::Release);
        self.0.bell.notify_waiters();
    }

    /// Whether the request has reached the transport.
    #[must_use]
    pub fn has_reached(&self) -> bool {
        self.0.yes.load(Ordering::Acquire)
    }

    /// Resolves when the request has reached the transport. Cancel safe.
    pub async fn reached(&self) {
        let mut bell = std::pin::pin!(self.0.bell.notified());
        // Listens before it looks, so that no call in between is missed.
        bell.as_mut().enable();
        if !self.has_reached() {
            bell.await;
        }
    }
}

impl fmt::Debug for Probing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probing")
            .field("reached", &self.has_reached())
            .finish()
    }
}

/// For a transport, about each request that it is given: tells a [`Probing`] that it has arrived, and
/// hands the extensions back to an [`Attempt`] that asked for them.
///
/// [`Bottom`] calls it. A factory that wraps its transport in a service of its own calls it there
/// instead.
#[inline]
pub fn at_bottom(extensions: &mut Extensions) {
    if extensions.is_empty() {
        return;
    }
    if let Some(probe) = extensions.get::<Probing>() {
        probe.reach();
    }
    if extensions.get::<Attempt>().is_some_and(Attempt::keeps) {
        park(extensions);
    }
}

/// Hands the extensions to their own [`Attempt`], if it asked for them.
pub(crate) fn park(extensions: &mut Extensions) {
    // Taken out first: an attempt that holds extensions which hold it would never be freed.
    if let Some(attempt) = extensions.remove::<Attempt>() {
        attempt.park(std::mem::take(extensions));
    }
}

/// Puts a [`Bottom`] around a transport that has none: the innermost layer of a channel.
///
/// A factory that is a closure gets it by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct BottomLayer;

impl<S> Layer<S> for BottomLayer {
    type Service = Bottom<S>;

    fn layer(&self, inner: S) -> Bottom<S> {
        Bottom(inner)
    }
}

impl<S> ChannelLayer<S> for BottomLayer {
    type Service = Bottom<S>;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Bottom<S>> {
        channel.map(Bottom)
    }
}

/// A transport, which is told by [`at_bottom`] of each request that it is given.
#[derive(Clone, Debug)]
pub struct Bottom<S>(S);

impl<S> Bottom<S> {
    /// The transport.
    #[must_use]
    pub fn transport(&self) -> &S {
        &self.0
    }

    /// The transport alone.
    #[must_use]
    pub fn into_transport(self) -> S {
        self.0
    }
}

impl<S, B> Service<Request<B>> for Bottom<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Pending: the transport holds the waker.
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        at_bottom(request.extensions_mut());
        self.0.call(request)
    }
}
