//! The pool as a service, and the future of one call.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use steadfast_core::{
    Attempt, BoxError, Local, LocalKind, Meter, Observed, ObservedBody, Outcome, Standing,
};
use tower_service::Service;
use tracing::{Span, field::Empty};

use crate::{
    error,
    member::Roster,
    observe::BalanceObserver,
    shared::{NoPick, Picked, Shared},
    wait::{On, Over, Wait},
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

/// A call waits this much longer than a dial may take, so that a dial which began with it ends first
/// and the error can name its cause.
const SLACK: Duration = Duration::from_millis(50);

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
                    let (id, place) = (picked.lease.channel().id, &picked.lease.channel().place);
                    let text = format!("channel {id} to {place} can't be used: {cause}");
                    picked.lease.channel().owner.condemn(text.clone());
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
        let Picked { lease, mut service } = picked;
        if let Some(wait) = this.wait.take() {
            shared.metrics().waited(wait.time());
            wait.charge_to(request.headers_mut());
        }
        shared.metrics().picks.increment(1);
        let channel = lease.channel();
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
        let observer = BalanceObserver::new(lease, attempt, this.span.clone(), limit);
        let call = this.span.in_scope(|| service.call(request));
        this.call.set(Some(Observed::new(call, observer)));
    }

    /// Notes that no channel took the request: on the caller's handle too, where no layer can lose it.
    fn refuse(self: Pin<&mut Self>, error: &(dyn std::error::Error + 'static)) {
        let this = self.project();
        *this.wait = None;
        *this.picked = None;
        let (Some(shared), Some(request)) = (this.shared.take(), this.request.take()) else {
            return;
        };
        let kind = Local::find(error).map_or(LocalKind::NoChannel, Local::kind);
        shared.metrics().failed_locally(1);
        if let Some(attempt) = request.extensions().get::<Attempt>() {
            attempt.ended(Outcome::Local(kind));
        }
        let (pool, path) = (&shared.config.name, request.uri().path());
        tracing::debug!(pool, path, %kind, error, "no channel took the call");
    }
}

/// Looks for a channel, and waits for one as long as there is hope.
fn poll_pick<S: Clone, Q>(
    shared: &Arc<Shared<S>>,
    request: &Request<Q>,
    wait: &mut Option<Box<Wait>>,
    lost: &mut Option<BoxError>,
    cx: &mut Context<'_>,
) -> Poll<Result<Picked<S>, BoxError>> {
    let config = &shared.config;
    loop {
        let waiting = wait.as_mut().filter(|wait| wait.is_on(On::Channel));
        let queued = waiting.map(|wait| wait.arm()).is_some();
        // Looked at once: by a later one the pick may have failed for another reason than the refusal.
        let roster = shared.roster.load();
        let full = match shared.pick(&roster, request, queued) {
            Ok(picked) => return Poll::Ready(Ok(picked)),
            Err(NoPick { full }) => full,
        };
        let patient = full || roster.is_hopeful() || config.wait_for_ready.is_some();
        if shared.is_closed() {
            return Poll::Ready(Err(error::closed(&config.name)));
        }
        if !patient {
            return Poll::Ready(Err(refusal(shared, &roster, None, lost.take())));
        }
        let wait = begun(wait, shared, request);
        if !queued {
            let limit = config.wait_for_ready;
            let limit = limit.unwrap_or(config.connect_budget + SLACK);
            wait.turn_to(On::Channel, Some(limit));
            continue;
        }
        if full {
            shared.note_starvation();
        }
        // Pending: the wait holds the waker.
        if let Err(over) = ready!(wait.poll_news(cx)) {
            let over = Some((over, &*wait));
            return Poll::Ready(Err(refusal(shared, &roster, over, lost.take())));
        }
    }
}

