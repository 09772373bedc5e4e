//! The rows, by the letter of their ids. `tE` is tonic's transport error; the notation is that of
//! `docs/failures.md`, with h2's reasons as numbers.

use std::io::ErrorKind;

use bytes::Bytes;
use steadfast_core::Outcome::{
    ConnectionLost, CutShort, DialFailed, Dropped, GoAway, Http, NeverSent, NoStatus, Protocol,
    Reset, Status, Timeout, Unprocessed,
};
use steadfast_testkit::peer::{
    Accept, At, Last, Ping, Script, Step, Then, Trail, Truncated, header_block,
};

use super::{
    open::{
        Fails, HEAD_LIMIT, LIMIT, Queued, after_message, beside_a_mass_cancel, failing_reads,
        fails_to_connect, goaway, https, keepalive, late_keepalive, later, never_connects,
        no_streams, orphaned, orphaned_after_sending, peer, queued, refused, refused_eagerly,
        scripted, steps, syn_dropped, tuned, unresolvable,
    },
    row::{Open, Row},
};

const TRANSPORT: &str = "Unknown transport error";
/// What a plain close or a TCP reset is called; which, the kernel decides.
const LOST: &str = "*roken pipe*|*onnection reset*";
const HALF: &str = "bytes remaining on stream";
const BODY: &str = "Unknown error reading a body from connection";
const BODY_H2: &str = "h2 protocol error: error reading a body from connection";
const H2: &str = "h2 protocol error: http2 error";

const KEEPALIVE: &str =
    "tE > hyper(Http2, is_timeout) > keep-alive timed out > operation timed out";

const END_HEADERS: u8 = 4;

fn row(id: impl Into<String>, open: Open) -> Row {
    Row::new(id, open)
}

/// The connection was lost before the head.
fn lost(id: &str, open: Open) -> Row {
    row(id, open)
        .seen(ConnectionLost, "tE > hyper(Io) > io(*)", LOST)
        .shown(TRANSPORT)
}

/// The same in the body, with whatever came before.
fn lost_in_body(id: &str, open: Open) -> Row {
    row(id, open)
        .seen(
            ConnectionLost,
            "200, 10 B, Status > hyper(Body) > h2[io *]",
            LOST,
        )
        .differs(BODY, format!("Unknown {BODY_H2}"))
}

/// A whole answer.
fn answer(id: &str, open: Open) -> Row {
    row(id, open)
        .seen(Status(0), "200, 10 B, trailers 0", "")
        .shown("OK")
}

/// What a generated client shows if the stream ends without a status.
fn no_status(row: Row) -> Row {
    row.shown("Unknown *missing grpc-status trailer*")
}

/// The text that h2 has for a reason.
fn reason(code: u32) -> String {
    h2::Reason::from(code).description().to_owned()
}

/// A frame of 20,000 bytes, over the limit that the client announced.
fn too_large() -> Step {
    Step::Bytes(
        [&b"\0\x4e\x20\0\0\0\0\0\x01"[..], &[0; 20_000]]
            .concat()
            .into(),
    )
}

/// A: connecting.
pub(crate) fn connecting() -> Vec<Row> {
    const REFUSED: &str = "tE > ConnectError > tcp connect error > io(ConnectionRefused)";
    let refused_row = |id, open| {
        row(id, open)
            .seen(DialFailed, REFUSED, "Connection refused*")
            .shown("Unavailable tcp connect error")
    };
    vec![
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
        answer("A5b", https(Script::good())),
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
    ]
}

