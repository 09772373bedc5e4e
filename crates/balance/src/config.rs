//! The pool's settings.

use std::time::Duration;

use steadfast_core::ConfigError;

/// Which channel gets a request, among those of the best class: open with a free stream, then in reserve,
/// then avoided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// The one with the fewest requests in flight and charged, of all. Ties go round.
    #[default]
    LeastLoaded,
    /// The less loaded one of two that are drawn at random, never the same twice.
    PowerOfTwo,
    /// One after another, whatever they carry.
    RoundRobin,
}
/// The longest time that may be set: a clock can't hold every sum of longer ones, and nobody waits so long.
/// 365.25 days, as the crate humantime reads `1y`.
const YEAR: Duration = Duration::from_secs(31_557_600);

/// How a pool sizes, dials, ages and drains its channels.
///
/// [`BalanceConfig::default`] suits most services; [`BalanceConfig::bigtable`] is tuned to BigTable
/// reads. It is validated when the layer is built. Write `..BalanceConfig::default()` behind what you
/// set: fields are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceConfig {
    /// The pool's name in metrics, spans and errors. Default `default`.
    pub name: String,
    /// Channels dialled at the start. Default 4, `bigtable` 10; from `min` to `max`.
    pub initial: usize,
    /// Never fewer channels. Default 4; at least 1.
    pub min: usize,
    /// Never more channels, but one for each place. Default 64, `bigtable` 200; from `min` to 10,000.
    pub max: usize,
    /// Requests in flight per channel below which the pool shrinks. Default 1; from 1 to
    /// `max_requests`.
    pub min_requests: u32,
    /// Requests in flight per channel above which the pool grows. Default 25, as BigTable's Java and
    /// Go clients; at least `min_requests`.
    pub max_requests: u32,
    /// Which of the channels that may be picked gets a request. Default
    /// [`Strategy::LeastLoaded`].
    pub strategy: Strategy,
    /// Grows at once when a request goes to a channel that has `max_requests` already, by 30 % and at
    /// least 2, at most once in 10 s, instead of waiting for the next look. Default true, `bigtable`
    /// false. The figures are Spanner's Go client's.
    pub grow_on_demand: bool,
    /// Streams that a server is taken to allow on a connection while the transport doesn't know its
    /// SETTINGS_MAX_CONCURRENT_STREAMS. Default 100, the least that RFC 9113 recommends (section 6.5.2)
    /// and most servers' setting; from 1 to 65,534. A channel takes one request less, so that a probe
    /// finds a free stream.
    pub assumed_streams: u32,
    /// How often the size is looked at. Default 60 s; from 1 s to a year.
    pub resize_interval: Duration,
    /// Channels added or removed at most at one look. Default 2; at least 1.
    pub resize_step: usize,
    /// The age at which a channel is replaced by a new one. Default none, `bigtable` 45 min (BigTable
    /// ends connections after an hour); from 1 s to a year.
    pub max_age: Option<Duration>,
    /// A random time up to this is added to each channel's age, so that clients which started together
    /// don't refresh together. Default 5 min; at most a year.
    pub age_jitter: Duration,
    /// Channels replaced at most per `resize_interval` because of their age. Default 2; at least 1.
    pub refresh_step: usize,
    /// How long a removed channel may live on for its open responses. Default 30 min. What is open
    /// then is ended with an error that is marked as local. At most a year.
    pub drain_limit: Duration,
    /// One budget for a dial: name, TCP, TLS, HTTP/2 preface and first answer. Also the longest that a
    /// call waits for a first channel. Default 10 s; from 1 ms to 10 min.
    pub connect_budget: Duration,
    /// Waits this long for a channel instead of failing at once when all dials fail or all channels
    /// are in quarantine. Default none: fail at once, as gRPC does without wait-for-ready. At most a year.
    pub wait_for_ready: Option<Duration>,
}

impl Default for BalanceConfig {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            initial: 4,
            min: 4,
            max: 64,
            min_requests: 1,
            max_requests: 25,
            strategy: Strategy::LeastLoaded,
            grow_on_demand: true,
            assumed_streams: 100,
            resize_interval: Duration::from_secs(60),
            resize_step: 2,
            max_age: None,
            age_jitter: Duration::from_secs(5 * 60),
            refresh_step: 2,
            drain_limit: Duration::from_secs(30 * 60),
            connect_budget: Duration::from_secs(10),
            wait_for_ready: None,
        }
    }
}

impl BalanceConfig {
    /// The preset for BigTable reads: 10 channels at first, 4 to 200, refreshed after 45 minutes.
    #[must_use]
    pub fn bigtable() -> Self {
        Self {
            initial: 10,
            max: 200,
            grow_on_demand: false,
            max_age: Some(Duration::from_secs(45 * 60)),
            ..Self::default()
        }
    }

    /// A pool of exactly `channels` channels that never changes its size.
    #[must_use]
    pub fn fixed(channels: usize) -> Self {
        Self {
            initial: channels,
            min: channels,
            max: channels,
            ..Self::default()
        }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let second = Duration::from_secs(1);
        ConfigError::check("balance.min", self.min, 1..=10_000)?;
        ConfigError::check("balance.max", self.max, self.min..=10_000)?;
        ConfigError::check("balance.initial", self.initial, self.min..=self.max)?;
        let most = 1_000_000;
        ConfigError::check("balance.max_requests", self.max_requests, 1..=most)?;
        let (low, high) = (self.min_requests, self.max_requests);
        ConfigError::check("balance.min_requests", low, 1..=high)?;
        ConfigError::check("balance.assumed_streams", self.assumed_streams, 1..=65_534)?;
        ConfigError::check("balance.resize_step", self.resize_step, 1..=10_000)?;
        ConfigError::check("balance.refresh_step", self.refresh_step, 1..=10_000)?;
        ConfigError::check(
            "balance.resize_interval",
            self.resize_interval,
            second..=YEAR,
        )?;
        ConfigError::check(
            "balance.max_age",
            self.max_age.unwrap_or(second),
            second..=YEAR,
        )?;
        let none = Duration::ZERO;
        ConfigError::check("balance.age_jitter", self.age_jitter, none..=YEAR)?;
        ConfigError::check("balance.drain_limit", self.drain_limit, none..=YEAR)?;
        let (budget, least) = (self.connect_budget, Duration::from_millis(1));
        let most = Duration::from_secs(600);
        ConfigError::check("balance.connect_budget", budget, least..=most)?;
        let wait = self.wait_for_ready.unwrap_or(none);
        ConfigError::check("balance.wait_for_ready", wait, none..=YEAR)
    }
}
