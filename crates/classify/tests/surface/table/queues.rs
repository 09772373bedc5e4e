//! E: requests in a queue when their connection went, and other findings.

use super::*;

/// E: requests in a queue when their connection went, and other findings.
pub(crate) fn queues() -> Vec<Row> {
    const CONNECT: &str = "tE > ConnectError > tcp connect error > io(TimedOut)";
    let orphan = |id, open| {
        row(id, open)
            .seen(
                NeverSent,
                "tE > Closed",
                "buffer's worker closed unexpectedly",
            )
            .shown(TRANSPORT)
    };
    let fin = || vec![Step::Fin];
    let goaway_fin = || vec![goaway(0, Last::Highest), Step::Fin];
    let goaway_open = || vec![goaway(0, Last::Highest)];
    let goaway_error = || vec![goaway(2, Last::Highest), Step::Fin];
    vec![
        closed("E1", queued(Queued::InHyper, fin)),
        closed("E1g", queued(Queued::InHyper, goaway_fin)),
        closed("E1o", queued(Queued::InHyper, goaway_open)),
        closed("E1e", queued(Queued::InHyper, goaway_error)),
        gone("E11", queued(Queued::InH2, fin)),
        gone("E11g", queued(Queued::InH2, goaway_fin)),
        gone("E11o", queued(Queued::InH2, goaway_open)),
        gone("E11e", queued(Queued::InH2, goaway_error)),
        gone("E11s", opened_unnoticed()),
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
        orphan("E7", orphaned()),
        orphan("E7p", panics_while_connecting()),
        gone("E7b", orphaned_after_sending()),
        row("E9", peer(Script::trail(Trail::BadDetails)))
            .seen(Status(13), "200 grpc-status 13, 0 B, END", "")
            .shown("PANIC"),
        unprocessed("E16", 0, above_the_last_stream(), "Internal"),
        row("E27", idle(Step::Fin))
            .seen(Status(0), "200, 10 B, trailers 0", "")
            .shown("OK"),
        lost("E27b", idle(Step::Forget)),
    ]
}
