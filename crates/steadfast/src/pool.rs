//! A whole stack behind one name.

mod builder;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use steadfast_balance::{
    Balance, BalanceObserver, CloseReport, Connectivity, ResponseFuture, Snapshot,
};
use steadfast_core::{BoxError, ConfigError, ObservedBody};
use steadfast_egress::EgressChannel;
use steadfast_penalty::{PenaltyObserver, PenaltyWindow, PenaltyWindowLayer};
use steadfast_resume::{
    ResponseFuture as ResumeFuture, ResumableBody, ResumableStream, ResumableStreamLayer,
};
use steadfast_retry::{
    DeadlineBody, DeadlineFuture, Deadlined, ResponseFuture as RetryFuture, Retry, RetryBody,
    RetryLayer,
};
use steadfast_rules::bigtable::{PingAndWarm, ReadRows};
use steadfast_stall::{StallDetect, StallDetectLayer, StallObserver};
use tonic::transport::Endpoint;
use tower_service::Service;

use crate::Config;

pub use builder::PoolBuilder;

type Channel = StallDetect<PenaltyWindow<EgressChannel>>;
type TonicBody = tonic::body::Body;
type ChannelBody = ObservedBody<ObservedBody<TonicBody, PenaltyObserver>, StallObserver>;
type BalanceBody = ObservedBody<ChannelBody, BalanceObserver>;
type RetriedBody = RetryBody<BalanceBody>;
type Inner = DeadlineBody<ResumableBody<RetriedBody>>;
type BalanceFuture = ResponseFuture<Channel, TonicBody>;
type RetriedFuture = RetryFuture<Balance<Channel>, BalanceFuture, BalanceBody>;
type StackFuture = DeadlineFuture<ResumeFuture<RetriedFuture, RetriedBody>>;

/// gRPC channels to one service, as one: what a generated client is built on.
///
/// It is a stack of this family's layers with their defaults, written with the public layers only. Cheap
/// to clone; the connections end with the last clone. Building it works outside a runtime, and dials
/// nothing: the first call, or [`Pool::warm`], does.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use steadfast_proto::{HelloRequest, greeter_client::GreeterClient};
///
/// let pool = steadfast::Pool::new("http://greeter.example:50051")?;
/// let mut client = GreeterClient::new(pool);
/// let reply = client.say_hello(HelloRequest { name: "you".into() }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pool {
    stack: Deadlined<ResumableStream<Retry<Balance<Channel>>>>,
    balance: Balance<Channel>,
    penalty: PenaltyWindowLayer,
    stall: StallDetectLayer,
    resume: ResumableStreamLayer,
    retry: RetryLayer,
}

impl Pool {
    /// A pool to `endpoint`, a URI or a tonic `Endpoint`, with the defaults.
    ///
    /// # Errors
    /// An endpoint that can't be dialled, such as https while tonic is built without TLS.
    pub fn new<E>(endpoint: E) -> Result<Self, ConfigError>
    where
        E: TryInto<Endpoint>,
        E::Error: Into<BoxError>,
    {
        Self::builder(endpoint).build()
    }

    /// A pool for BigTable with the preset [`Config::bigtable`]. `instance` is the instance's full name,
    /// `projects/{project}/instances/{instance}`: its PingAndWarm warms new channels and asks silent ones. Scans go on
    /// where they broke, by the rule [`ReadRows`].
    ///
    /// # Errors
    /// An endpoint that can't be dialled, or an instance name of another form.
    pub fn bigtable<E>(endpoint: E, instance: &str) -> Result<Self, ConfigError>
    where
        E: TryInto<Endpoint>,
        E::Error: Into<BoxError>,
    {
        let parts: Vec<_> = instance.split('/').collect();
        match *parts {
            ["projects", project, "instances", name] if !project.is_empty() && !name.is_empty() => {
            }
            _ => {
                let form = "projects/{project}/instances/{instance}";
                return Err(ConfigError::new("instance", instance, form));
            }
        }
        Self::builder(endpoint)
            .config(Config::bigtable())
            .probe(PingAndWarm::new(instance))
            .resume(ReadRows)
            .build()
    }

    /// The steps between [`Pool::new`] and a stack of one's own.
    pub fn builder<E>(endpoint: E) -> PoolBuilder
    where
        E: TryInto<Endpoint>,
        E::Error: Into<BoxError>,
    {
        PoolBuilder::new(endpoint)
    }

    /// Starts the pool if no call has, and resolves once `channels` channels are ready. It waits as long
    /// as it takes: bound it with a time-out. Cancel safe.
    ///
    /// # Errors
    /// When `channels` is more than the pool's maximum, or the pool is closed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn warm(&self, channels: usize) -> Result<(), BoxError> {
        self.balance.warm(channels).await
    }

    /// Closes the pool for all clones: see [`Balance::close`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn close(&self, grace: Duration) -> CloseReport {
        self.balance.close(grace).await
    }

    /// The pool as plain data.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.balance.snapshot()
    }

    /// Follows whether the pool can take requests.
    #[must_use]
    pub fn connectivity(&self) -> tokio::sync::watch::Receiver<Connectivity> {
        self.balance.connectivity()
    }

    /// The penalty layer's handle, to read which channels carry a penalty.
    #[must_use]
    pub fn penalty(&self) -> &PenaltyWindowLayer {
        &self.penalty
    }

    /// The stall layer's handle, to read which channels are silent, and what was decided of late.
    #[must_use]
    pub fn stall(&self) -> &StallDetectLayer {
        &self.stall
    }

    /// The resume layer's handle, to read what was resumed, rule by rule.
    #[must_use]
    pub fn resume(&self) -> &ResumableStreamLayer {
        &self.resume
    }

    /// The retry layer's handle, to read what was sent again, and to share its budget.
    #[must_use]
    pub fn retry(&self) -> &RetryLayer {
        &self.retry
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("balance", &self.balance)
            .finish_non_exhaustive()
    }
}

impl Service<Request<TonicBody>> for Pool {
    type Response = Response<PoolBody>;
    type Error = BoxError;
    type Future = PoolFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::<Request<TonicBody>>::poll_ready(&mut self.stack, cx)
    }

    fn call(&mut self, request: Request<TonicBody>) -> PoolFuture {
        PoolFuture {
            inner: self.stack.call(request),
        }
    }
}

pin_project! {
    /// The future of one call through a [`Pool`]. Dropping it cancels the call.
    pub struct PoolFuture {
        #[pin]
        inner: StackFuture,
    }
}

impl Future for PoolFuture {
    type Output = Result<Response<PoolBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Pending: the stack's future holds the waker.
        let polled = self.project().inner.poll(cx);
        polled.map_ok(|response| response.map(|inner| PoolBody { inner }))
    }
}

pin_project! {
    /// The response body of a [`Pool`]. The call is in flight until it ends or is dropped.
    pub struct PoolBody {
        #[pin]
        inner: Inner,
    }
}

impl Body for PoolBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Pending: the inner body holds the waker.
        self.project().inner.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for PoolBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBody").finish_non_exhaustive()
    }
}

impl fmt::Debug for PoolFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolFuture").finish_non_exhaustive()
    }
}
