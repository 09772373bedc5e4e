//! The layer.

use std::{fmt, sync::Arc, time::Duration};

use steadfast_core::{ConfigError, Methods};
use tower::retry::budget::{Budget, TpsBudget};
use tower_layer::Layer;

use crate::{Kind, Retry, RetryConfig, RetrySnapshot, observe::Stats};

/// A retry budget that several layers can share: tower's.
pub type SharedBudget = Arc<dyn Budget + Send + Sync>;

/// Over how long tower's budget counts: its default. It gathers what it holds in reserve over this time.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// Sends a call again when that is safe.
///
/// What the peer certainly never processed is sent again for every method; anything else only for methods
/// that [`RetryLayer::idempotent`] names. Its clones are one layer: they share the budget and the counts.
#[derive(Clone)]
pub struct RetryLayer {
    config: RetryConfig,
    methods: Methods<Kind>,
    budget: Option<SharedBudget>,
    stats: Arc<Stats>,
}

impl RetryLayer {
    /// A layer that knows no idempotent method yet.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn new(config: RetryConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::made(config))
    }

    fn made(config: RetryConfig) -> Self {
        let budget = config.budget.then(|| {
            let percent = f32::from(u16::try_from(config.budget_percent).unwrap_or(u16::MAX));
            let per_second = config.budget_per_second;
            let budget = TpsBudget::new(BUDGET_WINDOW, per_second, percent / 100.0);
            Arc::new(budget) as SharedBudget
        });
        Self {
            methods: Methods::default(),
            budget,
            stats: Arc::new(Stats::new(&config.name)),
            config,
        }
    }

    /// Names a method that may be repeated after it may have been processed: to do it twice is the same as
    /// to do it once. The name is its path, `/package.Service/Method`.
    ///
    /// # Errors
    /// A name of another form.
    pub fn idempotent(mut self, method: &str, kind: Kind) -> Result<Self, ConfigError> {
        self.methods.set("retry.idempotent", method, kind)?;
        Ok(self)
    }

    /// Draws on this budget instead of one of its own: to share it with another layer. It replaces what the
    /// settings say of the budget.
    #[must_use]
    pub fn with_budget(mut self, budget: SharedBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The budget, to share it. None if there is none.
    #[must_use]
    pub fn budget(&self) -> Option<SharedBudget> {
        self.budget.clone()
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &RetryConfig {
        &self.config
    }

    /// What was sent again so far.
    #[must_use]
    pub fn snapshot(&self) -> RetrySnapshot {
        self.stats.snapshot()
    }
}

impl Default for RetryLayer {
    /// A layer with the default settings, that knows no idempotent method.
    fn default() -> Self {
        Self::made(RetryConfig::default())
    }
}

impl fmt::Debug for RetryLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("config", &self.config)
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry {
            inner,
            shared: Arc::new(Shared {
                config: self.config.clone(),
                methods: self.methods.clone(),
                budget: self.budget.clone(),
                stats: Arc::clone(&self.stats),
            }),
        }
    }
}

/// What the calls of one service share.
pub(crate) struct Shared {
    pub(crate) config: RetryConfig,
    pub(crate) methods: Methods<Kind>,
    pub(crate) budget: Option<SharedBudget>,
    pub(crate) stats: Arc<Stats>,
}
