//! Metrics, and the observer of one exchange.

use std::{
    sync::atomic::Ordering,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::response::Parts;
use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use steadfast_classify::Exchange;
use steadfast_core::{Attempt, BoxError, CutTicket, End, LocalKind, Observe, Outcome};
use tracing::Span;

use crate::{
    error,
    member::{Lease, Roster},
};

/// The pool's metrics. Gauges are set from the state, never counted up and down.
#[derive(Debug)]
pub(crate) struct Metrics {
    pool: String,
    pub(crate) picks: Counter,
    pick_wait: Histogram,
    ready: Gauge,
    connecting: Gauge,
    draining: Gauge,
    in_flight: Gauge,
    failed_locally: Counter,
}

impl Metrics {
    pub(crate) fn new(pool: &str) -> Self {
        describe();
        let state =
            |state| gauge!("steadfast.channels", "pool" => pool.to_owned(), "state" => state);
        Self {
            picks: counter!("steadfast.picks", "pool" => pool.to_owned()),
            pick_wait: histogram!("steadfast.pick.wait", "pool" => pool.to_owned()),
            ready: state("ready"),
            connecting: state("connecting"),
            draining: state("draining"),
            in_flight: gauge!("steadfast.inflight", "pool" => pool.to_owned()),
            failed_locally: counter!("steadfast.failed_locally", "pool" => pool.to_owned()),
            pool: pool.to_owned(),
        }
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.pick_wait.record(time);
    }

    pub(crate) fn resized(&self, change: isize, reason: &'static str) {
        if change == 0 {
            return;
        }
        let direction = if change > 0 { "up" } else { "down" };
        let (pool, by) = (self.pool.clone(), change.unsigned_abs() as u64);
        counter!("steadfast.resize", "pool" => pool, "direction" => direction, "reason" => reason)
            .increment(by);
    }

    pub(crate) fn replaced(&self, outcome: &'static str) {
        counter!("steadfast.replace", "pool" => self.pool.clone(), "outcome" => outcome)
            .increment(1);
    }

    pub(crate) fn failed_locally(&self, calls: u64) {
        self.failed_locally.increment(calls);
    }

    pub(crate) fn channels<S>(&self, roster: &Roster<S>) {
        let count = |channels: usize| f64::from(u32::try_from(channels).unwrap_or(u32::MAX));
        self.ready.set(count(roster.members.len()));
        self.connecting.set(count(roster.connecting.len()));
        self.draining.set(count(roster.draining.len()));
        let all = roster.members.iter().chain(&roster.draining);
        let in_flight = all.map(|member| f64::from(member.channel.meter.read().in_flight()));
        self.in_flight.set(in_flight.sum::<f64>());
    }
}

impl Drop for Metrics {
    /// A pool that is gone has no channels.
    fn drop(&mut self) {
        for gauge in [
            &self.ready,
            &self.connecting,
            &self.draining,
            &self.in_flight,
        ] {
            gauge.set(0.0);
        }
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_gauge!("steadfast.channels", Unit::Count, "Channels by state");
    describe_gauge!(
        "steadfast.inflight",
        Unit::Count,
        "Requests in flight, as last looked at: at each change of the channels and each resize interval"
    );
    describe_counter!(
        "steadfast.picks",
        Unit::Count,
        "Requests that a channel was picked for"
    );
    describe_histogram!(
        "steadfast.pick.wait",
        Unit::Seconds,
        "How long calls waited for a channel, those that did"
    );
    describe_counter!(
        "steadfast.resize",
        Unit::Count,
        "Channels added or removed, by reason: load, demand, streams"
    );
    describe_counter!(
        "steadfast.replace",
        Unit::Count,
        "Channels replaced by a new one, and dials for that which failed"
    );
    describe_counter!(
        "steadfast.failed_locally",
        Unit::Count,
        "Calls that the pool refused or ended itself"
    );
}

/// Watches one exchange on behalf of the pool: it holds the lease until the body ends.
#[derive(Debug)]
pub struct BalanceObserver {
    lease: Lease,
    ticket: CutTicket,
    exchange: Exchange,
    attempt: Option<Attempt>,
    span: Span,
    drain_limit: Duration,
}

impl BalanceObserver {
    pub(crate) fn new(
        lease: Lease,
        attempt: Option<Attempt>,
        span: Span,
        drain_limit: Duration,
    ) -> Self {
        Self {
            lease,
            ticket: CutTicket::new(),
            exchange: Exchange::new(),
            attempt,
            span,
            drain_limit,
        }
    }
}

impl Observe for BalanceObserver {
    fn head(&mut self, head: &Parts) {
        self.exchange.head(head);
    }

    fn waiting(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let channel = self.lease.channel();
        if self.ticket.wait(&channel.cut, cx) {
            return Poll::Ready(if channel.closed.load(Ordering::Acquire) {
                error::cut_by_close(channel.id)
            } else {
                error::drained(channel.id, self.drain_limit)
            });
        }
        // Pending: the ticket holds the waker.
        Poll::Pending
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
    }

    fn end(mut self, end: End<'_>) {
        let outcome = self.exchange.end(&end);
        let channel = self.lease.channel();
        let answered = matches!(outcome, Outcome::Status(_));
        if answered && !channel.answered.load(Ordering::Relaxed) {
            channel.answered.store(true, Ordering::Relaxed);
        }
        if blames_channel(outcome) {
            channel.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(attempt) = &self.attempt {
            attempt.ended(outcome);
        }
        self.span
            .record("outcome", tracing::field::display(outcome));
        self.ticket.leave(&channel.cut);
    }
}

/// Whether an exchange that ended like this counts as a failure of its channel in a snapshot.
fn blames_channel(outcome: Outcome) -> bool {
    const UNAVAILABLE: u16 = 14;
    match outcome {
        Outcome::Status(code) => code == UNAVAILABLE,
        Outcome::Local(kind) => kind == LocalKind::Quarantine,
        Outcome::Dropped | Outcome::Timeout | Outcome::Other => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B11: what points at the channel counts as its failure; what the caller or this process did doesn't.
    #[test]
    fn what_counts_as_a_failure() {
        let yes = [
            Outcome::Status(14),
            Outcome::Http(503),
            Outcome::NeverSent,
            Outcome::ConnectionLost,
            Outcome::Reset(2),
            Outcome::NoStatus,
            Outcome::GapTimeout,
            Outcome::Local(LocalKind::Quarantine),
        ];
        let no = [
            Outcome::Status(0),
            Outcome::Status(5),
            Outcome::Dropped,
            Outcome::Timeout,
            Outcome::Other,
            Outcome::Local(LocalKind::Drained),
            Outcome::Local(LocalKind::Closed),
        ];
        assert!(yes.into_iter().all(blames_channel));
        assert!(!no.into_iter().any(blames_channel));
    }
}
