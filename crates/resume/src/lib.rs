#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod rule;

pub use rule::{BidiRule, Conversation, Pass, Progress, Rest, Rule};
