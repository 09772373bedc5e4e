//! The settings of a whole stack.

use steadfast_balance::BalanceConfig;
use steadfast_core::ConfigError;
use steadfast_egress::{EgressConfig, Keepalive};
use steadfast_penalty::PenaltyConfig;

/// The settings of all layers of a [`Pool`](crate::Pool), validated together when it is built.
///
/// Write `..Config::default()` behind what you set: layers are added with new features.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Size, dials, ageing and draining.
    pub balance: BalanceConfig,
    /// What a failure costs a channel. Its weight follows `balance.max_requests` unless it is set.
    pub penalty: PenaltyConfig,
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
            penalty: PenaltyConfig::default(),
            egress: EgressConfig::interactive().with_keepalive(Keepalive::google()),
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
        Ok(self)
    }

    /// Whether every setting of every layer is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.clone().joined().map(drop)
    }
}
