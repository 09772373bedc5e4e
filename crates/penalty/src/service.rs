//! The service of one channel, and the observer of its exchanges.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
use http_body::Body;
use steadfast_classify::Exchange;
use steadfast_core::{
    Abandoned, Attempt, BoxError, ChannelId, End, Meter, Observe, Observed, ObservedBody, Outcome,
    Probing, now,
};
use tokio::time::Instant;
use tower_service::Service;

use crate::fleet::{Channel, Enrolment};

/// A channel's service that tells the failures of its exchanges to its
/// [`PenaltyWindowLayer`](crate::PenaltyWindowLayer).
///
/// Its readiness is the inner service's own.
#[derive(Clone, Debug)]
pub struct PenaltyWindow<S> {
    inner: S,
    enrolment: Arc<Enrolment>,
}

impl<S> PenaltyWindow<S> {
    pub(crate) fn new(inner: S, enrolment: Arc<Enrolment>) -> Self {
        Self { inner, enrolment }
    }

    /// The meter that shows the penalty. Under a pool it is the channel's.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        self.enrolment.meter()
    }

    /// The channel's id.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.enrolment.id()
    }
}

impl<S, Q, B> Service<Request<Q>> for PenaltyWindow<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<B, PenaltyObserver>>;
    type Error = BoxError;
    type Future = Observed<S::Future, PenaltyObserver>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Pending: the inner service holds the waker.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let channel = Arc::clone(self.enrolment.channel());
        let observer = PenaltyObserver {
            probe: Probing::is_on(request.extensions()),
            began: channel.keeps_time().then(now),
            channel,
            exchange: Exchange::new(),
            attempt: request.extensions().get().cloned(),
            told: None,
            counted: false,
        };
        Observed::new(self.inner.call(request), observer)
    }
}

/// Watches one exchange for a failure, and tells it as soon as it is known.
#[derive(Debug)]
pub struct PenaltyObserver {
    channel: Arc<Channel>,
    exchange: Exchange,
    attempt: Option<Attempt>,
    /// A probe of the channel is nobody's call: its outcome charges nothing.
    probe: bool,
    /// When it began, if that matters.
    began: Option<Instant>,
    /// What was told when the head came.
    told: Option<Outcome>,
    counted: bool,
}

impl Observe for PenaltyObserver {
    fn head(&mut self, head: &Parts) {
        if self.probe {
            return;
        }
        self.told = self.exchange.head(head);
        if let Some(outcome) = self.told {
            self.counted = self.channel.judge(outcome);
        }
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
    }

    fn end(self, end: End<'_>) {
        if self.probe {
            return;
        }
        let abandoned = || self.attempt.as_ref().and_then(Attempt::abandoned);
        let outcome = match self.exchange.end(&end) {
            Outcome::Dropped if abandoned() == Some(Abandoned::GapTimeout) => Outcome::GapTimeout,
            outcome => outcome,
        };
        if let Some(began) = self.began.filter(|_| outcome.is_ok()) {
            self.channel
                .succeeded(now().saturating_duration_since(began));
        }
        if !self.counted && self.told != Some(outcome) {
            self.channel.judge(outcome);
        }
    }
}
