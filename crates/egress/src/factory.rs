//! The factory: which endpoint a place has, and what all its dials share.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Uri;
use steadfast_classify::deepest_cause;
use steadfast_core::{BoxError, ChannelId, ConfigError, Metered, NewChannel, Place};
use tonic::transport::Endpoint;

use crate::{
    calm::Calm,
    config::EgressConfig,
    dial::{Dialling, refused},
    error::{DialError, DialStage, name},
    observe,
    service::EgressChannel,
};

type PerPlace = dyn Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync;

/// Makes channels: one dial, one connection, one tonic `Channel` that never dials again.
///
/// A dial has one budget ([`EgressConfig::connect_budget`]) for all of it, and succeeds when the peer's
/// first answer came: on plaintext its SETTINGS; with TLS the end of the handshake, because tonic keeps
/// the stream inside TLS to itself. Its future may be dropped at any time: the dial is given up and its
/// socket closed.
///
/// A channel whose connection ended, failed, was told to go away (on plaintext; with TLS this is seen
/// only when the next request finds out) or takes no more requests is condemned on its meter. A server
/// that ended a connection with GOAWAY ENHANCE_YOUR_CALM gets a keepalive half as often on the next ones
/// to the same place, down to one in an hour, for the life of the factory.
///
/// Building one works outside a runtime. Clones share what places asked for.
#[derive(Clone)]
pub struct Egress(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    config: EgressConfig,
    endpoints: Arc<PerPlace>,
    places: Vec<Place>,
    calm: Arc<Mutex<Calm>>,
}

impl Egress {
    /// A factory for one endpoint: an [`Endpoint`] or a URI. Its one place has the URI's name.
    ///
    /// An https URI without a TLS configuration gets tonic's, with the roots that tonic was built with.
    ///
    /// # Errors
    /// A setting out of its range, or (as the field `egress.endpoint`) an endpoint that can't be dialled:
    /// no absolute http or https URI, a unix socket, or https while tonic is built without TLS.
    pub fn new<D>(endpoint: D, config: EgressConfig) -> Result<Self, ConfigError>
    where
        D: TryInto<Endpoint>,
        D::Error: Into<BoxError>,
    {
        const FIELD: &str = "egress.endpoint";
        let endpoint = Endpoint::new(endpoint).map_err(|error| {
            ConfigError::new(
                FIELD,
                deepest_cause(&error),
                "an absolute http or https URI",
            )
        })?;
        if let Some(range) = refused(&endpoint) {
            return Err(ConfigError::new(FIELD, endpoint.uri(), range));
        }
        let own = Place::new(name(endpoint.uri()));
        let places = vec![own.clone()];
        let endpoints = move |place: &Place| {
            if *place == own || *place == Place::default() {
                Ok(endpoint.clone())
            } else {
                Err(format!("this factory's only place is {own}").into())
            }
        };
        Self::build(Arc::new(endpoints), places, config)
    }

    /// A factory that asks for the endpoint of a place at each dial, so that addresses, credentials and
    /// certificates may change. The closure must not block; its error is the dial's.
    ///
    /// Its places are [`Place::default`] alone, until they are set by [`Egress::with_places`] or given to
    /// the pool.
    ///
    /// # Errors
    /// A setting out of its range.
    pub fn per_place<F>(config: EgressConfig, endpoint: F) -> Result<Self, ConfigError>
    where
        F: Fn(&Place) -> Result<Endpoint, BoxError> + Send + Sync + 'static,
    {
        Self::build(Arc::new(endpoint), vec![Place::default()], config)
    }

    fn build(
        endpoints: Arc<PerPlace>,
        places: Vec<Place>,
        config: EgressConfig,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        observe::describe();
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(Self(Arc::new(Shared {
            config,
            endpoints,
            places,
            calm: Arc::default(),
        })))
    }

    /// The same with these places, which a pool dials when it is given no others. A factory for one
    /// endpoint dials no other place.
    #[must_use]
    pub fn with_places<P>(mut self, places: impl IntoIterator<Item = P>) -> Self
    where
        P: Into<Place>,
    {
        Arc::make_mut(&mut self.0).places = places.into_iter().map(Into::into).collect();
        self
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &EgressConfig {
        &self.0.config
    }

    /// The keepalive interval that the next connection to `place` gets: the configured one, or a longer
    /// one that its server asked for. None if keepalive is off.
    #[must_use]
    pub fn keepalive_interval(&self, place: &Place) -> Option<Duration> {
        let configured = self.0.config.keepalive?.interval;
        let calm = self.0.calm.lock().unwrap_or_else(PoisonError::into_inner);
        Some(calm.interval(place, configured))
    }

    async fn dial(self, id: ChannelId, place: Place) -> Result<Metered<EgressChannel>, BoxError> {
        let endpoint = self.0.endpoint(&place)?;
        let keepalive = self.keepalive_interval(&place);
        let dialling = Dialling {
            id,
            place,
            endpoint: self.0.config.apply(endpoint, keepalive),
            keepalive,
            budget: self.0.config.connect_budget,
            calm: Arc::clone(&self.0.calm),
        };
        Ok(dialling.run().await?)
    }
}

impl Shared {
    fn endpoint(&self, place: &Place) -> Result<Endpoint, BoxError> {
        let fail = |uri: Uri, what: &str, cause| DialError {
            place: place.clone(),
            uri,
            addresses: Vec::new(),
            stage: DialStage::Endpoint,
            budget: self.config.connect_budget,
            what: what.to_owned(),
            cause,
        };
        let endpoint = (self.endpoints)(place)
            .map_err(|error| fail(Uri::default(), "no endpoint for this place", Some(error)))?;
        let uri = endpoint.uri().clone();
        // Gives an https URI tonic's TLS, if it has none.
        match Endpoint::new(endpoint) {
            Err(error) => Err(fail(uri, "no TLS for this endpoint", Some(error.into())).into()),
            Ok(endpoint) => match refused(&endpoint) {
                Some(range) => {
                    let what = format!("{uri} can't be dialled; allowed is {range}");
                    Err(fail(uri, &what, None).into())
                }
                None => Ok(endpoint),
            },
        }
    }
}

impl NewChannel for Egress {
    type Service = EgressChannel;
    type Future = Pin<Box<dyn Future<Output = Result<Metered<EgressChannel>, BoxError>> + Send>>;

    /// Dials `place`. Fails with a [`DialError`] within the budget.
    fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future {
        Box::pin(self.clone().dial(id, place.clone()))
    }

    fn places(&self) -> Vec<Place> {
        self.0.places.clone()
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("config", &self.0.config)
            .field("places", &self.0.places)
            .finish_non_exhaustive()
    }
}