/// The waits of a call, which begin with the first one.
fn begun<'a, S, Q>(
    wait: &'a mut Option<Box<Wait>>,
    shared: &Shared<S>,
    request: &Request<Q>,
) -> &'a mut Wait {
    wait.get_or_insert_with(|| Box::new(Wait::new(&shared.signals, request.headers())))
}

/// Whether a claimed channel's service can be called.
enum Ready {
    Yes,
    /// Not now, and the request had better go elsewhere.
    Elsewhere,
    /// Never again.
    Lost(BoxError),
    /// The caller's deadline has passed.
    Refused(BoxError),
}

impl<S> Picked<S> {
    fn poll_ready<Q>(
        &mut self,
        shared: &Arc<Shared<S>>,
        request: &Request<Q>,
        wait: &mut Option<Box<Wait>>,
        cx: &mut Context<'_>,
    ) -> Poll<Ready>
    where
        S: Service<Request<Q>>,
        S::Error: Into<BoxError>,
    {
        loop {
            let waiting = wait.as_mut().filter(|wait| wait.is_on(On::Readiness));
            let waits = waiting.map(|wait| wait.arm()).is_some();
            let standing = self.lease.channel().meter.read().standing();
            if waits && standing >= Standing::Shut {
                return Poll::Ready(Ready::Elsewhere);
            }
            match self.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ready::Yes),
                Poll::Ready(Err(error)) => return Poll::Ready(Ready::Lost(error.into())),
                Poll::Pending => {}
            }
            let wait = begun(wait, shared, request);
            if !waits {
                wait.turn_to(On::Readiness, None);
                continue;
            }
            // Pending: the service and the wait hold the waker.
            if ready!(wait.poll_news(cx)).is_err() {
                let roster = shared.roster.load();
                let over = Some((Over::Deadline, &*wait));
                return Poll::Ready(Ready::Refused(refusal(shared, &roster, over, None)));
            }
        }
    }
}

/// The error of a call that no channel took: names the state of the pool and the last cause. Its source is
/// why the call's own channel was `lost`, if it had one.
fn refusal<S>(
    shared: &Shared<S>,
    roster: &Roster<S>,
    over: Option<(Over, &Wait)>,
    lost: Option<BoxError>,
) -> BoxError {
    let pool = &shared.config.name;
    let why = match over {
        None => format!("no channel of pool {pool:?} can take the call"),
        Some((Over::Deadline, wait)) => {
            let time = wait.time();
            format!(
                "the deadline passed after {time:?} while the call waited for a channel of pool {pool:?}"
            )
        }
        Some((Over::Limit, wait)) => {
            let time = wait.time();
            format!("no channel of pool {pool:?} was ready within {time:?}")
        }
    };
    let (ready, connecting) = (roster.members.len(), roster.connecting.len());
    let failed = roster
        .connecting
        .iter()
        .filter(|(_, failures)| *failures > 0)
        .count();
    let state = match (ready, connecting) {
        (0, 0) => "it has no places".to_owned(),
        (0, _) => format!("{connecting} channels are connecting, of which {failed} failed before"),
        (_, 0) => format!("{ready} channels are connected but none may be picked"),
        _ => format!(
            "{ready} channels are connected but none may be picked, \
             {connecting} are connecting, of which {failed} failed before"
        ),
    };
    let mut message = format!("{why}: {state}");
    let full = |meter: &Meter| !meter.read().has_room(shared.config.assumed_streams);
    if ready > 0 && roster.meters.iter().any(full) {
        message = format!("{message}; some have no free stream below their stream limit");
    }
    if let Some(failure) = &roster.last_failure {
        message = format!("{message}; last failure: {failure}");
    }
    let kind = match over {
        Some((Over::Deadline, _)) => LocalKind::Deadline,
        _ => LocalKind::NoChannel,
    };
    let last = || {
        let failure = roster.last_failure.as_ref()?;
        Some(Box::new((**failure).clone()) as BoxError)
    };
    error::local(kind, message, lost.or_else(last))
}

impl<S> Balance<S> {
    /// Whether the pool was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}
