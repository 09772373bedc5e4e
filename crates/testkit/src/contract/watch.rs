//! What a strict service knows, and the handle that commands it.

#[cfg(doc)]
use super::StrictService;
use super::{Violation, probe::settle};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) unready: bool,
    pub(super) fail_ready: bool,
    pub(super) hold: bool,
    pub(super) fail_calls: bool,
    /// Of instances that wait to be ready, and of futures that are held, by their number.
    wakers: HashMap<u64, Waker>,
    numbers: u64,
    pub(super) instances: usize,
    pub(super) permits: usize,
    pub(super) futures: usize,
    pub(super) bodies: usize,
    pub(super) readies: u64,
    pub(super) calls: u64,
    pub(super) violations: Vec<Violation>,
}

/// Watches and commands a [`StrictService`], all its clones, and what they made. By default all is ready and answered at once:
/// a gRPC answer of one message and `grpc-status: 0`.
#[derive(Clone, Debug, Default)]
pub struct StrictWatch(Arc<Mutex<State>>);

impl StrictWatch {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        // Outside the lock: a waker may run anything.
        wakers.into_values().for_each(Waker::wake);
    }

    /// From now on `poll_ready` is Pending, except on instances that are ready already.
    pub fn unready(&self) {
        self.change(|state| state.unready = true);
    }

    /// From now on `poll_ready` is Ready; wakes who waits for it.
    pub fn ready(&self) {
        self.change(|state| state.unready = false);
    }

    /// From now on `poll_ready` fails, for good.
    pub fn fail_ready(&self) {
        self.change(|state| state.fail_ready = true);
    }

    /// From now on futures are Pending.
    pub fn hold(&self) {
        self.change(|state| state.hold = true);
    }

    /// Lets the futures resolve; wakes who waits for it.
    pub fn release(&self) {
        self.change(|state| state.hold = false);
    }

    /// From now on futures resolve to an error.
    pub fn fail_calls(&self) {
        self.change(|state| state.fail_calls = true);
    }

    /// The breaches that the service saw, in order.
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// Instances that are alive.
    pub fn instances(&self) -> usize {
        self.state().instances
    }

    /// Instances that said Ready and were not called since.
    pub fn permits(&self) -> usize {
        self.state().permits
    }

    /// Response futures that are alive.
    pub fn futures(&self) -> usize {
        self.state().futures
    }

    /// Response bodies that are alive.
    pub fn bodies(&self) -> usize {
        self.state().bodies
    }

    /// How often an instance became ready.
    pub fn readies(&self) -> u64 {
        self.state().readies
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Wakers that are stored: instances and futures that somebody waits on.
    pub fn wakers(&self) -> usize {
        self.state().wakers.len()
    }

    /// Forgets a number's waker. Returned, so that it is dropped outside the lock.
    pub(super) fn forget(&self, number: u64, change: impl FnOnce(&mut State)) -> Option<Waker> {
        let mut state = self.state();
        change(&mut state);
        state.wakers.remove(&number)
    }

    pub(super) fn number(&self, change: impl FnOnce(&mut State)) -> u64 {
        let mut state = self.state();
        change(&mut state);
        state.numbers += 1;
        state.numbers
    }

    pub(super) fn wait(&self, mut state: MutexGuard<'_, State>, number: u64, waker: Waker) {
        let old = state.wakers.insert(number, waker);
        drop(state);
        drop(old);
    }
}

/// Whether no call is under way below.
pub(super) fn idle(watch: &StrictWatch) -> Result<(), Violation> {
    let left = [
        ("permits", watch.permits()),
        ("inner futures", watch.futures()),
        ("inner bodies", watch.bodies()),
    ];
    match left.into_iter().find(|(_, count)| *count > 0) {
        Some((what, count)) => Err(Violation::NotReleased { what, count }),
        None => Ok(()),
    }
}

/// Whether nothing is left below at all.
pub(super) async fn released(watch: &StrictWatch) -> Result<(), Violation> {
    settle().await;
    idle(watch)?;
    match watch.instances() {
        0 => Ok(()),
        count => Err(Violation::NotReleased {
            what: "inner services",
            count,
        }),
    }
}
