//! B and M: before the response's head.

use super::*;

/// B and M: before the response's head.
pub(crate) fn before_the_head() -> Vec<Row> {
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
        row("M8", steps([interim(), Step::Rst(7)]))
            .seen(
                Unprocessed,
                "tE > hyper(Http2) > h2[reset+remote 7]",
                "stream error received: *",
            )
            .differs(TRANSPORT, format!("Unavailable {H2}")),
        row("B17", peer(Script::ping_only()))
            .body(Breaks::after_a_message)
            .seen(
                Other,
                "tE > hyper(Http2) > h2[reset 2]",
                "stream error sent by user: unexpected internal error encountered",
            ),
        row("B18", peer(Script::ping_only()))
            .body(Breaks::with_a_panic)
            .seen(
                ConnectionLost,
                "tE > hyper(User(DispatchGone), is_user) > user code panicked",
                "user code panicked",
            ),
    ]
}
