//! The settings of the connections.

use std::{fmt, ops::RangeInclusive, time::Duration};

use steadfast_core::ConfigError;
use tonic::transport::Endpoint;

/// The largest window of HTTP/2 (RFC 9113, section 6.9.1), 2^31 − 1 bytes.
const MAX_WINDOW: u32 = (1 << 31) - 1;
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
const HOUR: Duration = Duration::from_secs(60 * 60);
const MILLISECOND: Duration = Duration::from_millis(1);

/// HTTP/2 keepalive: a PING when nothing was heard for a while, and only while a stream is open.
///
/// A server may end a connection that pings more often than it allows; by gRFC A8 the default limit of
/// servers is one in 5 minutes, and clients go no lower than 10 s. What a server put up with at a place
/// is remembered: see [`Egress`](crate::Egress).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// How long nothing is heard before a PING is sent. Default 60 s, [`google`](Self::google) 30 s;
    /// from 1 ms to 1 h.
    pub interval: Duration,
    /// How long the PING's acknowledgement may take before the connection is given up. Default 10 s;
    /// from 1 ms to 1 h.
    pub timeout: Duration,
}

impl Keepalive {
    /// The preset for Google's services, which allow a PING in 30 s: interval 30 s, time-out 10 s.
    #[must_use]
    pub fn google() -> Self {
        Self::new(Duration::from_secs(30), Duration::from_secs(10))
    }

    /// A keepalive with this interval and this time-out.
    #[must_use]
    pub fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout }
    }
}

impl Default for Keepalive {
    fn default() -> Self {
        Self::new(Duration::from_secs(60), Duration::from_secs(10))
    }
}

/// How connections are made and kept: windows, frames, keepalive, the memory for reset streams and the
/// budget of a dial.
///
/// [`EgressConfig::default`] is [`EgressConfig::interactive`]. It is validated when the factory is built,
/// and overrides what an [`Endpoint`] says of the same; all else is the endpoint's: user agent, origin,
/// TLS, request time-out, TCP no-delay (tonic's default: on) and TCP keepalive.
///
/// # Memory
/// A reader that stops reading leaves at most a stream window of its response in this process, and all
/// readers of a connection together at most a connection window. The worst case is
/// [`worst_case_memory`](Self::worst_case_memory) = channels × min(streams × stream window, connection
/// window):
///
/// | preset | 4 channels × 100 streams | 10 × 25 | 200 × 25 |
/// |---|---|---|---|
/// | `interactive` | 100 MiB | 62.5 MiB | 1.2 GiB |
/// | `bulk` | 800 MiB | 500 MiB | 9.8 GiB |
///
/// Write `..EgressConfig::default()` behind what you set: fields are added with new features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// Bytes of a response that may be unread before its stream is blocked. Default 262,144 (256 KiB),
    /// [`bulk`](Self::bulk) 2 MiB; from 1 to 2^31 − 1.
    ///
    /// A small one keeps readers apart; a large one makes a lone bulk stream faster: measured on
    /// loopback, 2 MiB is 1.6 times as fast as 256 KiB.
    pub stream_window: u32,
    /// Bytes that may be unread on a connection before all its streams are blocked. Default 268,435,456
    /// (256 MiB); from 1 to 2^31 − 1. HTTP/2 has no way to make it smaller than 65,535.
    ///
    /// The default is 1,024 stream windows, so that a few slow readers don't block the others. Under 4
    /// stream windows it is warned of.
    pub connection_window: u32,
    /// The largest frame that the peer may send, in bytes. Default none: the protocol's 16,384; from
    /// 16,384 to 16,777,215.
    pub max_frame_size: Option<u32>,
    /// The largest response head, in bytes as HTTP/2 counts them. Default none: hyper's 16 KiB; from 1
    /// to 2^31 − 1.
    pub max_header_list_size: Option<u32>,
    /// PINGs that find a dead connection. Default 60 s and 10 s; none switches them off.
    pub keepalive: Option<Keepalive>,
    /// How many streams that this side reset are remembered, so that what the peer still sends for them
    /// is ignored. Default 4,096; from 0 to 1,048,576.
    ///
    /// A frame for a forgotten one counts against the connection, and after 1,024 of them h2 gives the
    /// connection up with all that is on it. h2's own default remembers 50.
    pub reset_streams: usize,
    /// How long they are remembered. Default 60 s; up to 1 h. h2's own default is 1 s, which is too
    /// short when the peer stood still.
    pub reset_stream_duration: Duration,
    /// One budget for a dial: name, TCP, TLS, HTTP/2 preface and the first answer. Default 10 s; from
    /// 1 ms to 10 min.
    pub connect_budget: Duration,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            stream_window: 256 * KIB,
            connection_window: 256 * MIB,
            max_frame_size: None,
            max_header_list_size: None,
            keepalive: Some(Keepalive::default()),
            reset_streams: 4096,
            reset_stream_duration: Duration::from_secs(60),
            connect_budget: Duration::from_secs(10),
        }
    }
}

