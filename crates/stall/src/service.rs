//! The service of one channel, and the observer of its exchanges.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
use http_body::Body;
use steadfast_core::{
    Attempt, BoxError, CutSwitch, CutTicket, End, Observe, Observed, ObservedBody, Probing,
};
use tower_service::Service;

use crate::{
    channel::{Channel, Enrolment},
    seats::{Gate, Seat, Ticket},
    sync,
};

/// A channel's service that is watched by its [`StallDetectLayer`](crate::StallDetectLayer).
///
/// It isn't ready while the channel is in quarantine, also if it was before; a call that comes all the
/// same is refused locally. With [`StallConfig::alone`](crate::StallConfig::alone) it stays ready then,
/// and calls are refused at once. A channel that is given up is an error of `poll_ready`.
#[derive(Debug)]
pub struct StallDetect<S> {
    inner: S,
    enrolment: Option<Arc<Enrolment>>,
    door: Option<Door>,
    admission: Admission,
}

impl<S> StallDetect<S> {
    pub(crate) fn new(inner: S, enrolment: Option<Arc<Enrolment>>) -> Self {
        Self {
            inner,
            enrolment,
            door: None,
            admission: Admission::Open,
        }
    }

    /// The meter on which the layer speaks; none if it is switched off. Under a pool it is the channel's.
    #[must_use]
    pub fn meter(&self) -> Option<&steadfast_core::Meter> {
        self.channel().map(|channel| channel.owner.meter())
    }

    fn channel(&self) -> Option<&Arc<Channel>> {
        self.enrolment.as_ref().map(|enrolment| &enrolment.0)
    }

    /// Whether the channel takes calls, or says at once that it doesn't.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<Result<Admission, BoxError>> {
        let Some(enrolment) = &self.enrolment else {
            return Poll::Ready(Ok(Admission::Open));
        };
        let channel = &enrolment.0;
        loop {
            match channel.seats.gate() {
                Gate::Open(_) => {
                    self.door = None;
                    return Poll::Ready(Ok(Admission::Open));
                }
                Gate::Gone => return Poll::Ready(Err(channel.quarantined())),
                Gate::Shut if channel.fleet.config().alone => {
                    return Poll::Ready(Ok(Admission::Refused));
                }
                Gate::Shut => {}
            }
            if self
                .door
                .as_ref()
                .is_none_or(|door| door.switch.is_thrown())
            {
                self.door = channel.seats.reopening().map(Door::new);
            }
            if let Some(door) = &mut self.door
                && !door.ticket.wait(&door.switch, cx)
            {
                channel.fleet.wake();
                // Pending: the ticket holds the waker.
                return Poll::Pending;
            }
        }
    }
}

/// What the next call is, if the service was ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Open,
    /// Refused, though the channel may be restored meanwhile: the inner service wasn't asked.
    Refused,
}

impl<S: Clone> Clone for StallDetect<S> {
    /// The clone starts un-ready: it doesn't wait for a quarantine's end, nor refuse, until it is asked.
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), self.enrolment.clone())
    }
}

/// One clone's wait for the end of a quarantine.
#[derive(Debug)]
struct Door {
    switch: CutSwitch,
    ticket: CutTicket,
}

impl Door {
    fn new(switch: CutSwitch) -> Self {
        Self {
            switch,
            ticket: CutTicket::new(),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.ticket.leave(&self.switch);
    }
}

impl<S, Q, B> Service<Request<Q>> for StallDetect<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<B, StallObserver>>;
    type Error = BoxError;
    type Future = Observed<S::Future, StallObserver>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.admission = std::task::ready!(self.poll_gate(cx))?;
        if self.admission == Admission::Refused {
            return Poll::Ready(Ok(()));
        }
        // Pending: the inner service holds the waker.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let admission = std::mem::replace(&mut self.admission, Admission::Open);
        // A probe of whoever is nobody's call; but the inner service must have been asked for it, too.
        let watched = admission == Admission::Refused || !Probing::is_on(request.extensions());
        let Some(channel) = self.channel().filter(|_| watched) else {
            return Observed::new(self.inner.call(request), StallObserver(None));
        };
        let channel = Arc::clone(channel);
        match channel.seats.gate() {
            Gate::Open(ticket) if admission == Admission::Open => {
                let watched = Watched::new(channel, Some(ticket));
                Observed::new(self.inner.call(request), StallObserver(Some(watched)))
            }
            _ => {
                channel.fleet.wake();
                Attempt::refused(request.extensions_mut());
                Observed::refused(StallObserver(Some(Watched::new(channel, None))))
            }
        }
    }
}