/// B and M: before the response's head.
pub(crate) fn before_the_head() -> Vec<Row> {
    let unprocessed = |id, code: u32, open, server: &str| {
        let line = match code {
            0 => "tE > hyper(Http2) > h2[go_away+remote 0]",
            2 => "tE > hyper(Http2) > h2[go_away+remote 2]",
            _ => "tE > hyper(Http2) > h2[go_away+remote 11]",
        };
        let cause: &str = format!("connection error received: {}*", reason(code)).leak();
        row(id, open)
            .seen(Unprocessed, line, cause)
            .differs(TRANSPORT, format!("{server} {H2}"))
    };
    let frame = |kind, flags, payload| Step::Frame {
        kind,
        flags,
        stream: None,
        payload,
    };
    let interim = || Step::Headers {
        status: 103,
        fields: Vec::new(),
        end: false,
    };
    let cut = frame(1, 0, Bytes::from_static(b"\x88"));
    let no_status_field = frame(
        1,
        END_HEADERS,
        header_block(&[("content-type", "application/grpc")]),
    );
    let promised = header_block(&[
        (":method", "GET"),
        (":path", "/"),
        (":scheme", "http"),
        (":authority", "a"),
    ]);
    let promise = frame(
        5,
        END_HEADERS,
        [&b"\0\0\0\x02"[..], &promised].concat().into(),
    );
    let timed_out = |row: Row| {
        row.seen(Timeout, "tE > TimeoutExpired", "Timeout expired")
            .shown("Cancelled Timeout expired")
    };
    vec![
        lost("B1", peer(Script::fin(At::Request))),
        lost("B2", peer(Script::tcp_reset(At::Request))),
        unprocessed(
            "B3",
            0,
            peer(Script::goaway(0, Last::Zero, Then::KeepOpen)),
            "Internal",
        ),
        unprocessed(
            "B4",
            0,
            peer(Script::goaway(0, Last::Zero, Then::Fin)),
            "Internal",
        ),
        lost("B5", steps([goaway(0, Last::Max), later(), Step::Fin])),
        answer("B6", peer(Script::goaway(0, Last::This, Then::Finish))),
        lost("B6b", steps([goaway(0, Last::This), later(), Step::Fin])),
        unprocessed(
            "B7",
            11,
            steps([
                Step::Goaway {
                    code: 11,
                    last: Last::Zero,
                    debug: Bytes::from_static(b"too_many_pings"),
                },
                Step::Fin,
            ]),
            "ResourceExhausted",
        ),
        lost("B8", peer(Script::goaway(11, Last::This, Then::Fin))),
        unprocessed(
            "B9",
            2,
            peer(Script::goaway(2, Last::Zero, Then::Fin)),
            "Internal",
        ),
        row("B10", peer(Script::goaway(1, Last::This, Then::KeepOpen))).pending(),
        row(
            "B12",
            tuned(Script::ping_only().ping(Ping::Ignore), keepalive),
        )
        .seen(ConnectionLost, KEEPALIVE, "operation timed out")
        .shown("Unavailable http2 error"),
        row("B13", peer(Script::ping_only())).pending(),
        timed_out(row(
            "B14",
            tuned(Script::ping_only(), |endpoint| endpoint.timeout(LIMIT)),
        )),
        timed_out(row("B15", peer(Script::ping_only())).grpc_timeout(LIMIT)),
        row("B16", steps([too_large()]))
            .seen(
                Protocol,
                "tE > hyper(Http2) > h2[go_away+library 6]",
                "connection error detected: frame with invalid size",
            )
            .differs(TRANSPORT, format!("Internal {H2}")),
        row("M1", peer(Script::fin(At::MidHeaders)))
            .seen(ConnectionLost, "tE > hyper(Io) > io(Other)", HALF)
            .shown(TRANSPORT),
        lost("M2", steps([cut.clone(), Step::Fin])),
        row("M3", steps([cut])).pending(),
        lost("M4", steps([interim(), Step::Fin])),
        answer(
            "M5",
            steps([
                interim(),
                Step::headers(),
                Step::good_message(),
                Step::status(0, ""),
            ]),
        ),
        row("M6", steps([no_status_field]))
            .seen(
                Protocol,
                "tE > hyper(Http2) > h2[reset+library 1]",
                "stream error detected: unspecific protocol error detected",
            )
            .differs(TRANSPORT, format!("Internal {H2}")),
        row("M7", steps([promise]))
            .seen(
                Protocol,
                "tE > hyper(Http2) > h2[go_away+library 1]",
                "connection error detected: unspecific protocol error detected",
            )
            .differs(TRANSPORT, format!("Internal {H2}")),
    ]
}