impl EgressConfig {
    /// Windows for many small or slowly read responses: 256 KiB a stream, 256 MiB a connection. The
    /// default.
    #[must_use]
    pub fn interactive() -> Self {
        Self::default()
    }

    /// Windows for a few large responses that are read at once: 2 MiB a stream, 256 MiB a connection.
    #[must_use]
    pub fn bulk() -> Self {
        Self {
            stream_window: 2 * MIB,
            ..Self::default()
        }
    }

    /// The same with this keepalive, or with none.
    #[must_use]
    pub fn with_keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.keepalive = keepalive.into();
        self
    }

    /// The most bytes of unread responses that this many channels with this many open streams each can
    /// hold: channels × min(streams × stream window, connection window). At most 2^64 − 1.
    ///
    /// ```
    /// use steadfast_egress::EgressConfig;
    ///
    /// assert_eq!(EgressConfig::interactive().worst_case_memory(4, 100), 100 << 20);
    /// assert_eq!(EgressConfig::bulk().worst_case_memory(10, 1_000), 10 * (256 << 20));
    /// ```
    #[must_use]
    pub fn worst_case_memory(&self, channels: u32, streams_per_channel: u32) -> u64 {
        let streams = u64::from(streams_per_channel).saturating_mul(self.stream_window.into());
        streams
            .min(self.connection_window.into())
            .saturating_mul(channels.into())
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that is out of its range, by its name with `egress.` before it.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("egress.stream_window", self.stream_window, 1..=MAX_WINDOW)?;
        within(
            "egress.connection_window",
            self.connection_window,
            1..=MAX_WINDOW,
        )?;
        let frame = self.max_frame_size.unwrap_or(16_384);
        within("egress.max_frame_size", frame, 16_384..=16_777_215)?;
        let list = self.max_header_list_size.unwrap_or(MAX_WINDOW);
        within("egress.max_header_list_size", list, 1..=MAX_WINDOW)?;
        let Keepalive { interval, timeout } = self.keepalive.unwrap_or_default();
        within("egress.keepalive.interval", interval, MILLISECOND..=HOUR)?;
        within("egress.keepalive.timeout", timeout, MILLISECOND..=HOUR)?;
        within("egress.reset_streams", self.reset_streams, 0..=1 << 20)?;
        let remembered = self.reset_stream_duration;
        within(
            "egress.reset_stream_duration",
            remembered,
            Duration::ZERO..=HOUR,
        )?;
        within(
            "egress.connect_budget",
            self.connect_budget,
            MILLISECOND..=HOUR / 6,
        )
    }

    /// What is allowed but likely a mistake, one text each. The factory logs them when it is built.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if u64::from(self.connection_window) < 4 * u64::from(self.stream_window) {
            warnings.push(format!(
                "egress.connection_window is {}, less than 4 of egress.stream_window ({}): a few \
                 responses that nobody reads block all others on their connection",
                self.connection_window, self.stream_window
            ));
        }
        if let Some(Keepalive { interval, .. }) = self.keepalive
            && interval < Duration::from_secs(10)
        {
            warnings.push(format!(
                "egress.keepalive.interval is {interval:?}, less than the 10s that gRFC A8 allows \
                 clients: servers end connections with too_many_pings"
            ));
        }
        warnings
    }

    /// Sets all this on `endpoint`, with the keepalive interval that its place puts up with.
    pub(crate) fn apply(&self, endpoint: Endpoint, interval: Option<Duration>) -> Endpoint {
        let mut endpoint = endpoint
            // First: hyper's adaptive windows would replace those below.
            .http2_adaptive_window(false)
            .initial_stream_window_size(self.stream_window)
            .initial_connection_window_size(self.connection_window)
            .max_frame_size(self.max_frame_size)
            .http2_max_concurrent_reset_streams(self.reset_streams)
            .http2_reset_stream_duration(self.reset_stream_duration);
        if let Some(size) = self.max_header_list_size {
            endpoint = endpoint.http2_max_header_list_size(size);
        }
        if let (Some(keepalive), Some(interval)) = (self.keepalive, interval) {
            endpoint = endpoint
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(keepalive.timeout)
                .keep_alive_while_idle(false);
        }
        endpoint
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::new(field, value, format!("{range:?}")))
    }
}
