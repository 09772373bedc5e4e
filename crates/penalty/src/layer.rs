//! The layer: the handle that all its channels share.

use std::sync::Arc;

use steadfast_core::{ChannelId, ChannelLayer, ConfigError, Meter, Metered, Outcome};
use tower_layer::Layer;

use crate::{Penalised, PenaltyConfig, PenaltyWindow, fleet::Fleet, is_failure};

/// Makes a channel that failed look busier, or holds it in reserve, for a while.
///
/// Its clones are one layer. Every channel that it is put on joins it, and leaves it with the last clone
/// of the channel's service; the rule that at most half of the pool is in reserve is about these
/// channels. Put on a pool's channels with `Each`, it speaks on the channels' meters. As a plain tower
/// layer it gives the service a meter of its own: see [`PenaltyWindow::meter`].
///
/// Building it outside a runtime works. A task runs while a channel is in its window; it is started in
/// the runtime in which the first failure is seen.
#[derive(Clone, Debug)]
pub struct PenaltyWindowLayer {
    fleet: Arc<Fleet>,
}

impl PenaltyWindowLayer {
    /// A layer without channels, that counts what [`is_failure`] says.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn new(config: PenaltyConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            fleet: Fleet::new(config, Box::new(is_failure)),
        })
    }

    /// A new layer with the same settings and no channels yet, that counts the outcomes for which
    /// `failures` is true instead.
    ///
    /// It isn't asked about callers that went away, time-outs of this process, and what a layer of this
    /// process refused or ended: these are never failures of a channel. It is called while an exchange
    /// is polled or dropped, with no lock held, once or twice for each exchange that ended; if it
    /// panics, that exchange fails and no other.
    #[must_use]
    pub fn with_failures(
        &self,
        failures: impl Fn(&Outcome) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            fleet: Fleet::new(self.config().clone(), Box::new(failures)),
        }
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &PenaltyConfig {
        self.fleet.config()
    }

    /// The channels that are in their penalty window now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(ChannelId, Penalised)> {
        self.fleet.penalised()
    }
}

impl Default for PenaltyWindowLayer {
    /// A layer with the default settings.
    fn default() -> Self {
        Self {
            fleet: Fleet::new(PenaltyConfig::default(), Box::new(is_failure)),
        }
    }
}

impl<S> Layer<S> for PenaltyWindowLayer {
    type Service = PenaltyWindow<S>;

    fn layer(&self, service: S) -> Self::Service {
        self.layer_channel(Metered::new(service)).into_service()
    }
}

impl<S> ChannelLayer<S> for PenaltyWindowLayer {
    type Service = PenaltyWindow<S>;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service> {
        let (id, meter): (ChannelId, &Meter) = (channel.id(), channel.meter());
        let enrolment = Arc::new(self.fleet.enrol(id, meter));
        channel.map(|service| PenaltyWindow::new(service, enrolment))
    }
}
