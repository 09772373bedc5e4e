#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attempt;
mod body;
mod call;
mod compression;
mod config;
mod failure;
mod gap;
mod layer;
mod message_error;
mod messages;
mod next;
mod observe;
mod policy;
mod request;
mod rule;
mod service;
mod stream;
mod talk;
mod upload;

pub use body::ResumableBody;
pub use config::{AttemptsPer, ResumeConfig, ResumeOn};
pub use layer::{ResumableStreamLayer, SharedBudget};
pub use message_error::MessageError;
pub use messages::MessageReader;
pub use observe::{ResumeSnapshot, RuleSnapshot};
pub use policy::{Decision, Facts, Reason, ResumePolicy};
pub use rule::{BidiRule, Conversation, Pass, Progress, Rest, Rule};
pub use service::{ResponseFuture, ResumableStream};
pub use steadfast_classify::details::Pushback;
pub use steadfast_core::ConfigError;
pub use tower::retry::budget::{Budget, TpsBudget};
