//! The service, the future in which a call waits for its place, and what holds the place after that.

use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use steadfast_classify::deadline;
use steadfast_core::{
    Attempt, BoxError, End, Local, LocalKind, Observe, Observed, ObservedBody, Outcome,
};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use crate::{
    CallHead, error,
    layer::Shared,
    queue::{Entered, Place, Ticket},
};

/// A service whose calls wait for a place, in the order of [`SparseFlowLayer`](crate::SparseFlowLayer).
///
/// It is always ready. The inner service is cloned for each call and asked for readiness in the call's
/// future, once it has its place. Dropping that future at any point is safe.
#[derive(Clone, Debug)]
pub struct SparseFlow<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> SparseFlow<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, Q, B> Service<Request<Q>> for SparseFlow<S>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<B, SparseObserver>>;
    type Error = BoxError;
    type Future = Observed<Admission<S, Q>, SparseObserver>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // Entered here and not at the first poll, so that calls wait in the order in which they were made.
        let (place, turn) = self.enter(&request);
        let admission = Admission {
            ahead: Some(Ahead {
                turn,
                service: self.inner.clone(),
                request,
            }),
            call: None,
        };
        Observed::new(admission, SparseObserver { _place: place })
    }
}

impl<S> SparseFlow<S> {
    fn enter<Q>(&self, request: &Request<Q>) -> (Option<Place>, Turn) {
        let Shared { key, queue, .. } = &*self.shared;
        if self.shared.passes(request) {
            queue.metrics.passed();
            return (None, Turn::Come);
        }
        // A key that panics has only read, and what it has broken of its own it will meet again.
        let flow = catch_unwind(AssertUnwindSafe(|| key.find(CallHead::of(request))));
        let flow = match flow {
            Ok(flow) => flow,
            Err(panic) => {
                queue.metrics.refused("key");
                let error = error::no_key(queue.config(), &*panic);
                return (None, Turn::Refused(Some(error)));
            }
        };
        match queue.enter(flow) {
            Ok(Entered::Granted(place)) => (Some(place), Turn::Come),
            Ok(Entered::Waits(place, ticket)) => {
                (Some(place), Turn::Waits(Wait::new(ticket, request)))
            }
            Err((bound, number)) => {
                let error = error::full(queue.config(), bound, number);
                (None, Turn::Refused(Some(error)))
            }
        }
    }
}

pin_project! {
    /// The future of a call: waits for its place if it has to, then for the inner service's readiness, then
    /// for the response's head.
    pub struct Admission<S, Q>
    where
        S: Service<Request<Q>>,
    {
        // None once the call was made, or refused.
        ahead: Option<Ahead<S, Q>>,
        #[pin]
        call: Option<S::Future>,
    }
}

struct Ahead<S, Q> {
    turn: Turn,
    service: S,
    request: Request<Q>,
}

enum Turn {
    /// It has its place, or needs none.
    Come,
    Waits(Wait),
    Refused(Option<BoxError>),
}

/// A wait, and what ends it at the latest.
struct Wait {
    ticket: Ticket,
    /// What the caller gave it, counted from its arrival.
    deadline: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    fn new<Q>(ticket: Ticket, request: &Request<Q>) -> Self {
        Self {
            ticket,
            deadline: deadline::read(request.headers()),
            timer: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.ticket.poll(cx.waker()).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let longest = self.ticket.queue().config().longest_wait;
        let Some(limit) = longest.into_iter().chain(self.deadline).min() else {
            // Pending: the queue holds the waker.
            return Poll::Pending;
        };
        let since = Instant::from_std(self.ticket.since);
        let Some(end) = since.checked_add(limit) else {
            // Pending: likewise, and nobody sees that time.
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        // Pending: the queue and the timer hold the waker.
        ready!(timer.as_mut().poll(cx));
        let queue = self.ticket.queue();
        Poll::Ready(Err(if longest == Some(limit) {
            queue.metrics.refused("wait");
            error::waited(queue.config(), limit, queue.next_refusal())
        } else {
            queue.metrics.refused("deadline");
            error::too_late(queue.config(), limit)
        }))
    }
}

impl<S, Q> Ahead<S, Q>
where
    S: Service<Request<Q>>,
    S::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.turn {
            Turn::Come => {}
            Turn::Waits(wait) => {
                if let Err(error) = ready!(wait.poll(cx)) {
                    return Poll::Ready(Err(self.refuse(error)));
                }
                if let Some(deadline) = wait.deadline {
                    // Whoever gets the request counts from then.
                    let left = deadline.saturating_sub(wait.ticket.waited());
                    deadline::write(self.request.headers_mut(), left);
                }
                self.turn = Turn::Come;
            }
            Turn::Refused(error) => {
                let error = error.take().expect("polled after it resolved");
                return Poll::Ready(Err(self.refuse(error)));
            }
        }
        // Pending: the inner service holds the waker.
        self.service.poll_ready(cx).map_err(Into::into)
    }

    /// Notes on the caller's handle too, where no layer can lose it, that the call was refused.
    fn refuse(&mut self, error: BoxError) -> BoxError {
        let kind = Local::find(&*error).map_or(LocalKind::Overload, Local::kind);
        let extensions = self.request.extensions_mut();
        if let Some(attempt) = extensions.get::<Attempt>() {
            attempt.ended(Outcome::Local(kind));
        }
        Attempt::refused(extensions);
        let path = self.request.uri().path();
        tracing::debug!(path, %kind, %error, "the call got no place");
        error
    }
}

impl<S, Q> Future for Admission<S, Q>
where
    S: Service<Request<Q>>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    /// # Panics
    /// When it is polled after it resolved, or, with a longest wait or a deadline, outside a tokio runtime
    /// with time while the call has to wait.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(ahead) = this.ahead {
            let come = ready!(ahead.poll(cx));
            let ahead = this.ahead.take();
            come?;
            let Ahead {
                mut service,
                request,
                ..
            } = ahead.expect("it was polled just above");
            this.call.set(Some(service.call(request)));
        }
        let call = this.call.as_pin_mut().expect("polled after it resolved");
        // Pending: the inner future holds the waker.
        call.poll(cx).map_err(Into::into)
    }
}

impl<S: Service<Request<Q>>, Q> fmt::Debug for Admission<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("called", &self.call.is_some())
            .finish_non_exhaustive()
    }
}

/// Holds a call's place until its exchange ends, and gives it on then.
#[derive(Debug)]
pub struct SparseObserver {
    // Not given on in `end` but with the drop: a service that panics in `call` leaves no exchange that could
    // end.
    _place: Option<Place>,
}

impl Observe for SparseObserver {
    /// Whichever way it ended, the observer goes with it.
    fn end(self, _end: End<'_>) {}
}