/// E: requests in a queue when their connection went, and other findings.
pub(crate) fn queues() -> Vec<Row> {
    const CLOSED: &str = "tE > hyper(Canceled, is_canceled) > connection closed";
    const GONE: &str =
        "tE > hyper(User(DispatchGone), is_user) > runtime dropped the dispatch task";
    const CONNECT: &str = "tE > ConnectError > tcp connect error > io(TimedOut)";
    let closed = |id, open| {
        row(id, open)
            .seen(NeverSent, CLOSED, "connection closed")
            .shown("Cancelled operation was canceled")
    };
    let gone = |id, open| {
        row(id, open)
            .seen(ConnectionLost, GONE, "runtime dropped the dispatch task")
            .shown(TRANSPORT)
    };
    let fin = || vec![Step::Fin];
    let goaway_fin = || vec![goaway(0, Last::Highest), Step::Fin];
    let goaway_open = || vec![goaway(0, Last::Highest)];
    vec![
        closed("E1", queued(Queued::InHyper, fin)),
        closed("E1g", queued(Queued::InHyper, goaway_fin)),
        closed("E1o", queued(Queued::InHyper, goaway_open)),
        gone("E11", queued(Queued::InH2, fin)),
        gone("E11g", queued(Queued::InH2, goaway_fin)),
        gone("E11o", queued(Queued::InH2, goaway_open)),
        lost("E12", peer(Script::fin(At::Request))),
        row(
            "E13",
            syn_dropped(|endpoint| endpoint.connect_timeout(LIMIT)),
        )
        .seen(DialFailed, CONNECT, "deadline has elapsed")
        .shown("Unavailable tcp connect error"),
        row("E13b", syn_dropped(|endpoint| endpoint)).pending(),
        row("E2z", no_streams(|endpoint| endpoint.timeout(LIMIT)))
            .seen(Timeout, "tE > TimeoutExpired", "Timeout expired")
            .shown("Cancelled Timeout expired"),
        row("E3", beside_a_mass_cancel())
            .seen(
                Protocol,
                "200, 10 B, Status > hyper(Body) > h2[go_away+library 11]",
                "connection error detected: *too_many_internal_resets*",
            )
            .differs(BODY, format!("ResourceExhausted {BODY_H2}")),
        row("E7", orphaned())
            .seen(
                NeverSent,
                "tE > Closed",
                "buffer's worker closed unexpectedly",
            )
            .shown(TRANSPORT),
        gone("E8", orphaned_after_sending()),
        row("E9", peer(Script::trail(Trail::BadDetails)))
            .seen(Status(13), "200 grpc-status 13, 0 B, END", "")
            .shown("PANIC"),
    ]
}

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

