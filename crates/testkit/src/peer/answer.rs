//! What the peer does with one request: a list of steps.

use crate::wire;
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};

/// The payload of the default answer: `EchoReply { payload: "abc" }`, or any message whose field 1 is a string or bytes.
pub const GOOD_PAYLOAD: &[u8] = b"\x0a\x03abc";

/// Which stream a GOAWAY names as the last one that the peer looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Stream 0: nothing was processed.
    Zero,
    /// The stream that the step belongs to; for an injected step the same as [`Highest`](Self::Highest).
    This,
    /// The highest stream that the client has opened so far.
    Highest,
    /// 2^31 - 1: the first half of a graceful shutdown, which still serves what comes.
    Max,
    /// This stream.
    Id(u32),
}

/// One thing that the peer does in the course of an answer.
///
/// DATA waits for the client's flow-control windows; all other frames are written at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Waits until the client has ended its side of the stream.
    AwaitRequest,
    /// Waits until the client has ended its side of the stream, then performs what this makes of the request's body, its
    /// gRPC prefix included. Of a body the first MiB is kept.
    Respond(Respond),
    /// Sends HEADERS with this HTTP status and, except for 1xx, `content-type: application/grpc`.
    Headers {
        /// The HTTP status.
        status: u16,
        /// More fields, in order; a `content-type` here replaces the default one. Names must be lower case.
        fields: Vec<(String, String)>,
        /// Whether the frame ends the stream.
        end: bool,
    },
    /// Sends this payload as one uncompressed gRPC message: the five-byte prefix is added.
    Message(Bytes),
    /// Sends these bytes in DATA frames, as they are.
    Data {
        /// What to send; may be empty.
        bytes: Bytes,
        /// Whether the last frame ends the stream.
        end: bool,
    },
    /// Sends a second HEADERS frame with these fields, which ends the stream.
    Trailers(Vec<(String, String)>),
    /// Waits for [`Peer::release`](super::Peer::release) or [`Peer::release_all`](super::Peer::release_all).
    Hold,
    /// Waits this long.
    Wait(Duration),
    /// Sends RST_STREAM with this code.
    Rst(u32),
    /// Sends GOAWAY. Streams above `last` that the client opens later are recorded but get no answer.
    Goaway {
        /// The error code; 0 is NO_ERROR.
        code: u32,
        /// The last stream processed.
        last: Last,
        /// The debug data.
        debug: Bytes,
    },
    /// Writes nothing more, and answers the next bytes from the client with a TCP reset: a load balancer that has forgotten the
    /// connection.
    Forget,
    /// Writes out what is queued, then closes the peer's side of the connection (FIN). Nothing is written after it.
    Fin,
    /// Writes out what is queued, then resets the TCP connection.
    TcpReset,
    /// Sends any frame.
    Frame {
        /// The frame type.
        kind: u8,
        /// The flags.
        flags: u8,
        /// The stream, or `None` for the one that the step belongs to.
        stream: Option<u32>,
        /// The payload; its length goes into the frame header.
        payload: Bytes,
    },
    /// Puts these bytes on the connection, as they are: half a frame, a frame that lies about its length.
    Bytes(Bytes),
}

type Responds = dyn Fn(&[u8]) -> Vec<Step> + Send + Sync;

/// What [`Step::Respond`] performs: see [`Step::respond`].
#[derive(Clone)]
pub struct Respond(pub(super) Arc<Responds>);

impl fmt::Debug for Respond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Respond")
    }
}

impl Step {
    /// Steps that depend on the request's body. The closure runs on the stream's task: it must not block.
    pub fn respond(to: impl Fn(&[u8]) -> Vec<Self> + Send + Sync + 'static) -> Self {
        Self::Respond(Respond(Arc::new(to)))
    }

    /// HEADERS with status 200 and no extra fields.
    pub fn headers() -> Self {
        Self::Headers {
            status: 200,
            fields: Vec::new(),
            end: false,
        }
    }

    /// Trailers with this `grpc-status` and, if not empty, `grpc-message`.
    pub fn status(code: u32, message: &str) -> Self {
        Self::Trailers(status_fields(code, message))
    }

    /// A trailers-only answer: HEADERS with this `grpc-status`, which end the stream.
    pub fn trailers_only(code: u32, message: &str) -> Self {
        Self::Headers {
            status: 200,
            fields: status_fields(code, message),
            end: true,
        }
    }

    /// GOAWAY without debug data.
    pub fn goaway(code: u32, last: Last) -> Self {
        Self::Goaway {
            code,
            last,
            debug: Bytes::new(),
        }
    }

    /// One message with [`GOOD_PAYLOAD`].
    pub fn good_message() -> Self {
        Self::Message(Bytes::from_static(GOOD_PAYLOAD))
    }
}

fn status_fields(code: u32, message: &str) -> Vec<(String, String)> {
    let mut fields = vec![("grpc-status".to_owned(), code.to_string())];
    if !message.is_empty() {
        fields.push(("grpc-message".to_owned(), message.to_owned()));
    }
    fields
}

/// A header block as [`Step::Frame`] wants it: literal fields, no Huffman code, no table.
///
/// Use it for HEADERS that [`Step::Headers`] would not send: without `:status`, without END_HEADERS, on another stream.
pub fn header_block(fields: &[(&str, &str)]) -> Bytes {
    wire::encode(
        fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    )
}

/// The steps that answer one request.
///
/// When the steps are at an end and none of them ended the stream, the stream stays open in silence. A RST_STREAM from the
/// client stops the steps; only those of [`after_reset`](Self::after_reset) run then.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub(super) steps: Vec<Step>,
    pub(super) after_reset: Vec<Step>,
}

impl Answer {
    /// An answer of these steps.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            after_reset: Vec::new(),
        }
    }

    /// Waits for the whole request, then sends headers, one message with [`GOOD_PAYLOAD`] and `grpc-status: 0`.
    pub fn good() -> Self {
        Self::message(Bytes::from_static(GOOD_PAYLOAD))
    }

    /// The same with another payload.
    pub fn message(payload: Bytes) -> Self {
        Self::steps([
            Step::AwaitRequest,
            Step::headers(),
            Step::Message(payload),
            Step::status(0, ""),
        ])
    }

    /// Waits for the whole request, then answers trailers-only with this `grpc-status`.
    pub fn status(code: u32, message: &str) -> Self {
        Self::steps([Step::AwaitRequest, Step::trailers_only(code, message)])
    }

    /// No answer at all.
    pub fn silence() -> Self {
        Self::default()
    }

    /// Holds the request until it is released, then answers as this answer says.
    pub fn held(mut self) -> Self {
        self.steps.insert(0, Step::Hold);
        self
    }

    /// What to do once the client has reset the stream. DATA then waits for the connection's window only: the window of a
    /// dead stream would never open again.
    pub fn after_reset(mut self, steps: impl IntoIterator<Item = Step>) -> Self {
        self.after_reset = steps.into_iter().collect();
        self
    }
}
