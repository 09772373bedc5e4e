//! One figure of the simulation.

use std::fmt;

use serde::{Serialize, Serializer};
use steadfast_sparse::{Depth, SparseConfig, SparsePolicy, Watermark};

/// Who gets the next free place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discipline {
    /// One ring of flows, one call of the flow at the head at a time.
    OneRing,
    /// Flows that are found empty go first.
    ExactZero,
    /// Flows that are found with fewer calls outstanding than this go first.
    Watermark(u32),
    /// Fewer calls running than this, the new one included: the wrong measure.
    InService(u32),
    /// Watermark 4, and one bulk dispatch after so many high ones; 0 is none.
    Guard(u32),
    /// Watermark 4, no guard, and so many places that bulk may not take.
    Reserve(u32),
}

/// What the busy flows, or the interactive ones, do that isn't the plain sweep. It is part of a row's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Plain,
    /// The interactive flow sends bursts and pauses.
    Bursts,
    /// The interactive flow keeps a number outstanding that walks.
    Walk,
    /// Busy flows hold their places for long.
    LongCalls,
    /// One flow lets its calls run out now and then, to be found sparse.
    Shaped,
}

/// One cell; also the shape of a row in the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// The discipline, and behind it what is special about the flows.
    #[serde(serialize_with = "name")]
    pub(super) discipline: (Discipline, Variant),
    /// Flows that keep 16 calls outstanding.
    pub(super) bulk_flows: u32,
    /// Calls that the interactive flow keeps outstanding, or has at most.
    pub(super) window: u32,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// The median of the same caller alone.
    pub(super) floor_ms: f64,
    /// The median of the busy flows; none if none of their calls ended.
    pub(super) aggressor_p50_ms: Option<f64>,
    /// The interactive flow's arrivals that found it sparse, of all of its.
    pub(super) rearm_share: f64,
    /// The interactive flow's credit at the end.
    pub(super) credit_end: u32,
    /// The calls of busy flows, of all that ended.
    pub(super) bulk_share: f64,
    /// Calls that ended, a second.
    pub(super) total_per_s: f64,
}

impl Discipline {
    pub(super) fn policy(self) -> SparsePolicy {
        let mut config = SparseConfig {
            max_waiting: u32::MAX,
            max_waiting_per_flow: u32::MAX,
            ..SparseConfig::default()
        };
        let mut depth = Depth::Outstanding;
        match self {
            // No flow is ever sparse.
            Self::OneRing => config.watermark = Watermark::Calls(0),
            Self::ExactZero => config.watermark = Watermark::Calls(1),
            Self::Watermark(calls) => config.watermark = Watermark::Calls(calls),
            Self::InService(calls) => {
                config.watermark = Watermark::Calls(calls);
                config.guard = None;
                depth = Depth::InService;
            }
            Self::Guard(calls) => config.guard = Some(calls).filter(|calls| *calls > 0),
            Self::Reserve(places) => {
                config.reserve = places;
                config.guard = None;
            }
        }
        SparsePolicy::new(config).with_depth(depth)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneRing => f.write_str("one-ring"),
            Self::ExactZero => f.write_str("exact-zero"),
            Self::Watermark(calls) => write!(f, "watermark-{calls}"),
            Self::InService(calls) => write!(f, "in-service-{calls}"),
            Self::Guard(calls) => write!(f, "guard-{calls}"),
            Self::Reserve(places) => write!(f, "reserve-{places}"),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "",
            Self::Bursts => "-bursts",
            Self::Walk => "-walk",
            Self::LongCalls => "-long",
            Self::Shaped => "-shaped",
        })
    }
}

fn name<S: Serializer>(
    (discipline, variant): &(Discipline, Variant),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    // A reserve is only tried beside long calls.
    let variant = match discipline {
        Discipline::Reserve(_) => &Variant::Plain,
        _ => variant,
    };
    serializer.collect_str(&format_args!("{discipline}{variant}"))
}