/// C: after the head.
pub(crate) fn after_the_head() -> Vec<Row> {
    let half_frame = Step::Bytes(Bytes::from_static(
        b"\0\0\x64\0\0\0\0\0\x01\0\0\0\0\x05\x0a\x03abc",
    ));
    let idle = Step::Frame {
        kind: 0,
        flags: 0,
        stream: Some(99),
        payload: Bytes::from_static(b"x"),
    };
    // In one write: a reader has no turn in which it could open the window.
    let flood = Step::Bytes(
        [&b"\0\x40\0\0\0\0\0\0\x01"[..], &[0; 16_384]]
            .concat()
            .repeat(192)
            .into(),
    );
    let silent = |id, open: Open| {
        row(id, open)
            .seen(Dropped, "200, 10 B, PENDING", "")
            .shown("PENDING")
    };
    let protocol = |id, code: u32, open: Open| {
        let line: &str =
            format!("200, 10 B, Status > hyper(Body) > h2[go_away+library {code}]").leak();
        let cause: &str = format!("connection error detected: {}", reason(code)).leak();
        row(id, open)
            .seen(Protocol, line, cause)
            .differs(BODY, format!("Internal {BODY_H2}"))
    };
    let whole = || [Step::status(0, "")];
    vec![
        lost_in_body("C1", peer(Script::fin(At::Messages(1)))),
        lost_in_body("C2", peer(Script::tcp_reset(At::Messages(1)))),
        row("C2b", after_message([half_frame, Step::Fin]))
            .seen(
                ConnectionLost,
                "200, 10 B, Status > hyper(Body) > h2[io Other]",
                HALF,
            )
            .differs(BODY, format!("Unknown {BODY_H2}")),
        answer("C2c", after_message([Step::status(0, ""), Step::Fin])),
        no_status(row("C3", after_message([goaway(0, Last::Zero)])).seen(
            NoStatus,
            "200, 10 B, END",
            "",
        )),
        lost_in_body("C4", after_message([goaway(0, Last::This), Step::Fin])),
        lost_in_body(
            "C4b",
            after_message([goaway(0, Last::Max), later(), Step::Fin]),
        ),
        row(
            "C5",
            after_message([
                goaway(0, Last::This),
                Step::good_message(),
                Step::status(0, ""),
            ]),
        )
        .seen(Status(0), "200, 20 B, trailers 0", "")
        .shown("stream OK")
        .shown("unary OK"),
        silent("C6", after_message([goaway(11, Last::This)])),
        row("C7", after_message([goaway(2, Last::Zero), Step::Fin]))
            .seen(
                GoAway(2),
                "200, 10 B, Status > hyper(Body) > h2[go_away+remote 2]",
                "connection error received: unexpected internal error encountered",
            )
            .differs(BODY, format!("Internal {BODY_H2}")),
        lost_in_body(
            "C9",
            tuned(Script::head_stop(1).ping(Ping::Ignore), late_keepalive),
        ),
        row(
            "C9b",
            tuned(Script::head_stop(1).ping(Ping::Ignore), late_keepalive),
        )
        .lets_go()
        .patience(HEAD_LIMIT * 2)
        .seen(Dropped, "200, 10 B, PENDING", "")
        .shown("stream PENDING")
        .differs(format!("unary {BODY}"), format!("unary Unknown {BODY_H2}")),
        lost_in_body(
            "C9c",
            tuned(Script::head_stop(1).ping(Ping::Ignore), |endpoint| {
                late_keepalive(endpoint).keep_alive_while_idle(true)
            }),
        )
        .lets_go(),
        silent(
            "C10",
            tuned(Script::head_stop(1), |endpoint| {
                endpoint.timeout(HEAD_LIMIT)
            }),
        )
        .patience(HEAD_LIMIT * 2),
        silent("C10b", peer(Script::head_stop(1)))
            .grpc_timeout(HEAD_LIMIT)
            .patience(HEAD_LIMIT * 2),
        no_status(row("C11", peer(Script::trail(Trail::None))).seen(
            NoStatus,
            "200, 10 B, END",
            "",
        )),
        row("C12", peer(Script::truncated(Truncated::EndStream)))
            .seen(NoStatus, "200, 6 B, END", "")
            .shown("Internal Unexpected EOF decoding stream."),
        row("C13", peer(Script::truncated(Truncated::StatusZero)))
            .seen(CutShort, "200, 6 B, trailers 0", "")
            .shown("unary Internal Missing response message.")
            .shown("stream OK"),
        no_status(row("C14", peer(Script::trail(Trail::NoStatus))).seen(
            NoStatus,
            "200, 10 B, trailers",
            "",
        )),
        row("C15", after_message([Step::status(14, "bye")]))
            .seen(Status(14), "200, 10 B, trailers 14", "")
            .shown("Unavailable bye"),
        row(
            "C16",
            tuned(scripted([Step::headers(), flood]), |endpoint| {
                endpoint.initial_stream_window_size(65_535)
            }),
        )
        .seen(
            Protocol,
            "200, * B, Status > hyper(Body) > h2[reset+library 3]",
            "stream error detected: flow-control protocol violated",
        )
        .differs(BODY, format!("Internal {BODY_H2}")),
        protocol("C17", 6, after_message([too_large()])),
        protocol("C18", 1, after_message([idle])),
        answer(
            "C19",
            after_message(whole().into_iter().chain([Step::Rst(0)])),
        ),
        answer(
            "C20",
            after_message(whole().into_iter().chain([Step::Rst(8)])),
        ),
    ]
}

