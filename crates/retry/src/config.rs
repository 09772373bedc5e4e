//! The settings of [`RetryLayer`](crate::RetryLayer).

use std::time::Duration;

use steadfast_core::ConfigError;

/// What is sent again, how often, and what is kept for it.
///
/// It is validated when the layer is built. Write `..RetryConfig::default()` behind what you set: fields
/// are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// Whether anything is sent again. Default true. Off, requests and replies pass through and nothing is
    /// kept; a malformed `grpc-status-details-bin` is still taken out of replies.
    pub enabled: bool,
    /// The pool's name in metrics, spans and events. Default `default`.
    pub name: String,
    /// How often a call that may have been processed is sent, the first time included. Default 3: two more
    /// chances, on two other channels (gRPC allows 5 at most, gRFC A6). From 1, which is never again, to 100.
    pub attempts: u32,
    /// How often a call that never left this process is sent again. Default 16: each channel of a small
    /// pool may be lost once. From 0 to 1,000.
    pub resends: u32,
    /// After which failures a call that may have been processed is repeated.
    pub retry_on: RetryOn,
    /// How long one attempt may take: to the trailers of a reply that is kept, to the first message of a
    /// stream. Default none: what is too long is the caller's to say. From 1 ms to 1 h. With one, the
    /// request's extensions are cloned and its calls cost a few allocations more.
    pub attempt_timeout: Option<Duration>,
    /// The longest wait before the first repetition; it doubles with each further one, and a wait is random
    /// between 0 and it. Default 10 ms; from 0 to 1 min.
    pub backoff: Duration,
    /// What that wait grows to. Default 1 s; from `backoff` to 1 h.
    pub backoff_max: Duration,
    /// Up to how many bytes a request's messages are kept to be sent again. A larger request goes through
    /// and is never sent again. Default 1 MiB, as grpc-java; at most 1 GiB.
    pub request_limit: usize,
    /// Up to how many bytes the reply of a method of [`Kind::Held`](crate::Kind) is kept until its trailers
    /// come. A larger one is passed on as it comes from there, and not repeated. Default 4 MiB, the largest
    /// message that gRPC clients take unless told otherwise; at most 1 GiB.
    pub reply_limit: usize,
    /// Whether a budget bounds the repetitions. Default true.
    pub budget: bool,
    /// How many repetitions each hundred calls of methods named idempotent pay for. Default 20, tower's
    /// figure; at most 1,000. tower counts in whole calls: 100 is divided by it and rounded down.
    pub budget_percent: u32,
    /// How many repetitions a second are always paid for, counted over ten seconds. Default 10, tower's
    /// figure; at most 1,000,000.
    pub budget_per_second: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "default".to_owned(),
            attempts: 3,
            resends: 16,
            retry_on: RetryOn::default(),
            attempt_timeout: None,
            backoff: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            request_limit: 1 << 20,
            reply_limit: 4 << 20,
            budget: true,
            budget_percent: 20,
            budget_per_second: 10,
        }
    }
}

impl RetryConfig {
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check("retry.attempts", self.attempts, 1..=100)?;
        ConfigError::check("retry.resends", self.resends, 0..=1_000)?;
        ConfigError::check("retry.budget_percent", self.budget_percent, 0..=1_000)?;
        let most = 1_000_000;
        ConfigError::check("retry.budget_per_second", self.budget_per_second, 0..=most)?;
        let (least, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        let timeout = self.attempt_timeout.unwrap_or(least);
        ConfigError::check("retry.attempt_timeout", timeout, least..=hour)?;
        let minute = Duration::from_secs(60);
        ConfigError::check("retry.backoff", self.backoff, Duration::ZERO..=minute)?;
        ConfigError::check("retry.backoff_max", self.backoff_max, self.backoff..=hour)?;
        ConfigError::check("retry.request_limit", self.request_limit, 0..=1 << 30)?;
        ConfigError::check("retry.reply_limit", self.reply_limit, 0..=1 << 30)
    }
}

/// The failures after which a call that may have been processed is repeated, if its method is idempotent.
///
/// Each is told by the source chain of the error, never by a status code that a client library made up.
/// What isn't here is never repeated: any other status, what the caller cancelled, what a layer refused for
/// another reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection: the name wasn't resolved, connecting failed, or a pool has no channel that could take
    /// the call. Default true.
    pub dial_failed: bool,
    /// The peer said again that it didn't process the call: after the one time that is free. Default true.
    pub unprocessed: bool,
    /// The connection was lost with the call on it, its keepalive expired, or HTTP/2 broke. Default true.
    pub connection_lost: bool,
    /// The peer reset the stream. Default true.
    pub reset: bool,
    /// The reply ended without a status, or with OK inside a message. Default true.
    pub no_status: bool,
    /// The server said UNAVAILABLE, or a proxy HTTP 429, 502, 503 or 504. Default false: a server that is
    /// overloaded says so, and more calls are the last that it needs.
    pub unavailable: bool,
    /// A layer below put the channel in quarantine and ended the call. Default true.
    pub quarantine: bool,
    /// The attempt, or the wait for the reply's head, timed out. Default true.
    pub timeout: bool,
}

impl Default for RetryOn {
    fn default() -> Self {
        Self {
            dial_failed: true,
            unprocessed: true,
            connection_lost: true,
            reset: true,
            no_status: true,
            unavailable: false,
            quarantine: true,
            timeout: true,
        }
    }
}

impl RetryOn {
    /// None of them: a set to begin from.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            dial_failed: false,
            unprocessed: false,
            connection_lost: false,
            reset: false,
            no_status: false,
            unavailable: false,
            quarantine: false,
            timeout: false,
        }
    }
}
