//! The layer's settings.

use std::time::Duration;

use steadfast_core::ConfigError;

/// When a channel is suspect, how it is asked, and what follows.
///
/// It is validated when the layer is built. Write `..StallConfig::default()` behind what you set: fields
/// are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallConfig {
    /// Whether anything is watched at all. Default true.
    pub enabled: bool,
    /// The pool's name in metrics and events. Default `default`.
    pub name: String,
    /// How long somebody waits, and nothing comes on the channel, before it is suspect.
    /// Default 1 s: well above the pauses of a healthy server, and with [`answer`](Self::answer) a
    /// silent channel costs 2 s. From two [`tick`](Self::tick)s to 1 h.
    pub silence: Duration,
    /// How long a probe may take from the transport to its status. Default 1 s: a channel that is
    /// silent already, and slower than that to answer a cheap call, serves nobody. From 1 ms to 1 h.
    pub answer: Duration,
    /// How long a probe may take to be prepared, and again to reach the transport; both are where
    /// credentials are fetched. Default 10 s, the budget of a dial. From 1 ms to 1 h.
    pub prepare: Duration,
    /// Whether probes are sent, for warming new channels too. Default true. Without them suspicions are
    /// counted, and nothing follows.
    pub probes: bool,
    /// Whether each channel is judged by itself: for one channel without a pool. Default false. A
    /// suspect needs no other channel that receives, no channel is spared because many are silent, and
    /// calls are refused at once while the channel is in quarantine.
    pub alone: bool,
    /// How long after its quarantine began a channel is asked again. Default 1 s. It doubles after each
    /// probe without an answer, up to [`reprobe_most`](Self::reprobe_most), each time ± 20 %. From 1 ms
    /// to 1 h.
    pub reprobe: Duration,
    /// The longest time between two probes of a channel in quarantine. Default 10 s. From `reprobe` to
    /// 1 h.
    pub reprobe_most: Duration,
    /// The largest share of the pool, in percent and rounded down, that may be in quarantine. Default
    /// 50: a wider stall is the server's or the network's. From 0 to 100.
    pub most_percent: u32,
    /// How many quarantines within [`strike_window`](Self::strike_window) make a channel one to be
    /// replaced. Default 3. From 1 to 1,000.
    pub strikes: u32,
    /// The time in which quarantines are counted. Default 10 min. From 1 s to 24 h.
    pub strike_window: Duration,
    /// How long in quarantine without an answer makes a channel one to be replaced. Default 60 s. From
    /// 1 s to 24 h.
    pub dead_after: Duration,
    /// The time between two replacements, failed ones included. Default 60 s, so that a server in
    /// trouble isn't dialled without end. From 1 s to 24 h.
    pub replace_every: Duration,
    /// How many streams may be dropped on one connection at once; none if any number may. Default
    /// 1,000: stock HTTP/2 clients give a connection up when the peer sends on for more than 1,024
    /// streams that they have forgotten. A quarantine that ends more gives its channel up for good.
    /// `Egress` remembers 4,096 of them: set that number there.
    pub resets: Option<usize>,
    /// How often the channels are looked at while somebody waits. Default 50 ms: silence is measured to
    /// one tick. From 1 ms to 1 s.
    pub tick: Duration,
    /// A tick that is this late shows that this process stood still; no silence from before counts.
    /// Default 250 ms, a quarter of the silence. From one `tick` to 1 h.
    pub tolerance: Duration,
    /// How many facts and decisions are kept, to be read with
    /// [`StallDetectLayer::ring`](crate::StallDetectLayer::ring). Default 1,024: some hundred
    /// quarantines. From 16 to 1,000,000.
    pub ring: usize,
}

impl Default for StallConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "default".to_owned(),
            silence: Duration::from_secs(1),
            answer: Duration::from_secs(1),
            prepare: Duration::from_secs(10),
            probes: true,
            alone: false,
            reprobe: Duration::from_secs(1),
            reprobe_most: Duration::from_secs(10),
            most_percent: 50,
            strikes: 3,
            strike_window: Duration::from_secs(600),
            dead_after: Duration::from_secs(60),
            replace_every: Duration::from_secs(60),
            resets: Some(1_000),
            tick: Duration::from_millis(50),
            tolerance: Duration::from_millis(250),
            ring: 1_024,
        }
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

impl StallConfig {
    /// The default for one channel without a pool: see [`StallConfig::alone`].
    #[must_use]
    pub fn alone() -> Self {
        Self {
            alone: true,
            ..Self::default()
        }
    }

    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check("stall.tick", self.tick, MILLISECOND..=SECOND)?;
        ConfigError::check("stall.silence", self.silence, self.tick * 2..=HOUR)?;
        ConfigError::check("stall.answer", self.answer, MILLISECOND..=HOUR)?;
        ConfigError::check("stall.prepare", self.prepare, MILLISECOND..=HOUR)?;
        ConfigError::check("stall.reprobe", self.reprobe, MILLISECOND..=HOUR)?;
        let most = self.reprobe..=HOUR;
        ConfigError::check("stall.reprobe_most", self.reprobe_most, most)?;
        ConfigError::check("stall.strike_window", self.strike_window, SECOND..=DAY)?;
        ConfigError::check("stall.dead_after", self.dead_after, SECOND..=DAY)?;
        ConfigError::check("stall.replace_every", self.replace_every, SECOND..=DAY)?;
        ConfigError::check("stall.tolerance", self.tolerance, self.tick..=HOUR)?;
        ConfigError::check("stall.most_percent", self.most_percent, 0..=100)?;
        ConfigError::check("stall.strikes", self.strikes, 1..=1_000)?;
        ConfigError::check("stall.ring", self.ring, 16..=1_000_000)
    }
}
