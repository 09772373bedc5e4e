//! A whole stack behind one name.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use steadfast_balance::{
    Balance, BalanceLayer, BalanceObserver, CloseReport, Connectivity, Places, ResponseFuture,
    Snapshot,
};
use steadfast_core::{BoxError, ConfigError, Each, ObservedBody, Place, Probe};
use steadfast_egress::{Egress, EgressChannel};
use steadfast_penalty::{PenaltyObserver, PenaltyWindow, PenaltyWindowLayer};
use steadfast_retry::{
    DeadlineBody, DeadlineFuture, DeadlineLayer, Deadlined, Kind, ResponseFuture as RetryFuture,
    Retry, RetryBody, RetryLayer,
};
use steadfast_stall::{HealthProbe, StallConfig, StallDetect, StallDetectLayer, StallObserver};
use tonic::transport::Endpoint;
use tower_layer::Layer;
use tower_service::Service;

use crate::{Config, ping_and_warm::ping_and_warm};

type Channel = StallDetect<PenaltyWindow<EgressChannel>>;
type TonicBody = tonic::body::Body;
type ChannelBody = ObservedBody<ObservedBody<TonicBody, PenaltyObserver>, StallObserver>;
type BalanceBody = ObservedBody<ChannelBody, BalanceObserver>;
type Inner = DeadlineBody<RetryBody<BalanceBody>>;
type BalanceFuture = ResponseFuture<Channel, TonicBody>;
type StackFuture = DeadlineFuture<RetryFuture<Balance<Channel>, BalanceFuture, BalanceBody>>;

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
    stack: Deadlined<Retry<Balance<Channel>>>,
    balance: Balance<Channel>,
    penalty: PenaltyWindowLayer,
    stall: StallDetectLayer,
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
    /// `projects/{project}/instances/{instance}`: its PingAndWarm warms new channels and asks silent ones.
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
            .probe(ping_and_warm(instance))
            .build()
    }

    /// The steps between [`Pool::new`] and a stack of one's own.
    pub fn builder<E>(endpoint: E) -> PoolBuilder
    where
        E: TryInto<Endpoint>,
        E::Error: Into<BoxError>,
    {
        PoolBuilder {
            endpoint: Endpoint::new(endpoint).map_err(|error| {
                let cause = steadfast_classify::deepest_cause(&error);
                ConfigError::new("endpoint", cause, "an absolute http or https URI")
            }),
            config: Config::default(),
            env: true,
            places: None,
            per_place: None,
            probe: Box::new(|config| StallDetectLayer::new(config, HealthProbe::new())),
            idempotent: Vec::new(),
            deadlines: Vec::new(),
        }
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

/// Makes the stall layer, whose probe's type is known only where it was given.
type Stall = Box<dyn FnOnce(StallConfig) -> Result<StallDetectLayer, ConfigError> + Send>;

type PerPlace = Arc<dyn Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync>;

/// Makes a [`Pool`].
pub struct PoolBuilder {
    endpoint: Result<Endpoint, ConfigError>,
    config: Config,
    env: bool,
    places: Option<Places>,
    per_place: Option<PerPlace>,
    probe: Stall,
    idempotent: Vec<(String, Kind)>,
    deadlines: Vec<(String, Duration)>,
}

impl PoolBuilder {
    /// The settings of all layers. Default [`Config::default`]. What the environment says comes on top
    /// when the pool is built: [`Config::with_env`].
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Leaves the environment out: the settings are those of [`PoolBuilder::config`]. For pools that
    /// operators shouldn't change, and for tests.
    #[must_use]
    pub fn without_env(mut self) -> Self {
        self.env = false;
        self
    }

    /// Several servers, each a URI, that serve the same: a list, or one that changes. Each has at least
    /// one channel. Default: the endpoint alone.
    ///
    /// A place that has the endpoint's URI is dialled with the endpoint; any other one with
    /// `Endpoint::from_shared`, unless [`PoolBuilder::endpoint_for`] says how.
    #[must_use]
    pub fn places(mut self, places: Places) -> Self {
        self.places = Some(places);
        self
    }

    /// How the endpoint of a place is made: TLS, user agent, an address for a name. It is asked at each
    /// dial, so that certificates may rotate, and must not block.
    #[must_use]
    pub fn endpoint_for<F>(mut self, endpoint: F) -> Self
    where
        F: Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync + 'static,
    {
        self.per_place = Some(Arc::new(endpoint));
        self
    }

    /// The request that shows whether a channel answers: it warms new channels, and asks those that fell
    /// silent. Default: `grpc.health.v1.Health/Check`, to which any answer will do. It carries no
    /// credentials unless it brings them.
    #[must_use]
    pub fn probe(mut self, probe: impl Probe<Body = TonicBody>) -> Self {
        self.probe = Box::new(|config| StallDetectLayer::new(config, probe));
        self
    }

    /// Methods that may be repeated after a failure that leaves open whether the server did what it was
    /// asked to, by path, `/package.Service/Method`, and how each is repeated. Default: none. What a
    /// server certainly never processed is sent again for every method.
    #[must_use]
    pub fn retry<M: Into<String>>(mut self, methods: impl IntoIterator<Item = (M, Kind)>) -> Self {
        let methods = methods
            .into_iter()
            .map(|(method, kind)| (method.into(), kind));
        self.idempotent.extend(methods);
        self
    }

    /// The deadline of a method's calls whose callers set none, from 1 ms to a year; it goes before
    /// `deadline.default`. It bounds all of a call, its body included.
    #[must_use]
    pub fn deadline(mut self, method: impl Into<String>, deadline: Duration) -> Self {
        self.deadlines.push((method.into(), deadline));
        self
    }

    /// The pool. The environment is read here, once.
    ///
    /// # Errors
    /// A setting out of its range: field or variable, value and range; an endpoint that can't be dialled;
    /// or a method whose name is no path.
    pub fn build(self) -> Result<Pool, ConfigError> {
        let config = if self.env {
            self.config.with_env()?
        } else {
            self.config
        };
        let config = config.joined()?;
        let endpoint = self.endpoint?;
        let own = Egress::new(endpoint.clone(), config.egress.clone())?;
        let egress = match (self.per_place, &self.places) {
            (None, None) => own,
            (per_place, _) => {
                let place = steadfast_core::NewChannel::places(&own);
                let per_place = per_place.unwrap_or_else(|| by_uri(place.clone(), endpoint));
                Egress::per_place(config.egress, move |place| per_place(place))?.with_places(place)
            }
        };
        let penalty = PenaltyWindowLayer::new(config.penalty)?;
        let mut balance = BalanceLayer::new(config.balance)?;
        if let Some(places) = self.places {
            balance = balance.places(places);
        }
        let stall = (self.probe)(config.stall)?;
        let mut retry = RetryLayer::new(config.retry)?;
        for (method, kind) in &self.idempotent {
            retry = retry.idempotent(method, *kind)?;
        }
        let mut deadline = DeadlineLayer::new(config.deadline)?;
        for (method, time) in &self.deadlines {
            deadline = deadline.method(method, *time)?;
        }
        let channels = Each(stall.clone()).layer(Each(penalty.clone()).layer(egress));
        let balance = balance.layer(channels);
        let stack = deadline.layer(retry.layer(balance.clone()));
        Ok(Pool {
            stack,
            balance,
            penalty,
            stall,
            retry,
        })
    }
}

fn by_uri(own: Vec<Place>, endpoint: Endpoint) -> PerPlace {
    Arc::new(move |place| {
        if own.contains(place) {
            return Ok(endpoint.clone());
        }
        Ok(Endpoint::from_shared(place.to_string())?)
    })
}

impl fmt::Debug for PoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("endpoint", &self.endpoint)
            .field("config", &self.config)
            .field("env", &self.env)
            .field("places", &self.places)
            .field("idempotent", &self.idempotent)
            .field("deadlines", &self.deadlines)
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
