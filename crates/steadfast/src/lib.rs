#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod config;
mod pool;
mod tonic_body;

pub use config::Config;
pub use pool::{Pool, PoolBody, PoolBuilder, PoolFuture};
pub use tonic_body::{TonicBody, TonicBodyFuture, TonicBodyLayer};

pub use steadfast_balance::{
    Balance, BalanceConfig, BalanceLayer, ChannelSnapshot, CloseReport, ConnectingSnapshot,
    Connectivity, Places, Snapshot, Strategy as BalanceStrategy,
};
pub use steadfast_classify as classify;
pub use steadfast_core::{
    Abandoned, Attempt, Avoid, Bottom, BottomLayer, BoxError, ChannelId, ChannelLayer, ConfigError,
    Each, InFlightLayer, Keep, Local, LocalKind, Meter, Metered, NewChannel, Outcome, Place,
    Prefer, Probe, Probing, Standing, Verdict,
};
pub use steadfast_egress::{Egress, EgressChannel, EgressConfig, Keepalive};
pub use steadfast_penalty::{
    Mode as PenaltyMode, PenaltyConfig, PenaltyWindow, PenaltyWindowLayer,
};
pub use steadfast_resume::{
    AttemptsPer, BidiRule, Conversation, Pass, Progress as StreamProgress, Rest,
    ResumableStreamLayer, ResumeConfig, ResumeOn, ResumeSnapshot, Rule, RuleSnapshot,
};
pub use steadfast_retry::{
    DeadlineConfig, DeadlineLayer, Kind, Progress, RetryConfig, RetryLayer, RetryOn, RetrySnapshot,
};
pub use steadfast_rules as rules;
#[cfg(feature = "sparse")]
pub use steadfast_sparse as sparse;
pub use steadfast_stall::{
    ChannelState, Condition, HealthProbe, StallConfig, StallDetect, StallDetectLayer, UnaryProbe,
};
