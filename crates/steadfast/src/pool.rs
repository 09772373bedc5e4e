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
use steadfast_core::{BoxError, ConfigError, Each, ObservedBody, Place};
use steadfast_egress::{Egress, EgressChannel};
use steadfast_penalty::{PenaltyObserver, PenaltyWindow, PenaltyWindowLayer};
use tonic::transport::Endpoint;
use tower_layer::Layer;
use tower_service::Service;

use crate::Config;

type Channel = PenaltyWindow<EgressChannel>;
type TonicBody = tonic::body::Body;
type Inner = ObservedBody<ObservedBody<TonicBody, PenaltyObserver>, BalanceObserver>;

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
    stack: Balance<Channel>,
    penalty: PenaltyWindowLayer,
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
    /// `projects/{project}/instances/{instance}`.
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
        Self::builder(endpoint).config(Config::bigtable()).build()
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
        self.stack.warm(channels).await
    }

    /// Closes the pool for all clones: see [`Balance::close`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn close(&self, grace: Duration) -> CloseReport {
        self.stack.close(grace).await
    }

    /// The pool as plain data.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.stack.snapshot()
    }

    /// Follows whether the pool can take requests.
    #[must_use]
    pub fn connectivity(&self) -> tokio::sync::watch::Receiver<Connectivity> {
        self.stack.connectivity()
    }

    /// The penalty layer's handle, to read which channels carry a penalty.
    #[must_use]
    pub fn penalty(&self) -> &PenaltyWindowLayer {
        &self.penalty
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("stack", &self.stack)
            .finish_non_exhaustive()
    }
}

type PerPlace = Arc<dyn Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync>;

/// Makes a [`Pool`].
pub struct PoolBuilder {
    endpoint: Result<Endpoint, ConfigError>,
    config: Config,
    env: bool,
    places: Option<Places>,
    per_place: Option<PerPlace>,
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

    /// The pool. The environment is read here, once.
    ///
    /// # Errors
    /// A setting out of its range: field or variable, value and range; or an endpoint that can't be
    /// dialled.
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
        let stack = balance.layer(Each(penalty.clone()).layer(egress));
        Ok(Pool { stack, penalty })
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
            .finish_non_exhaustive()
    }
}

impl Service<Request<TonicBody>> for Pool {
    type Response = Response<PoolBody>;
    type Error = BoxError;
    type Future = PoolFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.stack.poll_ready(cx)
    }

    fn call(&mut self, request: Request<TonicBody>) -> PoolFuture {
        PoolFuture {
            inner: self.stack.call(request),
        }
    }
}

pin_project! {
    /// The future of one call through a [`Pool`]. Dropping it cancels the call.
    #[derive(Debug)]
    pub struct PoolFuture {
        #[pin]
        inner: ResponseFuture<Channel, TonicBody>,
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
