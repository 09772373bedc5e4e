//! The rows, by the letter of their ids. `tE` is tonic's transport error; the notation is that of
//! `docs/failures.md`, with h2's reasons as numbers.

mod after_the_head;
mod before_the_head;
mod connecting;
mod over_time;
mod queues;
mod resets;
mod unusual_answers;

use std::io::ErrorKind;

use bytes::Bytes;
use steadfast_core::Outcome::{
    ConnectionLost, CutShort, DialFailed, Dropped, GoAway, Http, NeverSent, NoStatus, Other,
    Protocol, Reset, Status, Timeout, Unprocessed,
};
use steadfast_testkit::peer::{
    Accept, At, Last, Ping, Script, Step, Then, Trail, Truncated, header_block,
};

pub(crate) use self::{
    after_the_head::after_the_head,
    before_the_head::before_the_head,
    connecting::connecting,
    over_time::over_time,
    queues::queues,
    resets::{io_kinds, resets},
    unusual_answers::unusual_answers,
};
use crate::surface::{
    open::{bodies::*, dials::*, failing::*, gone::*, queued::*, *},
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

/// hyper hands the request back.
fn closed(id: &str, open: Open) -> Row {
    const CLOSED: &str = "tE > hyper(Canceled, is_canceled) > connection closed";
    row(id, open)
        .seen(NeverSent, CLOSED, "connection closed")
        .shown("Cancelled operation was canceled")
}

/// hyper's dispatch task ended with the request.
fn gone(id: &str, open: Open) -> Row {
    const GONE: &str =
        "tE > hyper(User(DispatchGone), is_user) > runtime dropped the dispatch task";
    row(id, open)
        .seen(ConnectionLost, GONE, "runtime dropped the dispatch task")
        .shown(TRANSPORT)
}

/// Nothing comes after a message.
fn silent(id: &str, open: Open) -> Row {
    row(id, open)
        .seen(Dropped, "200, 10 B, PENDING", "")
        .shown("PENDING")
}

/// A GOAWAY that leaves the request out.
fn unprocessed(id: &str, code: u32, open: Open, server: &str) -> Row {
    let line: &str = format!("tE > hyper(Http2) > h2[go_away+remote {code}]").leak();
    let cause: &str = format!("connection error received: {}*", reason(code)).leak();
    row(id, open)
        .seen(Unprocessed, line, cause)
        .differs(TRANSPORT, format!("{server} {H2}"))
}

/// The connection was lost in the body, after whatever came before.
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
pub(crate) fn answer(id: &str, open: Open) -> Row {
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