/// H: unusual answers.
pub(crate) fn unusual_answers() -> Vec<Row> {
    let headers = |fields: &[(&str, &str)], end| Step::Headers {
        status: 200,
        fields: fields
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect(),
        end,
    };
    let data = |bytes: &'static [u8]| Step::Data {
        bytes: Bytes::from_static(bytes),
        end: false,
    };
    let bytes_then_ok = |fields: &[(&str, &str)], bytes| {
        steps([headers(fields, false), data(bytes), Step::status(0, "")])
    };
    let long = "x".repeat(1024);
    let names: Vec<String> = (0..20).map(|number| format!("x-long-{number}")).collect();
    let many: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), long.as_str()))
        .collect();
    let mut rows = vec![
        row("H2", peer(Script::http(503, Some("upstream connect error"))))
            .seen(Http(503), "503, 22 B, END", "")
            .shown("Internal protocol error: received message with invalid compression flag: 117*"),
        row("H3", steps([Step::Headers { status: 503, fields: vec![("grpc-status".into(), "8".into()), ("grpc-message".into(), "slow down".into())], end: true }]))
            .seen(Status(8), "503 grpc-status 8, 0 B, END", "")
            .shown("ResourceExhausted slow down"),
        row("H4", steps([Step::trailers_only(14, "gone")]))
            .seen(Status(14), "200 grpc-status 14, 0 B, END", "")
            .shown("Unavailable gone"),
        row("H5", steps([Step::trailers_only(0, "")]))
            .seen(Status(0), "200 grpc-status 0, 0 B, END", "")
            .shown("unary Internal Missing response message.")
            .shown("stream OK"),
        no_status(row("H6", steps([headers(&[], true)])).seen(NoStatus, "200, 0 B, END", "")),
        row("H7", peer(Script::http(200, Some("<html>hello</html>"))))
            .seen(NoStatus, "200, 18 B, END", "")
            .shown("Internal protocol error: received message with invalid compression flag: 60*"),
        row("H8", peer(Script::trail(Trail::Status(99))))
            .seen(Status(2), "200, 10 B, trailers 99", "")
            .shown("Unknown"),
        row("H9", peer(Script::trail(Trail::OpenHeaders(14))))
            .seen(Status(14), "200 grpc-status 14, 0 B, PENDING", "")
            .shown("Unavailable"),
        row("H10", bytes_then_ok(&[("grpc-encoding", "zstd")], b"\x01\0\0\0\x01x"))
            .seen(Status(0), "200, 6 B, trailers 0", "")
            .shown("Unimplemented Content is compressed with `zstd` which isn't supported"),
        row("H11", bytes_then_ok(&[], b"\x01\0\0\0\x01x"))
            .seen(Status(0), "200, 6 B, trailers 0", "")
            .shown("Internal protocol error: received message with compressed-flag but no grpc-encoding was specified"),
        row("H12", steps([headers(&[], false), data(b"\0\0\x50\0\0")]))
            .seen(Dropped, "200, 5 B, PENDING", "")
            .shown("OutOfRange Error, decoded message length too large: found 5242880 bytes*"),
        row("H13", bytes_then_ok(&[], b"\0\0\0\0\x02\x0a\x05"))
            .seen(Status(0), "200, 7 B, trailers 0", "")
            .shown("Internal failed to decode Protobuf message: *"),
        row("H14", bytes_then_ok(&[], b"\x09\0\0\0\0"))
            .seen(Status(0), "200, 5 B, trailers 0", "")
            .shown("Internal protocol error: received message with invalid compression flag: 9*"),
        row("H15", steps([headers(&many, false), Step::good_message(), Step::status(0, "")]))
            .seen(Protocol, "tE > hyper(Http2) > h2[reset+library 1]", "stream error detected: unspecific protocol error detected")
            .differs(TRANSPORT, format!("Internal {H2}")),
    ];
    for (code, shown) in [
        (400, "Internal"),
        (401, "Unauthenticated"),
        (403, "PermissionDenied"),
        (404, "Unimplemented"),
        (408, "Unknown"),
        (413, "Unknown"),
        (429, "Unavailable"),
        (431, "Unknown"),
        (500, "Unknown"),
        (502, "Unavailable"),
        (503, "Unavailable"),
        (504, "Unavailable"),
    ] {
        let line: &str = format!("{code}, 0 B, END").leak();
        rows.push(
            row(format!("H1.{code}"), peer(Script::http(code, None)))
                .seen(Http(code), line, "")
                .shown(format!(
                    "{shown} grpc-status header missing, mapped from HTTP status code {code}"
                )),
        );
    }
    rows
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

/// All rows but those of TLS.
pub(crate) fn all() -> Vec<Row> {
    [
        connecting(),
        before_the_head(),
        queues(),
        resets(),
        after_the_head(),
        unusual_answers(),
        io_kinds(),
    ]
    .concat()
}
