#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod again;
mod body;
mod call;
mod config;
mod deadline;
mod deadline_body;
mod failure;
mod frames;
mod guard;
mod head;
mod layer;
mod methods;
mod observe;
mod policy;
mod progress;
mod reply;
mod request;
mod service;
mod verdict;

pub use body::RetryBody;
pub use config::{RetryConfig, RetryOn};
pub use deadline::{DeadlineConfig, DeadlineFuture, DeadlineLayer, Deadlined};
pub use deadline_body::DeadlineBody;
pub use layer::{RetryLayer, SharedBudget};
pub use methods::Kind;
pub use observe::RetrySnapshot;
pub use policy::{Decision, Facts, Reason, Resend, RetryPolicy};
pub use progress::{Progress, Sink};
pub use service::{ResponseFuture, Retry};
pub use steadfast_classify::details::Pushback;
pub use steadfast_core::ConfigError;
pub use tower::retry::budget::{Budget, TpsBudget};