/// Watches whether the caller of one exchange waits, and whether something comes for it.
#[derive(Debug)]
pub struct StallObserver(Option<Watched>);

#[derive(Debug)]
struct Watched {
    channel: Arc<Channel>,
    /// None if it was never let in.
    ticket: Option<Ticket>,
    seat: Option<sync::Arc<Seat>>,
    /// What is kept on the seat.
    waker: Option<Waker>,
    /// The tick in which the caller began to wait; 0 while it doesn't.
    since: u64,
    in_body: bool,
}

impl Watched {
    fn new(channel: Arc<Channel>, ticket: Option<Ticket>) -> Self {
        Self {
            channel,
            ticket,
            seat: None,
            waker: None,
            since: 0,
            in_body: false,
        }
    }

    fn end_locally(&self) -> BoxError {
        self.channel.fleet.metrics().failed_locally();
        self.channel.quarantined()
    }

    fn cut(&self) -> Option<BoxError> {
        let is_in = |ticket| self.channel.seats.is_in(ticket);
        (!self.ticket.is_some_and(is_in)).then(|| self.end_locally())
    }

    fn waiting(&mut self, cx: &Context<'_>) -> Poll<BoxError> {
        if self.since == 0 {
            self.since = self.channel.fleet.tick();
            if let Some(seat) = &self.seat {
                seat.wait_since(self.since);
            }
        }
        let known = |waker: &Waker| waker.will_wake(cx.waker());
        if !self.waker.as_ref().is_some_and(known)
            && let Some(ticket) = self.ticket
        {
            // Cloned before locking: a waker may run anything.
            let (waker, kept) = (cx.waker().clone(), cx.waker().clone());
            let seats = &self.channel.seats;
            match seats.sit(ticket, self.seat.as_ref(), self.since, waker) {
                None => return Poll::Ready(self.end_locally()),
                Some(taken) => self.seat = taken.or_else(|| self.seat.take()),
            }
            self.waker = Some(kept);
        }
        self.channel.fleet.wake();
        // Pending: the seat holds the waker, for whoever shuts the gate; the inner half holds it, too.
        Poll::Pending
    }

    /// Something came for the caller.
    fn arrived(&mut self) {
        self.channel.note_arrival(self.channel.fleet.tick());
        self.waits_no_more();
    }

    fn waits_no_more(&mut self) {
        if self.since == 0 {
            return;
        }
        if let Some(seat) = &self.seat {
            seat.wait_since(0);
        }
        let fleet = &self.channel.fleet;
        let ticks = fleet.tick().saturating_sub(self.since);
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let waited = fleet.config().tick * ticks;
        fleet.metrics().waited(self.in_body, waited);
        self.since = 0;
    }
}

impl Drop for Watched {
    // Not at the exchange's end: a service that panics in `call` leaves no exchange that could end.
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.channel.seats.stand_up(seat);
        }
    }
}

impl Observe for StallObserver {
    fn cut(&mut self) -> Option<BoxError> {
        self.0.as_ref()?.cut()
    }

    fn head(&mut self, _head: &Parts) {
        if let Some(watched) = &mut self.0 {
            watched.arrived();
            watched.in_body = true;
        }
    }

    fn waiting(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let watched = self.0.as_mut();
        watched.map_or(Poll::Pending, |watched| watched.waiting(cx))
    }

    fn data(&mut self, _data: &Bytes) {
        if let Some(watched) = &mut self.0 {
            watched.arrived();
        }
    }

    fn end(mut self, end: End<'_>) {
        let Some(watched) = &mut self.0 else {
            return;
        };
        match end {
            End::Eos | End::Trailers(_) => watched.arrived(),
            // An error may be our own, and so may the connection's end be.
            End::Failed(_) | End::Dropped => watched.waits_no_more(),
        }
    }
}
