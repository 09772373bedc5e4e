//! R and IO: RST_STREAM with every reason, and I/O errors of every kind.

use super::*;

/// R: RST_STREAM, every reason, before and after the head.
pub(crate) fn resets() -> Vec<Row> {
    let line = |code: u32, after: bool| -> &'static str {
        let head = if after {
            "200, 10 B, Status > hyper(Body)"
        } else {
            "tE > hyper(Http2)"
        };
        format!("{head} > h2[reset+remote {code}]").leak()
    };
    (0..=13)
        .chain([99])
        .flat_map(|code| {
            let server = match code {
                0..=4 | 6 | 9 | 10 => "Internal",
                7 => "Unavailable",
                8 => "Cancelled",
                11 => "ResourceExhausted",
                12 => "PermissionDenied",
                _ => "Unknown",
            };
            let outcome = if code == 7 { Unprocessed } else { Reset(code) };
            let cause: &str = format!("stream error received: {}", reason(code)).leak();
            let before = row(format!("RST.{code} before"), peer(Script::rst(code)))
                .seen(outcome, line(code, false), cause)
                .differs(TRANSPORT, format!("{server} {H2}"));
            let after = row(
                format!("RST.{code} after"),
                peer(Script::rst_after_headers(code)),
            );
            let after = if code == 0 {
                no_status(after.seen(NoStatus, "200, 10 B, END", ""))
            } else {
                after
                    .seen(Reset(code), line(code, true), cause)
                    .differs(BODY, format!("{server} {BODY_H2}"))
            };
            [before, after]
        })
        .collect()
}

/// IO: a transport whose reads fail with each kind.
pub(crate) fn io_kinds() -> Vec<Row> {
    let kinds = [
        ErrorKind::ConnectionReset,
        ErrorKind::TimedOut,
        ErrorKind::BrokenPipe,
        ErrorKind::UnexpectedEof,
        ErrorKind::HostUnreachable,
        ErrorKind::Other,
    ];
    let rows = |kind: ErrorKind| {
        let before: &str = format!("tE > hyper(Io) > io({kind:?})").leak();
        let after: &str = format!("200, 10 B, Status > hyper(Body) > h2[io {kind:?}]").leak();
        let cause: &str = kind.to_string().leak();
        [
            row(
                format!("IO.{kind:?} before"),
                failing_reads(kind, Fails::BeforeHead),
            )
            .seen(ConnectionLost, before, cause)
            .shown(TRANSPORT),
            row(
                format!("IO.{kind:?} after"),
                failing_reads(kind, Fails::InBody),
            )
            .seen(ConnectionLost, after, cause)
            .differs(BODY, format!("Unknown {BODY_H2}")),
        ]
    };
    kinds.into_iter().flat_map(rows).collect()
}
