//! The settings.

use std::time::Duration;

use steadfast_core::ConfigError;

/// Below which depth a flow counts as sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Watermark {
    /// This many calls outstanding. 1 is the rule of a flow that must be found empty. From 1 to 1,000,000.
    Calls(u32),
    /// The number of places divided by this, and at least 1. An option for places that differ from machine
    /// to machine; nothing was measured with it. From 1 to 1,000,000.
    PlacesOver(u32),
}

/// How many calls run at once, and who goes first.
///
/// It is validated when the layer is built. Write `..SparseConfig::default()` behind what you set: fields
/// are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseConfig {
    /// Whether calls are queued at all. Default true; without it the layer passes everything on.
    pub enabled: bool,
    /// The layer's name in metrics, events and errors. Default `default`.
    pub name: String,
    /// How many calls run at once, each until its response body ends. Default 16, with which the figures of
    /// this crate were made: set it to what the server can work on, or what a client may have in flight.
    /// From 1 to 1,000,000.
    pub places: u32,
    /// How many of the places the calls of busy flows may not take. Default 0: it costs throughput, and is
    /// for calls that hold a place for long, which no order can move out of the way. From 0 to one less
    /// than `places`.
    pub reserve: u32,
    /// A flow that has fewer calls than this outstanding (waiting or running, without the new one) when a
    /// call arrives is sparse, and gets new credit. Default 4 calls. It must be below the number of calls
    /// that busy callers keep outstanding: at or above it everyone is sparse, and nobody goes first.
    pub watermark: Watermark,
    /// How many calls of a flow go first once it was found sparse. Default 64, which was found with a server
    /// that dispatches this way. From 1 to 1,000,000.
    pub credits: u32,
    /// After this time credit is worth nothing; it falls in a straight line. Default none: credit stays until it
    /// is spent. An option; nothing was measured with it. From 1 ms to 1 h.
    pub credit_decay: Option<Duration>,
    /// After this many calls of sparse flows one of the others is served, while one waits. Default 4: the
    /// others keep a fifth, and in the model the sparse flows don't notice. None starves the others when many
    /// sparse flows are at work. From 1 to 1,000,000.
    pub guard: Option<u32>,
    /// How many calls of one flow may wait. Default 256. From 1 to 1,000,000.
    pub max_waiting_per_flow: u32,
    /// How many calls may wait in all. Default 4,096: sixteen flows at their bound. From 1 to 1,000,000.
    pub max_waiting: u32,
    /// How long a call may wait for its place. Default none: as long as its deadline allows. From 1 ms to
    /// 1 h.
    pub longest_wait: Option<Duration>,
    /// When a refused caller is told to try again; each is told a different time, from half to one and a half
    /// of this, so that they don't come back together. Default 100 ms: about eight of the calls of 12 ms that
    /// the figures of this crate were made with. From 1 ms to 1 h.
    pub pushback: Duration,
}

const MOST: u32 = 1_000_000;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(3600);

impl Default for SparseConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "default".to_owned(),
            places: 16,
            reserve: 0,
            watermark: Watermark::Calls(4),
            credits: 64,
            credit_decay: None,
            guard: Some(4),
            max_waiting_per_flow: 256,
            max_waiting: 4096,
            longest_wait: None,
            pushback: Duration::from_millis(100),
        }
    }
}

impl SparseConfig {
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check("sparse.places", self.places, 1..=MOST)?;
        ConfigError::check("sparse.reserve", self.reserve, 0..=self.places - 1)?;
        let (Watermark::Calls(watermark) | Watermark::PlacesOver(watermark)) = self.watermark;
        ConfigError::check("sparse.watermark", watermark, 1..=MOST)?;
        ConfigError::check("sparse.credits", self.credits, 1..=MOST)?;
        if let Some(decay) = self.credit_decay {
            ConfigError::check("sparse.credit_decay", decay, SHORTEST..=LONGEST)?;
        }
        if let Some(guard) = self.guard {
            ConfigError::check("sparse.guard", guard, 1..=MOST)?;
        }
        ConfigError::check(
            "sparse.max_waiting_per_flow",
            self.max_waiting_per_flow,
            1..=MOST,
        )?;
        ConfigError::check("sparse.max_waiting", self.max_waiting, 1..=MOST)?;
        if let Some(wait) = self.longest_wait {
            ConfigError::check("sparse.longest_wait", wait, SHORTEST..=LONGEST)?;
        }
        ConfigError::check("sparse.pushback", self.pushback, SHORTEST..=LONGEST)
    }
}
