//! The callers that wait on one channel, and the channel's gate.
//!
//! A caller takes a seat with its waker when it first waits, and gives it back at its end. A frame that
//! comes costs it a store and no lock. Shutting the gate ends whoever came in before; opening it lets
//! callers in again, and not those.

use std::{sync::PoisonError, task::Waker};

use steadfast_core::CutSwitch;

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};

#[cfg(all(test, steadfast_loom))]
mod interleavings;

/// Seats that stay when the last caller of a burst has gone.
const KEPT: usize = 128;
/// The gate of a channel that is given up.
const GONE: u64 = u64::MAX;

/// Whether the pacemaker is awake.
pub(crate) struct Awake(AtomicBool);

impl Awake {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// For whoever has just taken a seat: if it isn't, it has to be woken.
    #[inline]
    pub(crate) fn is(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, awake: bool) {
        self.0.store(awake, Ordering::SeqCst);
    }

    /// For the pacemaker: it may rest, unless somebody sits.
    pub(crate) fn may_rest(&self, somebody_sits: impl FnOnce() -> bool) -> bool {
        // Before the look: whoever takes a seat after it finds that the pacemaker is to be woken.
        self.set(false);
        let sits = somebody_sits();
        if sits {
            self.set(true);
        }
        !sits
    }
}

/// How the gate stood when a caller came: it is in as long as the gate stands so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// What a gate shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open(Ticket),
    Shut,
    Gone,
}

pub(crate) struct Seats {
    /// Even while it is open, odd while it is shut: one more with each change.
    gate: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    all: Vec<Arc<Seat>>,
    free: Vec<Arc<Seat>>,
    wakers: Vec<Option<Waker>>,
    /// Thrown when the gate opens again, or the channel is given up.
    reopened: CutSwitch,
}

/// The place of one caller.
#[derive(Debug)]
pub(crate) struct Seat {
    index: usize,
    /// The tick in which the caller began to wait; 0 while it doesn't.
    since: AtomicU64,
}

impl Seat {
    /// The caller waits, since this tick, or doesn't if that is 0.
    pub(crate) fn wait_since(&self, tick: u64) {
        self.since.store(tick, Ordering::Relaxed);
    }
}

impl Seats {
    pub(crate) fn new() -> Self {
        Self {
            gate: AtomicU64::new(0),
            book: Mutex::new(Book::default()),
        }
    }

    pub(crate) fn gate(&self) -> Gate {
        match self.gate.load(Ordering::Acquire) {
            GONE => Gate::Gone,
            gate if gate & 1 == 0 => Gate::Open(Ticket(gate)),
            _ => Gate::Shut,
        }
    }

    pub(crate) fn is_in(&self, ticket: Ticket) -> bool {
        self.gate.load(Ordering::Acquire) == ticket.0
    }

    /// Keeps the waker of a caller that waits, on its seat or on a new one. None if the gate was shut
    /// since it came.
    pub(crate) fn sit(
        &self,
        ticket: Ticket,
        seat: Option<&Arc<Seat>>,
        tick: u64,
        waker: Waker,
    ) -> Option<Option<Arc<Seat>>> {
        let mut book = self.book();
        // Under the lock: either it is woken by whoever shuts the gate, or it sees that it is shut.
        if !self.is_in(ticket) {
            drop(book);
            return None;
        }
        let taken = seat.is_none().then(|| book.take_seat());
        if let Some(seat) = seat.or(taken.as_ref()) {
            seat.wait_since(tick);
            let old = book.wakers[seat.index].replace(waker);
            drop(book);
            drop(old);
        }
        Some(taken)
    }

    pub(crate) fn stand_up(&self, seat: Arc<Seat>) {
        seat.wait_since(0);
        let mut book = self.book();
        let waker = book.wakers[seat.index].take();
        book.free.push(seat);
        if book.free.len() == book.all.len() && book.all.len() > KEPT {
            *book = Book {
                reopened: book.reopened.clone(),
                ..Book::default()
            };
        }
        drop(book);
        drop(waker);
    }

    /// Shuts the gate and wakes all that sit. Says how many that were.
    pub(crate) fn shut(&self) -> usize {
        let mut book = self.book();
        let gate = self.gate.load(Ordering::Relaxed);
        if gate & 1 == 0 {
            self.gate.store(gate + 1, Ordering::Release);
        }
        book.reopened = CutSwitch::new();
        let sitting = book.all.len() - book.free.len();
        let wakers: Vec<Waker> = book.wakers.iter_mut().filter_map(Option::take).collect();
        drop(book);
        // Unlocked: a waker may run anything.
        wakers.into_iter().for_each(Waker::wake);
        sitting
    }

    pub(crate) fn open(&self) {
        self.change(|gate| {
            if gate == GONE {
                GONE
            } else {
                gate + (gate & 1)
            }
        });
    }

    /// Shuts the gate for good.
    pub(crate) fn give_up(&self) {
        self.change(|_| GONE);
    }

    fn change(&self, next: impl FnOnce(u64) -> u64) {
        let book = self.book();
        let gate = self.gate.load(Ordering::Relaxed);
        self.gate.store(next(gate), Ordering::Release);
        let reopened = book.reopened.clone();
        drop(book);
        reopened.throw();
    }

    /// What is thrown when the gate changes next, if it is shut.
    pub(crate) fn reopening(&self) -> Option<CutSwitch> {
        let book = self.book();
        (self.gate() == Gate::Shut).then(|| book.reopened.clone())
    }

    /// How many sit, how many of them wait, and since when the one that has waited longest.
    pub(crate) fn look(&self) -> Waiting {
        let book = self.book();
        let sitting = book.all.len() - book.free.len();
        let since = book
            .all
            .iter()
            .map(|seat| seat.since.load(Ordering::Relaxed));
        let waits = since.filter(|since| *since != 0);
        Waiting {
            sitting,
            waiting: waits.clone().count(),
            since: waits.min(),
        }
    }

    /// Wakes all that sit, or wait for the gate, without news.
    pub(crate) fn nudge(&self) {
        let mut book = self.book();
        let wakers: Vec<Waker> = book.wakers.iter().flatten().cloned().collect();
        let waited = std::mem::take(&mut book.reopened);
        drop(book);
        wakers.into_iter().for_each(Waker::wake);
        waited.throw();
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Plain data that no panic can leave half-written, so a poisoned one is good.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits on a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) sitting: usize,
    pub(crate) waiting: usize,
    pub(crate) since: Option<u64>,
}

impl Book {
    fn take_seat(&mut self) -> Arc<Seat> {
        if let Some(seat) = self.free.pop() {
            return seat;
        }
        let seat = Arc::new(Seat {
            index: self.all.len(),
            since: AtomicU64::new(0),
        });
        self.all.push(Arc::clone(&seat));
        self.wakers.push(None);
        // So that standing up never allocates.
        let taken = self.all.len() - self.free.len();
        self.free.reserve(taken);
        seat
    }
}
