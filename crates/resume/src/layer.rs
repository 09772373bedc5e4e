//! The layer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use steadfast_core::{ConfigError, Methods, Outcome};
use tower::retry::budget::{Budget, TpsBudget};
use tower_layer::Layer;

use crate::{
    BidiRule, ResumableStream, ResumeConfig, ResumeSnapshot, Rule, RuleSnapshot,
    observe::{Counts, describe},
};

/// A retry budget that several layers can share: tower's.
pub type SharedBudget = Arc<dyn Budget + Send + Sync>;

/// Over how long tower's budget counts: its default. It gathers what it holds in reserve over this time.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);

/// Carries the streams of the methods that have a rule on where they broke.
///
/// Any other method passes through untouched. Its clones are one layer: they share the budget and the counts.
#[derive(Clone)]
pub struct ResumableStreamLayer {
    config: ResumeConfig,
    methods: Methods<Ruled>,
    budget: Option<SharedBudget>,
    pool: Arc<PoolBelow>,
}

/// A method's rule, and what is counted of its calls.
#[derive(Clone)]
pub(crate) struct Ruled {
    pub(crate) kind: Kind,
    pub(crate) counts: Arc<Counts>,
}

#[derive(Clone)]
pub(crate) enum Kind {
    Server(Arc<dyn Rule>),
    Bidi(Arc<dyn BidiRule>),
}

impl ResumableStreamLayer {
    /// A layer without a rule yet. What [`ResumeConfig::warnings`] says of the settings is logged.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn new(config: ResumeConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        for warning in config.warnings() {
            tracing::warn!(pool = config.name, "{warning}");
        }
        Ok(Self::made(config))
    }

    fn made(config: ResumeConfig) -> Self {
        describe();
        let budget = config.budget.then(|| {
            let percent = f32::from(u16::try_from(config.budget_percent).unwrap_or(u16::MAX));
            let per_second = config.budget_per_second;
            let budget = TpsBudget::new(BUDGET_WINDOW, per_second, percent / 100.0);
            Arc::new(budget) as SharedBudget
        });
        Self {
            methods: Methods::default(),
            budget,
            pool: Arc::default(),
            config,
        }
    }

    /// Resumes the streams of a server-streaming method by this rule. A second rule for a method replaces the
    /// first.
    ///
    /// # Errors
    /// The rule's method isn't `/package.Service/Method`.
    pub fn rule(self, rule: impl Rule) -> Result<Self, ConfigError> {
        let method = rule.method().to_owned();
        self.with(&method, Kind::Server(Arc::new(rule)))
    }

    /// Resumes the streams of a bidirectional method by this rule. A second rule for a method replaces the
    /// first.
    ///
    /// # Errors
    /// The rule's method isn't `/package.Service/Method`.
    pub fn bidi_rule(self, rule: impl BidiRule) -> Result<Self, ConfigError> {
        let method = rule.method().to_owned();
        self.with(&method, Kind::Bidi(Arc::new(rule)))
    }

    fn with(mut self, method: &str, kind: Kind) -> Result<Self, ConfigError> {
        let counts = Arc::new(Counts::new(&self.config.name));
        self.methods
            .set("resume.rule", method, Ruled { kind, counts })?;
        Ok(self)
    }

    /// Draws on this budget instead of one of its own: to share it with another layer, as `RetryLayer`. It
    /// replaces what the settings say of the budget.
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
    pub fn config(&self) -> &ResumeConfig {
        &self.config
    }

    /// What was resumed so far, rule by rule.
    #[must_use]
    pub fn snapshot(&self) -> ResumeSnapshot {
        let rule = |(method, ruled): (&str, &Ruled)| RuleSnapshot {
            method: method.to_owned(),
            ..ruled.counts.snapshot()
        };
        ResumeSnapshot {
            rules: self.methods.iter().map(rule).collect(),
        }
    }
}

impl Default for ResumableStreamLayer {
    /// A layer with the default settings and no rule.
    fn default() -> Self {
        Self::made(ResumeConfig::default())
    }
}

impl fmt::Debug for ResumableStreamLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<_> = self.methods.iter().map(|(method, _)| method).collect();
        f.debug_struct("ResumableStreamLayer")
            .field("config", &self.config)
            .field("methods", &methods)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ResumableStreamLayer {
    type Service = ResumableStream<S>;

    fn layer(&self, inner: S) -> ResumableStream<S> {
        ResumableStream {
            inner,
            shared: Arc::new(Shared {
                config: self.config.clone(),
                methods: self.methods.clone(),
                budget: self.budget.clone(),
                pool: Arc::clone(&self.pool),
            }),
        }
    }
}

/// What the calls of one service share.
pub(crate) struct Shared {
    pub(crate) config: ResumeConfig,
    methods: Methods<Ruled>,
    pub(crate) budget: Option<SharedBudget>,
    pub(crate) pool: Arc<PoolBelow>,
}

impl Shared {
    /// The rule of a method, if its streams are resumed.
    pub(crate) fn rule(&self, path: &str) -> Option<&Ruled> {
        self.methods.get(path).filter(|_| self.config.enabled)
    }
}

/// Whether a pool is below, as far as it showed.
#[derive(Debug, Default)]
pub(crate) struct PoolBelow {
    seen: AtomicBool,
    warned: AtomicBool,
}

impl PoolBelow {
    /// A channel was filled in.
    pub(crate) fn saw(&self) {
        if !self.is_seen() {
            self.seen.store(true, Relaxed);
        }
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.seen.load(Relaxed)
    }

    /// A stream goes on after this. Warns once if no pool was ever seen, unless the attempt never got so far
    /// that it could be.
    pub(crate) fn resumes(&self, name: &str, outcome: Outcome) {
        let early = matches!(outcome, Outcome::DialFailed | Outcome::Local(_));
        if early || self.is_seen() || self.warned.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            pool = name,
            "a stream is resumed, and nothing below said which channel it was on: without Balance below \
             ResumableStream, the next attempt may go to the channel that failed"
        );
    }
}
