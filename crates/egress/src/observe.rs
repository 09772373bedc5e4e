//! Metrics and the words of their labels.

use std::io;

const DISCONNECT: &str = "steadfast.disconnect";

/// Describes the metrics to the recorder that is there when a factory is built.
pub(crate) fn describe() {
    metrics::describe_counter!(
        DISCONNECT,
        metrics::Unit::Count,
        "Connections that had been made and ended, by reason"
    );
}

/// Counts the end of a connection, by its reason in the words of gRFC A94.
pub(crate) fn disconnected(reason: &'static str) {
    metrics::counter!(DISCONNECT, "reason" => reason).increment(1);
}

/// The word for an error of the socket.
pub(crate) fn socket_error(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "connection reset",
        io::ErrorKind::TimedOut => "connection timed out",
        io::ErrorKind::ConnectionAborted => "connection aborted",
        _ => "socket error",
    }
}

/// The words for a GOAWAY, by its error code (RFC 9113, section 7).
pub(crate) fn goaway(code: u32) -> &'static str {
    const WORDS: [&str; 14] = [
        "GOAWAY NO_ERROR",
        "GOAWAY PROTOCOL_ERROR",
        "GOAWAY INTERNAL_ERROR",
        "GOAWAY FLOW_CONTROL_ERROR",
        "GOAWAY SETTINGS_TIMEOUT",
        "GOAWAY STREAM_CLOSED",
        "GOAWAY FRAME_SIZE_ERROR",
        "GOAWAY REFUSED_STREAM",
        "GOAWAY CANCEL",
        "GOAWAY COMPRESSION_ERROR",
        "GOAWAY CONNECT_ERROR",
        "GOAWAY ENHANCE_YOUR_CALM",
        "GOAWAY INADEQUATE_SECURITY",
        "GOAWAY HTTP_1_1_REQUIRED",
    ];
    let word = usize::try_from(code).ok().and_then(|code| WORDS.get(code));
    word.copied().unwrap_or("GOAWAY unknown")
}
