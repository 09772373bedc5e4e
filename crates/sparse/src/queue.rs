//! What all services of one layer share: the policy behind its lock, and who waits to be told.
//!
//! Who arrives or leaves tells the policy, takes over what it decides, unlocks, and wakes. A place belongs
//! to the call that holds its [`Place`], and goes on with the drop of that, wherever the drop happens.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use steadfast_core::now;

use crate::{
    Bound, CallId, FlowId, FlowReading, Grant, Lane, SparseConfig, SparsePolicy, SparseReading,
    list::{Map, shrink},
    observe::Metrics,
    sync::{Mutex, MutexGuard},
};

/// How often the gauges are set while calls arrive.
const PUBLISHED_EVERY: Duration = Duration::from_millis(100);

/// The places and those who wait for them.
pub(crate) struct Queue {
    config: SparseConfig,
    pub(crate) metrics: Metrics,
    state: Mutex<State>,
}

struct State {
    policy: SparsePolicy,
    /// Of the calls that had to wait, until they were polled with their grant.
    seats: Map<CallId, Seat>,
    refusals: u32,
    /// Whether a bound was reached since calls wait.
    overloaded: bool,
    published: Option<Instant>,
}

enum Seat {
    /// Whom to wake, once it was polled.
    Waits(Option<Waker>),
    Granted(Lane),
}

/// A call's right to be here, from its arrival to the end of its body: a place, or one in the queue.
pub(crate) struct Place {
    queue: Arc<Queue>,
    call: CallId,
}

/// A call that was let in.
pub(crate) enum Entered {
    /// It has its place.
    Granted(Place),
    /// It waits for one.
    Waits(Place, Ticket),
}

/// One call's view of the queue while it waits. Its [`Place`] must outlive it.
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    call: CallId,
    pub(crate) since: Instant,
}

impl Queue {
    pub(crate) fn new(config: SparseConfig) -> Arc<Self> {
        Arc::new(Self {
            metrics: Metrics::new(&config.name),
            state: Mutex::new(State {
                policy: SparsePolicy::new(config.clone()),
                seats: Map::default(),
                refusals: 0,
                overloaded: false,
                published: None,
            }),
            config,
        })
    }

    pub(crate) fn config(&self) -> &SparseConfig {
        &self.config
    }

    /// A call of this flow arrives. A refusal comes with its number.
    pub(crate) fn enter(self: &Arc<Self>, flow: FlowId) -> Result<Entered, (Bound, u32)> {
        let now = now().into_std();
        let mut state = self.state();
        let call = match state.policy.on_arrival(flow, now) {
            Ok(arrival) => arrival.call,
            Err(bound) => {
                state.refusals = state.refusals.wrapping_add(1);
                let (number, news) = (state.refusals, !state.overloaded);
                state.overloaded = true;
                drop(state);
                self.metrics.refused(bound.label());
                if news {
                    let name = &self.config.name;
                    tracing::info!(
                        name,
                        bound = bound.label(),
                        "calls are refused: a queue is full"
                    );
                }
                return Err((bound, number));
            }
        };
        let (mut lane, mut other) = (None, None);
        while let Some(grant) = state.policy.next_grant() {
            if grant.call == call {
                lane = Some(grant.lane);
            } else {
                other = state.seat(grant);
                if other.is_some() {
                    break;
                }
            }
        }
        if lane.is_none() {
            state.seats.insert(call, Seat::Waits(None));
        }
        let due = state.published.is_none_or(|at| now >= at + PUBLISHED_EVERY);
        let published = due.then(|| {
            state.published = Some(now);
            state.policy.reading()
        });
        drop(state);
        if let Some(waker) = other {
            waker.wake();
            self.settle(self.state());
        }
        if let Some(reading) = published {
            self.metrics.publish(reading);
        }
        let queue = Arc::clone(self);
        let place = Place { queue, call };
        Ok(match lane {
            Some(lane) => {
                self.metrics.granted(lane, None);
                Entered::Granted(place)
            }
            None => {
                let (queue, since) = (Arc::clone(self), now);
                Entered::Waits(place, Ticket { queue, call, since })
            }
        })
    }

    pub(crate) fn next_refusal(&self) -> u32 {
        let mut state = self.state();
        state.refusals = state.refusals.wrapping_add(1);
        state.refusals
    }

    pub(crate) fn reading(&self) -> SparseReading {
        self.state().policy.reading()
    }

    pub(crate) fn flows(&self) -> Vec<FlowReading> {
        self.state().policy.flows().collect()
    }

    /// The call is over, or its caller went away.
    fn leave(&self, call: CallId) {
        let mut state = self.state();
        let seat = state.seats.remove(&call);
        shrink(&mut state.seats);
        state.policy.on_end(call);
        let reading = state.policy.reading();
        let recovered = state.overloaded && reading.waiting == [0, 0];
        state.overloaded &= !recovered;
        self.settle(state);
        // A waker may run anything when it is dropped, and so may a subscriber.
        drop(seat);
        if recovered {
            let name = &self.config.name;
            tracing::info!(name, "no call waits any more");
        }
        if reading.flows == 0 {
            self.metrics.publish(reading);
        }
    }

    /// Hands out the places that are free.
    fn settle<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        while let Some(grant) = state.policy.next_grant() {
            let Some(waker) = state.seat(grant) else {
                continue;
            };
            drop(state);
            waker.wake();
            state = self.state();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells a call that waits of its place. Says whom to wake.
    fn seat(&mut self, grant: Grant) -> Option<Waker> {
        let seat = self.seats.get_mut(&grant.call)?;
        match std::mem::replace(seat, Seat::Granted(grant.lane)) {
            Seat::Waits(waker) => waker,
            Seat::Granted(_) => None,
        }
    }
}

impl Ticket {
    /// Whether the call has its place.
    pub(crate) fn poll(&self, polled: &Waker) -> Poll<()> {
        // Cloned before locking and dropped after it: a waker may run anything.
        let mut waker = Some(polled.clone());
        let mut state = self.queue.state();
        let lane = match state.seats.get_mut(&self.call) {
            Some(Seat::Waits(known)) => {
                std::mem::swap(known, &mut waker);
                drop(state);
                // Pending: who makes the grant wakes it.
                return Poll::Pending;
            }
            Some(Seat::Granted(lane)) => Some(*lane),
            None => None,
        };
        state.seats.remove(&self.call);
        drop(state);
        if let Some(lane) = lane {
            self.queue.metrics.granted(lane, Some(self.waited()));
        }
        Poll::Ready(())
    }

    /// How long it has been waiting.
    pub(crate) fn waited(&self) -> Duration {
        now().into_std().saturating_duration_since(self.since)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.leave(self.call);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.call).finish()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("config", &self.config)
            .field("reading", &self.reading())
            .finish_non_exhaustive()
    }
}
