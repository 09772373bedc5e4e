//! E and C: what only time brings, on a paused clock and without sockets.

use super::*;

/// E and C: what only time brings, or doesn't bring, while a request is queued or after the head.
pub(crate) fn over_time() -> Vec<Row> {
    let deaf = || Script::head_stop(1).ping(Ping::Ignore);
    vec![
        closed("E1k", queued_while_deaf(Queued::InHyper)),
        gone("E11k", queued_while_deaf(Queued::InH2)),
        lost_in_body("C9", tuned_in_memory(deaf(), keepalive)),
        row("C9b", tuned_in_memory(deaf(), keepalive))
            .lets_go()
            .seen(Dropped, "200, 10 B, PENDING", "")
            .shown("stream PENDING")
            .differs(format!("unary {BODY}"), format!("unary Unknown {BODY_H2}")),
        lost_in_body(
            "C9c",
            tuned_in_memory(deaf(), |endpoint| {
                keepalive(endpoint).keep_alive_while_idle(true)
            }),
        )
        .lets_go(),
        silent(
            "C10",
            tuned_in_memory(Script::head_stop(1), |endpoint| endpoint.timeout(LIMIT)),
        ),
        silent(
            "C10b",
            tuned_in_memory(Script::head_stop(1), |endpoint| endpoint),
        )
        .grpc_timeout(LIMIT),
    ]
}
