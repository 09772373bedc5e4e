//! The layer: takes a channel factory, gives one service.

use std::sync::Arc;

use steadfast_core::{ConfigError, NewChannel, Probe};
use tower_layer::Layer;

use crate::{
    Balance, BalanceConfig, NoWarmUp, Places, ProbeWarmUp, WarmUp,
    shared::{Factory, Shared},
};

/// Makes one service of the channels that a [`NewChannel`] factory dials.
///
/// It is the seam of a stack: layers above it see requests, layers below it are lifted onto channels
/// with [`Each`](steadfast_core::Each). Building it works outside a runtime: the first call, or
/// [`Balance::warm`], starts it.
#[derive(Clone, Debug)]
pub struct BalanceLayer<W = NoWarmUp> {
    config: BalanceConfig,
    places: Option<Places>,
    warm_up: Arc<W>,
}

impl BalanceLayer {
    /// A pool with these settings.
    ///
    /// # Errors
    /// A setting out of its range: field, value and range.
    pub fn new(config: BalanceConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            places: None,
            warm_up: Arc::new(NoWarmUp),
        })
    }
}

impl Default for BalanceLayer {
    fn default() -> Self {
        Self {
            config: BalanceConfig::default(),
            places: None,
            warm_up: Arc::new(NoWarmUp),
        }
    }
}

impl<W> BalanceLayer<W> {
    /// The servers to dial, instead of those that the factory knows of itself.
    #[must_use]
    pub fn places(mut self, places: Places) -> Self {
        self.places = Some(places);
        self
    }

    /// A new channel joins only when it has answered this probe.
    #[must_use]
    pub fn warm_up<P: Probe>(self, probe: P) -> BalanceLayer<ProbeWarmUp<P>> {
        BalanceLayer {
            config: self.config,
            places: self.places,
            warm_up: Arc::new(ProbeWarmUp(Arc::new(probe))),
        }
    }
}

impl<F, W> Layer<F> for BalanceLayer<W>
where
    F: NewChannel,
    F::Service: Clone + Send + Sync + 'static,
    W: WarmUp<F::Service>,
{
    type Service = Balance<F::Service>;

    fn layer(&self, factory: F) -> Self::Service {
        let places = self.places.clone();
        let places = places.unwrap_or_else(|| Places::list(factory.places()));
        let factory: Factory<F::Service> =
            Box::new(move |id, place| Box::pin(factory.new_channel(id, place)));
        let warm_up: Arc<dyn WarmUp<F::Service>> = Arc::<W>::clone(&self.warm_up);
        Balance {
            shared: Arc::new(Shared::new(self.config.clone(), factory, warm_up, places)),
        }
    }
}
