//! Who chooses: our pick, the least it could cost, and tower's p2c, all over services that do nothing.
//!
//! Each gets what a pick needs and nothing else: no request is made, no future runs, no byte is sent. What
//! is held counts as in flight until it is dropped.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, Waker},
};

use steadfast::{Meter, Metered};
use steadfast_balance::bench::{Pick, Picker};
use tower::{Service, balance::p2c, discover::ServiceList};

/// Chooses a channel and claims it. Dropping what it gives releases the claim.
pub(super) trait Choose {
    type Held: Send;

    fn pick(&mut self) -> Self::Held;
}

/// A channel without a service, which may carry a charge.
pub(super) fn channel() -> Metered<()> {
    Metered::new(())
}

/// Our pick: what `Balance::call` does before its future is made.
pub(super) struct Ours<'a>(pub(super) &'a Picker<()>);

impl Choose for Ours<'_> {
    type Held = Pick<()>;

    fn pick(&mut self) -> Pick<()> {
        self.0.pick().expect("every channel is open")
    }
}

/// The least that an exact pick can cost: one array of words, no roster that could change, no service,
/// nothing behind a pointer. The start goes round, so that ties spread as ours do.
pub(super) struct Ideal<'a> {
    pub(super) words: &'a [AtomicU64],
    pub(super) start: usize,
}

const IN_FLIGHT: u64 = u32::MAX as u64;

/// The word of a channel that carries nothing but this charge.
pub(super) fn word(charge: u32) -> AtomicU64 {
    AtomicU64::new(u64::from(charge) << 32)
}

impl<'a> Choose for Ideal<'a> {
    type Held = IdealHeld<'a>;

    fn pick(&mut self) -> IdealHeld<'a> {
        loop {
            self.start = (self.start + 1) % self.words.len();
            let (before, from) = self.words.split_at(self.start);
            let (mut least, mut seen, mut chosen) = (u64::MAX, 0, &self.words[0]);
            for word in from.iter().chain(before) {
                let value = word.load(Ordering::Relaxed);
                let cost = (value & IN_FLIGHT) + (value >> 32);
                if cost < least {
                    (least, seen, chosen) = (cost, value, word);
                }
            }
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if chosen
                .compare_exchange(seen, seen + 1, acquire, relaxed)
                .is_ok()
            {
                return IdealHeld(chosen);
            }
        }
    }
}

pub(super) struct IdealHeld<'a>(&'a AtomicU64);

impl Drop for IdealHeld<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

type Discovered = ServiceList<Vec<Metered<Counted>>>;

/// tower's p2c over channels whose load is our meter: `poll_ready` and `call`.
pub(super) struct Tower(p2c::Balance<Discovered, ()>);

impl Tower {
    pub(super) fn new<'a>(channels: impl Iterator<Item = &'a Metered<()>>) -> Self {
        let counted = channels.map(|channel| {
            let meter = channel.meter().clone();
            channel.clone().map(|()| Counted(meter))
        });
        Self(p2c::Balance::new(ServiceList::new::<()>(counted.collect())))
    }
}

impl Choose for Tower {
    type Held = CountedHeld;

    fn pick(&mut self) -> CountedHeld {
        let mut context = Context::from_waker(Waker::noop());
        let ready = self.0.poll_ready(&mut context);
        assert!(
            matches!(ready, Poll::Ready(Ok(()))),
            "all services are ready"
        );
        let answer = pin!(self.0.call(()));
        match answer.poll(&mut context) {
            Poll::Ready(Ok(held)) => held,
            _ => unreachable!("a counted service answers at once"),
        }
    }
}

/// A service that does nothing but count on its meter.
struct Counted(Meter);

impl Service<()> for Counted {
    type Response = CountedHeld;
    type Error = Infallible;
    type Future = Ready<Result<CountedHeld, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: ()) -> Self::Future {
        self.0.enter();
        ready(Ok(CountedHeld(self.0.clone())))
    }
}

pub(super) struct CountedHeld(Meter);

impl Drop for CountedHeld {
    fn drop(&mut self) {
        self.0.release();
    }
}
