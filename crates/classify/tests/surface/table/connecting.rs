//! A: connecting.

use super::*;
use crate::TLS;

/// A: connecting.
pub(crate) fn connecting() -> Vec<Row> {
    const REFUSED: &str = "tE > ConnectError > tcp connect error > io(ConnectionRefused)";
    let refused_row = |id, open| {
        row(id, open)
            .seen(DialFailed, REFUSED, "Connection refused*")
            .shown("Unavailable tcp connect error")
    };
    let clear_text = answer("A5b", https(Script::good()));
    let mut rows = vec![
        refused_row("A1", refused("http")),
        refused_row("A1b", refused_eagerly()),
        row("A2", unresolvable())
            .seen(
                DialFailed,
                "tE > ConnectError > dns error > io(*)",
                "failed to lookup address*",
            )
            .shown("Unavailable dns error"),
        row("A3", never_connects(|endpoint| endpoint.timeout(LIMIT))).pending(),
        row("A3b", never_connects(|endpoint| endpoint))
            .grpc_timeout(LIMIT)
            .pending(),
        row(
            "A4",
            never_connects(|endpoint| endpoint.connect_timeout(LIMIT)),
        )
        .seen(DialFailed, "tE > io(TimedOut)", "deadline has elapsed")
        .shown(TRANSPORT),
        refused_row("A5", refused("https")),
        row("A6", peer(Script::fin(At::Accept)))
            .seen(ConnectionLost, "tE > hyper(Io) > io(*)", LOST)
            .seen(
                NeverSent,
                "tE > hyper(Canceled, is_canceled) > connection closed",
                "connection closed",
            )
            .shown(TRANSPORT)
            .shown("Cancelled operation was canceled"),
        row("A7", peer(Script::tcp_reset(At::Accept)))
            .seen(ConnectionLost, "tE > hyper(Io) > io(*)", LOST)
            .seen(
                DialFailed,
                "tE > ConnectError > *io(ConnectionReset)",
                "Connection reset*",
            )
            .seen(
                NeverSent,
                "tE > hyper(Canceled, is_canceled) > connection closed",
                "connection closed",
            )
            .shown(TRANSPORT)
            .shown("Unavailable tcp connect error")
            .shown("Cancelled operation was canceled"),
        row("A8", peer(Script::http1()))
            .seen(
                Protocol,
                "tE > hyper(Http2) > h2[go_away+library 6]",
                "connection error detected: frame with invalid size",
            )
            .seen(
                NeverSent,
                "tE > hyper(Canceled, is_canceled) > connection closed",
                "connection closed",
            )
            .differs(TRANSPORT, format!("Internal {H2}"))
            .shown("Cancelled operation was canceled"),
        row("A10", fails_to_connect())
            .seen(
                DialFailed,
                "tE > ConnectError > io(ConnectionReset)",
                "connection reset",
            )
            .shown("Unavailable connection reset"),
        row("A9", peer(Script::good().accept(Accept::Mute))).pending(),
        row("A9b", tuned(Script::good().accept(Accept::Mute), keepalive))
            .seen(ConnectionLost, KEEPALIVE, "operation timed out")
            .shown("Unavailable http2 error"),
    ];
    // With TLS built in, tonic refuses the scheme: see T9.
    rows.extend((!TLS).then_some(clear_text));
    rows
}
