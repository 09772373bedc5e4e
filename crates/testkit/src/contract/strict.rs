//! The double below a layer: a service that trusts nobody.

use super::Violation;
use crate::body::{BodyError, ScriptBody};
use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::HashMap,
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tower_service::Service;

/// The error of a [`StrictService`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictError(&'static str);

impl StrictError {
    /// Whether such an error is this one or among its sources.
    pub fn is_in(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::is_in)
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (a test says so)", self.0)
    }
}

impl Error for StrictError {}

#[derive(Debug, Default)]
struct State {
    unready: bool,
    fail_ready: bool,
    hold: bool,
    fail_calls: bool,
    /// Of instances that wait to be ready, and of futures that are held, by their number.
    wakers: HashMap<u64, Waker>,
    numbers: u64,
    instances: usize,
    permits: usize,
    futures: usize,
    bodies: usize,
    readies: u64,
    calls: u64,
    violations: Vec<Violation>,
}

/// Watches and commands a [`StrictService`], all its clones, and what they made. By default all is ready and answered at once:
/// a gRPC answer of one message and `grpc-status: 0`.
#[derive(Clone, Debug, Default)]
pub struct StrictWatch(Arc<Mutex<State>>);

impl StrictWatch {
    fn state(&self) -> MutexGuard<'_, State> {
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
    fn forget(&self, number: u64, change: impl FnOnce(&mut State)) -> Option<Waker> {
        let mut state = self.state();
        change(&mut state);
        state.wakers.remove(&number)
    }

    fn number(&self, change: impl FnOnce(&mut State)) -> u64 {
        let mut state = self.state();
        change(&mut state);
        state.numbers += 1;
        state.numbers
    }

    fn wait(&self, mut state: MutexGuard<'_, State>, number: u64, waker: Waker) {
        let old = state.wakers.insert(number, waker);
        drop(state);
        drop(old);
    }
}

/// A service that counts how the contract is broken on it; put it below the layer under test.
///
/// Ready is a permit that belongs to one instance: a call takes it, a drop gives it back, a clone has none.
#[derive(Debug)]
pub struct StrictService {
    watch: StrictWatch,
    number: u64,
    ready: bool,
    failed: bool,
    /// Whether it is a clone of an instance that was ready.
    of_ready: bool,
}

impl StrictService {
    /// A service, and the handle that watches it.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a strict service is always made with its watch"
    )]
    pub fn new() -> (Self, StrictWatch) {
        let watch = StrictWatch::default();
        (Self::made(watch.clone(), false), watch)
    }

    fn made(watch: StrictWatch, of_ready: bool) -> Self {
        Self {
            number: watch.number(|state| state.instances += 1),
            watch,
            ready: false,
            failed: false,
            of_ready,
        }
    }
}

impl Clone for StrictService {
    /// The clone has no permit, whatever the original has.
    fn clone(&self) -> Self {
        Self::made(self.watch.clone(), self.ready)
    }
}

impl Drop for StrictService {
    fn drop(&mut self) {
        let ready = usize::from(self.ready);
        drop(self.watch.forget(self.number, |state| {
            state.instances -= 1;
            state.permits -= ready;
        }));
    }
}

impl<Q> Service<Q> for StrictService {
    type Response = Response<StrictBody>;
    type Error = StrictError;
    type Future = StrictFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StrictError>> {
        let waker = context.waker().clone();
        let mut state = self.watch.state();
        if self.failed {
            state.violations.push(Violation::UsedAfterError);
        }
        if state.fail_ready && !self.ready {
            self.failed = true;
            return Poll::Ready(Err(StrictError("not ready any more")));
        }
        if state.unready && !self.ready {
            // Pending: `StrictWatch::ready` wakes it.
            self.watch.wait(state, self.number, waker);
            return Poll::Pending;
        }
        if !self.ready {
            self.ready = true;
            state.permits += 1;
            state.readies += 1;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Q) -> StrictFuture {
        let (ready, failed, of_ready) = (self.ready, self.failed, self.of_ready);
        self.ready = false;
        let number = self.watch.number(|state| {
            state.calls += 1;
            state.futures += 1;
            state.permits -= usize::from(ready);
            if failed {
                state.violations.push(Violation::UsedAfterError);
            } else if !ready && of_ready {
                state.violations.push(Violation::CloneCarriedReadiness);
            } else if !ready {
                state.violations.push(Violation::CalledUnready);
            }
        });
        StrictFuture {
            watch: self.watch.clone(),
            number,
            done: false,
        }
    }
}

/// The response future of a [`StrictService`].
#[derive(Debug)]
pub struct StrictFuture {
    watch: StrictWatch,
    number: u64,
    done: bool,
}

impl Drop for StrictFuture {
    fn drop(&mut self) {
        drop(self.watch.forget(self.number, |state| state.futures -= 1));
    }
}

impl Future for StrictFuture {
    type Output = Result<Response<StrictBody>, StrictError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let mut state = self.watch.state();
        if self.done {
            state.violations.push(Violation::PolledAfterReady);
        }
        if state.hold {
            // Pending: `StrictWatch::release` wakes it.
            self.watch.wait(state, self.number, waker);
            return Poll::Pending;
        }
        let failed = state.fail_calls;
        state.bodies += usize::from(!failed);
        drop(state);
        self.done = true;
        if failed {
            return Poll::Ready(Err(StrictError("the call failed")));
        }
        let (inner, _) = ScriptBody::new().message(b"abc").status(0).start();
        let mut response = Response::new(StrictBody {
            inner,
            watch: self.watch.clone(),
        });
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert("content-type", grpc);
        Poll::Ready(Ok(response))
    }
}

/// The response body of a [`StrictService`].
#[derive(Debug)]
pub struct StrictBody {
    inner: ScriptBody,
    watch: StrictWatch,
}

impl Drop for StrictBody {
    fn drop(&mut self) {
        self.watch.state().bodies -= 1;
    }
}

impl Body for StrictBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
