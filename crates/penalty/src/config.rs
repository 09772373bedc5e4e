//! The layer's settings.

use std::time::Duration;

use steadfast_core::ConfigError;

/// What a pick sees of a channel in its penalty window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The channel counts as [`PenaltyConfig::weight`] requests busier. It still gets a share when the
    /// others are that much busier.
    Flat,
    /// The channel is used only when no other is open, apart from one request a second that finds out
    /// whether it works again. At most half of the pool, rounded down, is treated so; when more
    /// channels fail, all of them count as in `Flat`, because then the server is to blame and not a
    /// channel.
    #[default]
    Reserve,
}

/// How long and how much a channel that failed is held back.
///
/// It is validated when the layer is built. Write `..PenaltyConfig::default()` behind what you set:
/// fields are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PenaltyConfig {
    /// Whether failures count at all. Default true.
    pub enabled: bool,
    /// The pool's name in metrics and events. Default `default`.
    pub name: String,
    /// What a pick sees. Default [`Mode::Reserve`].
    pub mode: Mode,
    /// How many requests busier a channel counts. Default none: the pool's maximum of requests per
    /// channel, which whoever builds the pool gives with [`PenaltyConfig::following`], and 25 where
    /// nobody does: the maximum that BigTable's clients use. From 1 to 1,000,000.
    pub weight: Option<u32>,
    /// How long after its last failure a channel is held back. Default 5 s: longer than a server's
    /// restart of a task, shorter than a pool's minute. From 1 ms to 1 h.
    pub window: Duration,
    /// How many requests busier each further failure within the window makes the channel. Default 0:
    /// failures don't add up. At most 1,000,000.
    pub step: u32,
    /// The most that a channel's failures add up to, in requests. Default 100, the usual limit of
    /// streams on a connection. Not less than the weight if `step` isn't 0; at most 1,000,000.
    pub cap: u32,
    /// Whether the charge falls in a straight line to 0 over the window, as gRPC-GCP's Java client has
    /// it, instead of ending all at once. Default false.
    pub linear_decay: bool,
    /// Whether a failed request also keeps its place in the count for as long as a request that succeeds
    /// takes in this pool (the median of the last 100), so that to fail fast never looks like being idle.
    /// Default false: reserve, the default mode, needs it only when more than half of the pool fails.
    pub occupancy: bool,
    /// In [`Mode::Reserve`], the time between two requests that a channel in reserve gets on trial.
    /// Default 1 s. From 10 ms to 1 h.
    pub trickle: Duration,
}

/// The weight when neither the user nor the pool says one.
const WEIGHT: u32 = 25;
const MOST: u32 = 1_000_000;

impl Default for PenaltyConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "default".to_owned(),
            mode: Mode::default(),
            weight: None,
            window: Duration::from_secs(5),
            step: 0,
            cap: 100,
            linear_decay: false,
            occupancy: false,
            trickle: Duration::from_secs(1),
        }
    }
}

impl PenaltyConfig {
    /// The same for a pool with this maximum of requests per channel: it is the weight, unless one is
    /// set.
    #[must_use]
    pub fn following(mut self, max_requests: u32) -> Self {
        self.weight.get_or_insert(max_requests);
        self
    }

    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let hour = Duration::from_secs(3600);
        ConfigError::check("penalty.weight", self.base_charge(), 1..=MOST)?;
        ConfigError::check("penalty.step", self.step, 0..=MOST)?;
        let least = if self.step > 0 { self.base_charge() } else { 0 };
        ConfigError::check("penalty.cap", self.cap, least..=MOST)?;
        ConfigError::check(
            "penalty.window",
            self.window,
            Duration::from_millis(1)..=hour,
        )?;
        ConfigError::check(
            "penalty.trickle",
            self.trickle,
            Duration::from_millis(10)..=hour,
        )
    }

    pub(crate) fn base_charge(&self) -> u32 {
        self.weight.unwrap_or(WEIGHT)
    }
}
