//! The settings of a whole stack.

mod access;
mod env;
#[cfg(feature = "serde")]
mod file;
mod names;
mod settings;
mod value;

use steadfast_balance::BalanceConfig;
use steadfast_core::ConfigError;
use steadfast_egress::{EgressConfig, Keepalive};
use steadfast_penalty::PenaltyConfig;
use steadfast_resume::ResumeConfig;
use steadfast_retry::{DeadlineConfig, DeadlineLayer, RetryConfig};
use steadfast_stall::StallConfig;

/// The settings of all layers of a [`Pool`](crate::Pool), validated together when it is built.
///
/// Write `..Config::default()` behind what you set: layers are added with new features.
///
/// # Where settings come from
/// From code, from a file, and from the environment, which is read when the pool is built and has the last
/// word: see [`Config::with_env`]. All three have the same names, `balance.max` in a file being
/// `STEADFAST_BALANCE_MAX` in the environment, and the same rules:
///
/// - What isn't given has its default, or the preset's.
/// - A time has its unit, such as `5s` or `1h 30m`.
/// - `none` switches off what can be off: `balance.max_age`, `egress.keepalive`.
/// - A name that isn't known is an error that names the nearest one; one that was retired is ignored, and
///   warned of once with what replaced it.
///
/// Some settings of the layers have no name here, because they follow another: `penalty.name`, `stall.name`,
/// `resume.name` and `retry.name` are `balance.name`, `egress.connect_budget` is `balance.connect_budget`, and
/// `stall.resets` follows `egress.reset_streams`. `stall.alone` is for a channel without a pool.
///
/// # What can be switched off
/// `penalty.enabled = false` takes the penalty away: no failure leaves a trace. `stall.enabled = false` takes
/// stall detection away, and with it the probe that warms new channels. `resume.enabled = false`: no stream
/// goes on, rule or not. `retry.enabled = false`: nothing is sent again. `balance` can't be off, since it is what makes one service of many channels; [`BalanceConfig::fixed`] takes the sizing away.
/// `egress` is no layer: it makes the connections.
///
/// # Files
/// With the feature `serde` a `Config` can be read from and written to any format that describes itself:
/// TOML, JSON, YAML. `docs/steadfast.example.toml` has every setting, with its default, range and reason.
#[cfg_attr(feature = "serde", doc = "```")]
#[cfg_attr(not(feature = "serde"), doc = "```text")]
/// let config: steadfast::Config = toml::from_str(
///     r#"
///     preset = "bigtable" # what isn't set below is as in Config::bigtable()
///
///     [balance]
///     max = 100
///     max_age = "none"
///
///     [egress.keepalive]
///     interval = "1m"
///     "#,
/// )?;
/// assert_eq!((config.balance.initial, config.balance.max), (10, 100));
/// assert_eq!(config.balance.max_age, None);
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Size, dials, ageing and draining.
    pub balance: BalanceConfig,
    /// What a failure costs a channel. Its weight follows `balance.max_requests` unless it is set.
    pub penalty: PenaltyConfig,
    /// When a channel is silent, and what follows.
    pub stall: StallConfig,
    /// When a stream goes on elsewhere, if its method has a rule.
    pub resume: ResumeConfig,
    /// What is sent again.
    pub retry: RetryConfig,
    /// Deadlines for callers that set none.
    pub deadline: DeadlineConfig,
    /// Windows, keepalive and the other knobs of a connection. Its connect budget follows
    /// `balance.connect_budget`, since a dial has one budget.
    pub egress: EgressConfig,
}

impl Config {
    /// The preset for BigTable: 10 channels at first, refreshed after 45 minutes, keepalive every 30 s,
    /// windows for many readers.
    #[must_use]
    pub fn bigtable() -> Self {
        Self {
            balance: BalanceConfig::bigtable().named("bigtable"),
            egress: EgressConfig::interactive().with_keepalive(Keepalive::google()),
            ..Self::default()
        }
    }

    /// The same with what one layer takes from another filled in.
    pub(crate) fn joined(mut self) -> Result<Self, ConfigError> {
        self.balance.validate()?;
        self.egress.connect_budget = self.balance.connect_budget;
        self.penalty = self.penalty.following(self.balance.max_requests);
        self.penalty.name.clone_from(&self.balance.name);
        self.penalty.validate()?;
        self.egress.validate()?;
        self.stall.name.clone_from(&self.balance.name);
        self.stall.resets = self.bearable_resets();
        self.stall.alone = false;
        self.stall.validate()?;
        self.resume.name.clone_from(&self.balance.name);
        self.resume.validate()?;
        self.retry.name.clone_from(&self.balance.name);
        self.retry.validate()?;
        DeadlineLayer::new(self.deadline.clone())?;
        Ok(self)
    }

    /// How many streams may be dropped on a connection at once: as many as it remembers, and in any case what
    /// stock h2 puts up with in addition.
    fn bearable_resets(&self) -> Option<usize> {
        let stock = StallConfig::default().resets.unwrap_or_default();
        Some(self.egress.reset_streams.max(stock))
    }

    /// Whether every setting of every layer is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.clone().joined().map(drop)
    }
}
