//! The layer: the handle that all its channels share.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use steadfast_classify::{ProbeLimits, ask};
use steadfast_core::{
    Bottom, BottomLayer, BoxError, ChannelId, ChannelLayer, ConfigError, Metered, Place, Prepared,
    Probe, WarmUp,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    Condition, HealthProbe, Ring, StallConfig, StallDetect,
    channel::{Channel, Enrolment},
    fleet::Fleet,
};

/// Finds channels that have fallen silent, and takes them out of service.
///
/// Its clones are one layer. Every channel that it is put on joins it, and leaves it with the last clone
/// of the channel's service; the rules about other channels and about half of the pool are about these.
/// Put on a pool's channels with `Each`, it speaks on the channels' meters, and its probe warms new
/// channels, unless the pool has one of its own. As a plain tower layer it puts a
/// [`Bottom`] beneath itself and judges the service as [`StallConfig`] says.
///
/// `B` is the type of the request's body. Building it outside a runtime works: a task is started in the
/// runtime in which a caller first waits, and probes are sent from there.
pub struct StallDetectLayer<B = tonic::body::Body> {
    fleet: Arc<Fleet>,
    probe: AnyProbe<B>,
}

/// A channel of a [`StallDetectLayer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelState {
    /// The channel.
    pub id: ChannelId,
    /// Where it leads.
    pub place: Place,
    /// How it stands.
    pub condition: Condition,
    /// How many callers wait on it now.
    pub waiting: usize,
    /// How many of its quarantines began within [`StallConfig::strike_window`].
    pub quarantines: usize,
}

impl<B: Send + 'static> StallDetectLayer<B> {
    /// A layer without channels, that asks with `probe`.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn new(config: StallConfig, probe: impl Probe<Body = B>) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            fleet: Fleet::new(config),
            probe: AnyProbe(Arc::new(probe)),
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &StallConfig {
        self.fleet.config()
    }

    /// The channels, oldest first.
    #[must_use]
    pub fn snapshot(&self) -> Vec<ChannelState> {
        self.fleet.snapshot()
    }

    /// What was seen and decided of late.
    #[must_use]
    pub fn ring(&self) -> Ring {
        self.fleet.ring()
    }

    fn put_on<S, R>(&self, channel: Metered<S>) -> Metered<StallDetect<S>>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        R: Body<Data = Bytes> + Send,
        R::Error: Into<BoxError>,
    {
        let config = self.config();
        if !config.enabled {
            return channel.map(|service| StallDetect::new(service, None));
        }
        let (place, prepare) = (channel.place().clone(), config.prepare);
        let (probe, service) = (self.probe.clone(), channel.service().clone());
        let prober: WarmUp = Arc::new(move |answer| {
            let (probe, service) = (probe.clone(), service.clone());
            let (place, limits) = (place.clone(), ProbeLimits { prepare, answer });
            Box::pin(async move { ask(service, &probe, &place, limits).await })
        });
        let id = Some(channel.id()).filter(|id| !self.fleet.knows(*id));
        let enrolled = Arc::new(Channel::new(
            // A channel that has the layer twice is two channels to it.
            id.unwrap_or_else(ChannelId::next),
            channel.place().clone(),
            channel.meter().owner(),
            Arc::clone(&prober),
            &self.fleet,
        ));
        self.fleet.enrol(&enrolled);
        let channel = if config.probes {
            channel.with_warm_up(prober)
        } else {
            channel
        };
        let enrolment = Some(Arc::new(Enrolment(enrolled)));
        channel.map(|service| StallDetect::new(service, enrolment))
    }
}

impl Default for StallDetectLayer {
    /// A layer with the default settings, that asks with [`HealthProbe`].
    fn default() -> Self {
        Self {
            fleet: Fleet::new(StallConfig::default()),
            probe: AnyProbe(Arc::new(HealthProbe::new())),
        }
    }
}

impl<B> Clone for StallDetectLayer<B> {
    /// The same layer. By hand, because a derived one would ask for bodies that can be cloned.
    fn clone(&self) -> Self {
        Self {
            fleet: Arc::clone(&self.fleet),
            probe: self.probe.clone(),
        }
    }
}

impl<B> fmt::Debug for StallDetectLayer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StallDetectLayer")
            .field(&self.fleet)
            .finish()
    }
}

impl<S, B, R> Layer<S> for StallDetectLayer<B>
where
    B: Send + 'static,
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<BoxError>,
{
    type Service = StallDetect<Bottom<S>>;

    fn layer(&self, service: S) -> Self::Service {
        let bottom = BottomLayer.layer(service);
        self.put_on(Metered::new(bottom)).into_service()
    }
}

impl<S, B, R> ChannelLayer<S> for StallDetectLayer<B>
where
    B: Send + 'static,
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<BoxError>,
{
    type Service = StallDetect<S>;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service> {
        self.put_on(channel)
    }
}

/// Any probe with this body.
struct AnyProbe<B>(Arc<dyn Probe<Body = B>>);

impl<B> Clone for AnyProbe<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Send + 'static> Probe for AnyProbe<B> {
    type Body = B;

    fn prepare(&self, place: &Place) -> Prepared<B> {
        self.0.prepare(place)
    }
}
