//! The pool as a service, and the future of one call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use steadfast_core::{Attempt, BoxError, Local, LocalKind, Observed, ObservedBody, Outcome};
use tower_service::Service;
use tracing::{Span, field::Empty};

use crate::{
    error,
    looking::{Ready, poll_pick},
    observe::BalanceObserver,
    shared::{Picked, Shared},
    wait::Wait,
};

/// Many channels as one service: each request goes to the least loaded one.
///
/// Made by [`BalanceLayer`](crate::BalanceLayer). Cheap to clone; all clones share the channels, which
/// are let go with the last one. It is always ready: a request that has to wait for a channel waits in
/// its own future, where its deadline is known. Dropping that future at any point is safe.
pub struct Balance<S> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S> Clone for Balance<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S> fmt::Debug for Balance<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balance")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl<S, Q, B> Service<Request<Q>> for Balance<S>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<B, BalanceObserver>>;
    type Error = BoxError;
    type Future = ResponseFuture<S, Q>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.shared.is_closed() {
            return Poll::Ready(Err(error::closed(&self.shared.config.name)));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        // Counted here and not at the first poll, so that a burst sees itself.
        let picked = shared.pick(&shared.roster.load(), &request, false).ok();
        ResponseFuture {
            shared: Some(shared),
            request: Some(request),
            picked,
            wait: None,
            repicks: 0,
            lost: None,
            call: None,
            span: Span::none(),
        }
    }
}

pin_project! {
    /// The future of one call through the pool: waits for a channel if it has to, then for the
    /// response's head.
    pub struct ResponseFuture<S, Q>
    where
        S: Service<Request<Q>>,
    {
        // None once it resolved: a future that its caller keeps holds no pool.
        shared: Option<Arc<Shared<S>>>,
        // None once it was given to a channel.
        request: Option<Request<Q>>,
        picked: Option<Picked<S>>,
        // None until it had to wait. Kept from then on, since its deadline counts from there.
        wait: Option<Box<Wait>>,
        repicks: usize,
        // Why the last channel that it had was lost.
        lost: Option<BoxError>,
        #[pin]
        call: Option<Observed<S::Future, BalanceObserver>>,
        span: Span,
    }
}

impl<S: Service<Request<Q>>, Q> fmt::Debug for ResponseFuture<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("sent", &self.request.is_none())
            .finish_non_exhaustive()
    }
}

impl<S, Q, B> Future for ResponseFuture<S, Q>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<ObservedBody<B, BalanceObserver>>, BoxError>;

    /// # Panics
    /// When it is polled after it resolved, or outside a tokio runtime at the pool's first call.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.call.is_none() {
            if let Some(shared) = &self.shared {
                shared.start();
            }
            match ready!(self.as_mut().poll_picked(cx)) {
                Ok(picked) => self.as_mut().send(picked),
                Err(error) => {
                    self.refuse(&*error);
                    return Poll::Ready(Err(error));
                }
            }
        }
        let this = self.project();
        let call = this.call.as_pin_mut();
        // Pending: the channel's future, or the observer, holds the waker.
        let polled = this
            .span
            .in_scope(|| call.expect("set just above").poll(cx));
        if polled.is_ready() {
            *this.shared = None;
            *this.span = Span::none();
        }
        polled
    }
}

impl<S, Q, B> ResponseFuture<S, Q>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
{
    /// A claimed channel whose service is ready.
    fn poll_picked(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Picked<S>, BoxError>> {
        let this = self.project();
        let (Some(shared), Some(request)) = (&*this.shared, &*this.request) else {
            panic!("polled after it resolved");
        };
        loop {
            let picked = match this.picked {
                Some(picked) => picked,
                None => {
                    let found = ready!(poll_pick(shared, request, this.wait, this.lost, cx))?;
                    this.picked.insert(found)
                }
            };
            match ready!(picked.poll_ready(shared, request, this.wait, cx)) {
                Ready::Yes => return Poll::Ready(Ok(this.picked.take().expect("it is ready"))),
                Ready::Elsewhere => *this.picked = None,
                Ready::Refused(error) => return Poll::Ready(Err(error)),
                Ready::Lost(cause) => {
                    let channel = &picked.claim.member().channel;
                    let (id, place) = (channel.id, &channel.place);
                    let text = format!("channel {id} to {place} can't be used: {cause}");
                    channel.owner.condemn(text.clone());
                    *this.picked = None;
                    *this.repicks += 1;
                    // Each channel of the largest pool may be lost once, then something else is wrong.
                    if *this.repicks > shared.config.max {
                        let error = error::local(LocalKind::NoChannel, text, Some(cause));
                        return Poll::Ready(Err(error));
                    }
                    *this.lost = Some(cause);
                }
            }
        }
    }

    /// Gives the request to the channel.
    fn send(self: Pin<&mut Self>, picked: Picked<S>) {
        let mut this = self.project();
        let taken = this.request.take();
        let mut request = taken.expect("it was looked at just before");
        let shared = this.shared.as_ref().expect("it hasn't resolved");
        *this.lost = None;
        let Picked { claim, mut service } = picked;
        if let Some(wait) = this.wait.take() {
            shared.metrics().waited(wait.time());
            wait.charge_to(request.headers_mut());
        }
        shared.metrics().picks.increment(1);
        let channel = &claim.member().channel;
        *this.span = tracing::debug_span!(
            "call",
            pool = shared.config.name,
            path = request.uri().path(),
            channel = %channel.id,
            place = %channel.place,
            outcome = Empty,
        );
        let attempt = request.extensions().get::<Attempt>().cloned();
        if let Some(attempt) = &attempt {
            attempt.picked(channel.id, channel.place.clone());
        }
        let limit = shared.config.drain_limit;
        let call = this.span.in_scope(|| service.call(request));
        claim.member().give_back(service);
        let observer = BalanceObserver::new(claim.into_lease(), attempt, this.span.clone(), limit);
        this.call.set(Some(Observed::new(call, observer)));
    }

    /// Notes that no channel took the request: on the caller's handle too, where no layer can lose it.
    fn refuse(self: Pin<&mut Self>, error: &(dyn std::error::Error + 'static)) {
        let this = self.project();
        *this.wait = None;
        *this.picked = None;
        let (Some(shared), Some(mut request)) = (this.shared.take(), this.request.take()) else {
            return;
        };
        let kind = Local::find(error).map_or(LocalKind::NoChannel, Local::kind);
        shared.metrics().failed_locally(1);
        if let Some(attempt) = request.extensions().get::<Attempt>() {
            attempt.ended(Outcome::Local(kind));
        }
        let (pool, path) = (&shared.config.name, request.uri().path());
        tracing::debug!(pool, path, %kind, error, "no channel took the call");
        Attempt::refused(request.extensions_mut());
    }
}

impl<S> Balance<S> {
    /// Whether the pool was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}
