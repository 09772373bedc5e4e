//! The double below a layer: a service that trusts nobody.

use super::{StrictWatch, Violation};
use crate::body::{BodyError, ScriptBody};
use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
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

/// A service that counts how the contract is broken on it; put it below the layer under test.
///
/// Ready is a permit that belongs to one instance: a call takes it, a drop gives it back, a clone has none.
///
/// ```
/// use steadfast_testkit::contract::{StrictService, Violation};
/// use tower::{Service, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (mut service, watch) = StrictService::new();
/// ServiceExt::<u8>::ready(&mut service).await.unwrap();
/// assert_eq!(watch.permits(), 1);
/// service.clone().call(7).await.unwrap(); // not the instance that is ready
/// assert_eq!(watch.violations(), [Violation::CloneCarriedReadiness]);
/// # }
/// ```
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
