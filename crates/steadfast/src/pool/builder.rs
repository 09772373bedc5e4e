//! The steps between an endpoint and a pool.

use std::{fmt, sync::Arc, time::Duration};

use steadfast_balance::{BalanceLayer, Places};
use steadfast_core::{BoxError, ConfigError, Each, Place, Probe};
use steadfast_egress::Egress;
use steadfast_penalty::PenaltyWindowLayer;
use steadfast_resume::{BidiRule, ResumableStreamLayer, Rule};
use steadfast_retry::{DeadlineLayer, Kind, RetryLayer};
use steadfast_stall::{HealthProbe, StallConfig, StallDetectLayer};
use tonic::transport::Endpoint;
use tower_layer::Layer;

use super::{Pool, TonicBody};
use crate::Config;

/// Makes the stall layer, whose probe's type is known only where it was given.
type Stall = Box<dyn FnOnce(StallConfig) -> Result<StallDetectLayer, ConfigError> + Send>;

/// Adds a rule, whose type is known only where it was given.
type Resume =
    Box<dyn FnOnce(ResumableStreamLayer) -> Result<ResumableStreamLayer, ConfigError> + Send>;

type PerPlace = Arc<dyn Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync>;

/// Makes a [`Pool`].
pub struct PoolBuilder {
    endpoint: Result<Endpoint, ConfigError>,
    config: Config,
    env: bool,
    places: Option<Places>,
    per_place: Option<PerPlace>,
    probe: Stall,
    rules: Vec<Resume>,
    idempotent: Vec<(String, Kind)>,
    deadlines: Vec<(String, Duration)>,
}

impl PoolBuilder {
    pub(super) fn new<E>(endpoint: E) -> Self
    where
        E: TryInto<Endpoint>,
        E::Error: Into<BoxError>,
    {
        Self {
            endpoint: Endpoint::new(endpoint).map_err(|error| {
                let cause = steadfast_classify::deepest_cause(&error);
                ConfigError::new("endpoint", cause, "an absolute http or https URI")
            }),
            config: Config::default(),
            env: true,
            places: None,
            per_place: None,
            probe: Box::new(|config| StallDetectLayer::new(config, HealthProbe::new())),
            rules: Vec::new(),
            idempotent: Vec::new(),
            deadlines: Vec::new(),
        }
    }

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

    /// Resumes the streams of a server-streaming method by this rule: they go on on another channel where they
    /// broke. Default: none. A second rule for a method replaces the first.
    #[must_use]
    pub fn resume(mut self, rule: impl Rule) -> Self {
        self.rules.push(Box::new(|layer| layer.rule(rule)));
        self
    }

    /// The same for a bidirectional method, such as a watch. For streams that live for days set
    /// `resume.attempts_per` to [`AttemptsPer::Progress`](crate::AttemptsPer::Progress).
    #[must_use]
    pub fn resume_bidi(mut self, rule: impl BidiRule) -> Self {
        self.rules.push(Box::new(|layer| layer.bidi_rule(rule)));
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
        let mut resume = ResumableStreamLayer::new(config.resume)?;
        for rule in self.rules {
            resume = rule(resume)?;
        }
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
        let stack = deadline.layer(resume.layer(retry.layer(balance.clone())));
        Ok(Pool {
            stack,
            balance,
            penalty,
            stall,
            resume,
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
