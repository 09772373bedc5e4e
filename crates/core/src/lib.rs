#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attempt;
mod bottom;
mod channel;
mod clock;
mod config;
mod cut;
mod factory;
mod id;
mod in_flight;
mod local;
mod meter;
mod methods;
mod observe;
mod outcome;
mod probe;
mod sync;

pub use attempt::{Abandoned, Attempt, Avoid, Prefer};
pub use bottom::{Bottom, BottomLayer, Probing, at_bottom};
pub use channel::{Metered, WarmUp};
pub use clock::now;
pub use config::ConfigError;
pub use cut::{CutSwitch, CutTicket};
pub use factory::{ChannelLayer, Dial, Each, EachDial, EachFactory, Keep, NewChannel};
pub use id::{ChannelId, Place};
pub use in_flight::{InFlight, InFlightLayer, InFlightObserver};
pub use local::{Local, LocalKind};
pub use meter::{Meter, MeterOwner, Reading, Standing};
pub use methods::Methods;
pub use observe::{End, Observe, Observed, ObservedBody};
pub use outcome::Outcome;
pub use probe::{Prepared, Probe, Verdict};

/// Any error, as tower passes it between layers.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
