//! Ending all open exchanges of one channel at once.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    task::{Context, Waker},
};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A switch that ends the exchanges which wait on it: once it is thrown, all that hold a
/// [`CutTicket`] are woken and find it thrown, and so do all that come later.
///
/// An exchange that never waits never takes the lock.
#[derive(Clone, Default)]
pub struct CutSwitch(Arc<Inner>);

#[derive(Default)]
struct Inner {
    thrown: AtomicBool,
    wakers: Mutex<Wakers>,
}

#[derive(Default)]
struct Wakers {
    slots: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl CutSwitch {
    /// A switch that isn't thrown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all exchanges on it, and those that come later. Says how many were woken.
    pub fn throw(&self) -> usize {
        let woken: Vec<Waker> = {
            let mut wakers = self.wakers();
            self.0.thrown.store(true, Ordering::Release);
            wakers.slots.iter_mut().filter_map(Option::take).collect()
        };
        // Woken after unlocking: a waker may run anything.
        let count = woken.len();
        woken.into_iter().for_each(Waker::wake);
        count
    }

    /// Whether it is thrown.
    #[must_use]
    pub fn is_thrown(&self) -> bool {
        self.0.thrown.load(Ordering::Acquire)
    }

    fn wakers(&self) -> MutexGuard<'_, Wakers> {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CutSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CutSwitch")
            .field("thrown", &self.is_thrown())
            .finish_non_exhaustive()
    }
}

/// One exchange's place at a [`CutSwitch`]. It takes a slot when it first waits and gives it back on
/// drop.
#[derive(Debug, Default)]
pub struct CutTicket {
    slot: Option<usize>,
    waker: Option<Waker>,
}

impl CutTicket {
    /// A ticket that waits on nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the task to be woken when `switch` is thrown, and says whether it is thrown already.
    /// Always with the same switch; [`CutTicket::leave`] must be called before the ticket goes.
    pub fn wait(&mut self, switch: &CutSwitch, cx: &mut Context<'_>) -> bool {
        let known = self
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        if !known {
            let waker = cx.waker().clone();
            // Cloned before locking: a waker may run anything.
            let registered = waker.clone();
            let mut wakers = switch.wakers();
            let slot = *self.slot.get_or_insert_with(|| {
                wakers.free.pop().unwrap_or_else(|| {
                    wakers.slots.push(None);
                    wakers.slots.len() - 1
                })
            });
            let old = wakers.slots[slot].replace(registered);
            drop(wakers);
            drop(old);
            self.waker = Some(waker);
        }
        switch.is_thrown()
    }

    /// Gives the slot back.
    pub fn leave(&mut self, switch: &CutSwitch) {
        self.waker = None;
        if let Some(slot) = self.slot.take() {
            let mut wakers = switch.wakers();
            let old = wakers.slots[slot].take();
            wakers.free.push(slot);
            drop(wakers);
            drop(old);
        }
    }
}
