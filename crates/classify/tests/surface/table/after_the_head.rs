//! C: after the head.

use super::*;

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
