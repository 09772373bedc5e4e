//! The check of a layer.

use super::{StrictFuture, StrictService, StrictWatch, Violations};
use http::{Request, Response};
use http_body::Body;
use std::{any::type_name, error::Error};
use tower_service::Service;

/// Checks a layer: see [`ServiceCheck`]. This module's documentation has an example.
///
/// # Errors
/// Each breach of the contract that was found.
pub async fn check_service<M, R, S, Q, B>(make: M, request: R) -> Result<(), Violations>
where
    M: Fn(StrictService) -> S,
    R: Fn() -> Request<Q>,
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    ServiceCheck::new(make, request).run().await
}

/// Puts a layer on a [`StrictService`] and calls it in every way that the contract allows.
///
/// It checks that the inner service is called only when that instance was ready, and Ready is used once; that a clone starts
/// un-ready; that Pending keeps the last waker and does not spin, while the inner service is not ready and while it has no
/// answer; that permits, futures, bodies and services are released by drops at each point, and by a future that resolved though
/// its caller keeps it; and that an inner error comes out with itself among its sources.
///
/// Where the layer waits for the inner service does not matter: in `poll_ready`, or in the future.
///
/// ```
/// use steadfast_testkit::contract::{ServiceCheck, StrictService, Violation};
/// use tower::{limit::ConcurrencyLimit, util::BoxCloneService};
/// # use http::Request;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let boxed = ServiceCheck::new(BoxCloneService::new, || Request::new(()));
/// boxed.own_future(false).run().await.unwrap();
///
/// // tower's limit keeps its permit, and the inner future, until its own future is dropped.
/// let limit = |inner: StrictService| ConcurrencyLimit::new(inner, 1);
/// let found = ServiceCheck::new(limit, || Request::new(())).run().await.unwrap_err();
/// assert!(found.contains(|violation| matches!(violation, Violation::KeptFutureHolds { .. })));
/// # }
/// ```
#[derive(Debug)]
pub struct ServiceCheck<M, R> {
    make: M,
    pub(super) request: R,
    pub(super) own_future: bool,
}

impl<M, R, S, Q, B> ServiceCheck<M, R>
where
    M: Fn(StrictService) -> S,
    R: Fn() -> Request<Q>,
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A check of the service that `make` puts around another one, with these requests.
    pub fn new(make: M, request: R) -> Self {
        Self {
            make,
            request,
            own_future: type_name::<S::Future>() != type_name::<StrictFuture>(),
        }
    }

    /// Whether the service has a future of its own, which must let go of the inner one when that resolved. Default: unless it
    /// is the inner one's type; say no for a layer that only boxes it.
    #[must_use]
    pub fn own_future(mut self, own_future: bool) -> Self {
        self.own_future = own_future;
        self
    }

    /// Runs all scenarios.
    ///
    /// # Errors
    /// Each breach of the contract that was found.
    pub async fn run(&self) -> Result<(), Violations> {
        let mut found = Violations::default();
        let (service, watch) = self.start();
        found.add("a call", self.good(service, &watch).await.err());
        found.add("a call", watch.violations());
        for held in [false, true] {
            let name = if held {
                "waiting for the answer"
            } else {
                "waiting for readiness"
            };
            let (service, watch) = self.start();
            found.add(name, self.waits(service, &watch, held).await.err());
            found.add(name, watch.violations());
            let (service, watch) = self.start();
            found.add(
                name,
                self.dropped_waiting(service, &watch, held).await.err(),
            );
        }
        let (service, watch) = self.start();
        found.add(
            "dropping a ready service",
            self.dropped_ready(service, &watch).await.err(),
        );
        for body in [false, true] {
            let (service, watch) = self.start();
            found.add(
                "dropping the future or the response",
                self.dropped(service, &watch, body).await.err(),
            );
        }
        let (service, watch) = self.start();
        found.add("keeping the future", self.kept(service, &watch).await.err());
        let (service, watch) = self.start();
        found.add("a clone", self.cloned(service, &watch).await.err());
        found.add("a clone", watch.violations());
        for ready in [false, true] {
            let name = if ready {
                "an error of poll_ready"
            } else {
                "an error of the call"
            };
            let (service, watch) = self.start();
            if ready {
                watch.fail_ready();
            } else {
                watch.fail_calls();
            }
            found.add(name, self.fails(service).await.err());
            found.add(name, watch.violations());
        }
        found.into_result()
    }

    fn start(&self) -> (S, StrictWatch) {
        let (inner, watch) = StrictService::new();
        ((self.make)(inner), watch)
    }
}
