//! The settings of [`ResumableStreamLayer`](crate::ResumableStreamLayer).

use std::time::Duration;

use steadfast_core::ConfigError;

/// When a stream goes on on another channel, how often, and what is kept for it.
///
/// It is validated when the layer is built. Write `..ResumeConfig::default()` behind what you set: fields
/// are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeConfig {
    /// Whether streams are resumed. Default true. Off, every call passes through untouched.
    pub enabled: bool,
    /// The pool's name in metrics, spans and events. Default `default`.
    pub name: String,
    /// How long a stream may be silent while its caller waits, before the head and between frames, until
    /// it is given up and goes on elsewhere. The last attempt has no such limit. Default 5 s; from 1 ms to
    /// 1 h.
    pub gap_timeout: Duration,
    /// How often a stream is sent, the first time included. Default 3: two more chances, on two other
    /// channels (gRPC allows 5 at most, gRFC A6). From 1, which is no gap time-out and no second attempt,
    /// to 100.
    pub max_attempts: u32,
    /// What the attempts are counted over. Default [`AttemptsPer::Stream`].
    pub attempts_per: AttemptsPer,
    /// How long any attempt may wait for the response's head. It ends the call with DEADLINE_EXCEEDED and
    /// isn't resumed. Default 60 s; from 1 ms to 24 h. Not above the gap time-out it comes first, and a
    /// stall before the head is never resumed: it is warned of.
    pub header_timeout: Duration,
    /// After which failures a stream goes on.
    pub resume_on: ResumeOn,
    /// The longest wait before the second attempt; it doubles with each further one, and a wait is random
    /// between 0 and it. There is none after a gap time-out. Default 10 ms; from 0 to 1 min.
    pub backoff: Duration,
    /// What that wait grows to. Default 1 s; from `backoff` to 1 h.
    pub backoff_max: Duration,
    /// The largest message that is read for the rules, in bytes, packed and unpacked. A larger one ends its
    /// stream with an error. Default 4 MiB, the largest message that gRPC clients take unless told
    /// otherwise: set both alike. From 1 to 1 GiB.
    pub message_limit: usize,
    /// The largest request that is kept for its rule, in bytes. A call with a larger one goes through and
    /// isn't resumed. Default 1 MiB; at most 1 GiB.
    pub request_limit: usize,
    /// Whether a budget bounds the attempts after the first. Default true.
    pub budget: bool,
    /// How many further attempts each hundred streams pay for. Default 20, tower's figure; at most 1,000.
    /// tower counts in whole calls: 100 is divided by it and rounded down.
    pub budget_percent: u32,
    /// How many further attempts a second are always paid for, counted over ten seconds. Default 10, tower's
    /// figure; at most 1,000,000.
    pub budget_per_second: u32,
}

/// What a stream's attempts are counted over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttemptsPer {
    /// The whole stream, however much was delivered between two failures.
    #[default]
    Stream,
    /// The time since the last message was delivered. The one for watches that live for days: with the
    /// other they end for good at the third failure of their lives.
    Progress,
}

impl Default for ResumeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "default".to_owned(),
            gap_timeout: Duration::from_secs(5),
            max_attempts: 3,
            attempts_per: AttemptsPer::Stream,
            header_timeout: Duration::from_secs(60),
            resume_on: ResumeOn::default(),
            backoff: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            message_limit: 4 << 20,
            request_limit: 1 << 20,
            budget: true,
            budget_percent: 20,
            budget_per_second: 10,
        }
    }
}

impl ResumeConfig {
    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// The first setting that isn't: field, value and range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let (least, hour) = (Duration::from_millis(1), Duration::from_secs(3600));
        ConfigError::check("resume.gap_timeout", self.gap_timeout, least..=hour)?;
        ConfigError::check("resume.max_attempts", self.max_attempts, 1..=100)?;
        let day = hour * 24;
        ConfigError::check("resume.header_timeout", self.header_timeout, least..=day)?;
        let minute = Duration::from_secs(60);
        ConfigError::check("resume.backoff", self.backoff, Duration::ZERO..=minute)?;
        ConfigError::check("resume.backoff_max", self.backoff_max, self.backoff..=hour)?;
        ConfigError::check("resume.message_limit", self.message_limit, 1..=1 << 30)?;
        ConfigError::check("resume.request_limit", self.request_limit, 0..=1 << 30)?;
        ConfigError::check("resume.budget_percent", self.budget_percent, 0..=1_000)?;
        let most = 1_000_000;
        ConfigError::check("resume.budget_per_second", self.budget_per_second, 0..=most)
    }

    /// What is allowed but likely a mistake, one text each. The layer logs them when it is built.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.enabled && self.max_attempts > 1 && self.header_timeout <= self.gap_timeout {
            warnings.push(format!(
                "resume.header_timeout is {:?}, not longer than resume.gap_timeout ({:?}): a stall before \
                 the response's head ends the call and is never resumed",
                self.header_timeout, self.gap_timeout
            ));
        }
        warnings
    }
}

/// The failures after which a stream goes on, beside the gap time-out.
///
/// Each is told by the source chain of the error, never by a status code that a client library made up.
/// What isn't here is never resumed: any other status, RESOURCE_EXHAUSTED and INTERNAL among them, a time-out
/// on the head, what the caller cancelled, what a layer refused for another reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeOn {
    /// No connection: the name wasn't resolved, connecting failed, or a pool has no channel that could take
    /// the call. Default true.
    pub dial_failed: bool,
    /// The peer certainly never processed it: never sent, above GOAWAY's last stream id, or refused before
    /// the head. Default true.
    pub never_processed: bool,
    /// The connection was lost with the stream on it, its keepalive expired, or HTTP/2 broke. Default true.
    pub connection_lost: bool,
    /// RST_STREAM with REFUSED_STREAM after the head. Default true.
    pub refused: bool,
    /// RST_STREAM with any other code. Default true.
    pub reset: bool,
    /// The connection's GOAWAY, after the head. Default true.
    pub goaway: bool,
    /// The stream ended without a status, or with OK inside a message. Default true.
    pub no_status: bool,
    /// The server said UNAVAILABLE, or a proxy HTTP 429, 502, 503 or 504. Default true.
    pub unavailable: bool,
    /// A layer below put the channel in quarantine and ended the stream. Default true.
    pub quarantine: bool,
}

impl Default for ResumeOn {
    fn default() -> Self {
        Self {
            dial_failed: true,
            never_processed: true,
            connection_lost: true,
            refused: true,
            reset: true,
            goaway: true,
            no_status: true,
            unavailable: true,
            quarantine: true,
        }
    }
}

impl ResumeOn {
    /// The narrower set of a BigTable read service: no GOAWAY after the head, and of RST_STREAM only
    /// REFUSED_STREAM.
    #[must_use]
    pub fn narrow() -> Self {
        Self {
            reset: false,
            goaway: false,
            ..Self::default()
        }
    }
}
