//! The rules for source chains, on errors made by hand. Those that can't be made by hand are in `wire`.

use std::{error::Error, fmt, io, sync::Arc};

use steadfast_classify::{ChannelClosed, body_error, call_error, deepest_cause, enhance_your_calm};
use steadfast_core::{BoxError, Local, LocalKind, Outcome};
use tonic::{Code, ConnectError, Status, TimeoutExpired};

/// An error of a layer that is neither tonic's nor ours.
#[derive(Debug)]
struct Foreign(&'static str, Option<BoxError>);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Foreign {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|source| source as _)
    }
}

/// An error that names itself as its source.
#[derive(Debug)]
struct Snake;

impl fmt::Display for Snake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("snake")
    }
}

impl Error for Snake {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

fn foreign(source: impl Into<BoxError>) -> Foreign {
    Foreign("a layer failed", Some(source.into()))
}

fn status(code: Code, source: impl Error + Send + Sync + 'static) -> Status {
    let mut status = Status::new(code, "made here");
    status.set_source(Arc::new(source));
    status
}

fn io(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

fn local(kind: LocalKind) -> Local {
    Local::new(kind, "not now")
}

/// One row: the error, what it means for a call, and for a body.
type Row = (BoxError, Outcome, Outcome);

fn same(error: impl Into<BoxError>, outcome: Outcome) -> Row {
    (error.into(), outcome, outcome)
}

#[test]
fn every_row() {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, NotFound, TimedOut};
    let rows: Vec<Row> = vec![
        // The mark wins over everything, wherever it is.
        same(
            local(LocalKind::NoChannel),
            Outcome::Local(LocalKind::NoChannel),
        ),
        same(
            status(Code::Unavailable, local(LocalKind::Quarantine)),
            Outcome::Local(LocalKind::Quarantine),
        ),
        same(
            foreign(status(Code::Unavailable, local(LocalKind::Drained))),
            Outcome::Local(LocalKind::Drained),
        ),
        same(
            local(LocalKind::NoChannel).because_of(ConnectError("x".into())),
            Outcome::Local(LocalKind::NoChannel),
        ),
        same(
            ConnectError(local(LocalKind::Closed).into()),
            Outcome::Local(LocalKind::Closed),
        ),
        // A channel that doesn't dial again, wherever it is.
        same(ChannelClosed::new("GOAWAY"), Outcome::NeverSent),
        same(
            ConnectError(ChannelClosed::new("GOAWAY").into()),
            Outcome::NeverSent,
        ),
        same(
            foreign(ConnectError(foreign(ChannelClosed::new("x")).into())),
            Outcome::NeverSent,
        ),
        // Dials.
        same(
            ConnectError(io(ConnectionRefused).into()),
            Outcome::DialFailed,
        ),
        same(
            foreign(ConnectError("dns error".into())),
            Outcome::DialFailed,
        ),
        same(
            status(Code::Unavailable, ConnectError("tls".into())),
            Outcome::DialFailed,
        ),
        // Time-outs of this process.
        same(TimeoutExpired(()), Outcome::Timeout),
        same(
            status(Code::Cancelled, TimeoutExpired(())),
            Outcome::Timeout,
        ),
        same(tower::timeout::error::Elapsed::new(), Outcome::Timeout),
        // I/O counts when only the transport wrapped it.
        same(io(BrokenPipe), Outcome::ConnectionLost),
        same(io(TimedOut), Outcome::ConnectionLost),
        same(
            status(Code::Unknown, io(BrokenPipe)),
            Outcome::ConnectionLost,
        ),
        same(foreign(io(NotFound)), Outcome::Other),
        same(
            status(Code::Unauthenticated, foreign(io(NotFound))),
            Outcome::Other,
        ),
        // A status by itself is what a layer made of a status; with a source, its code is a guess.
        same(Status::unavailable("bye"), Outcome::Status(14)),
        same(foreign(Status::permission_denied("no")), Outcome::Status(7)),
        same(
            status(Code::Unavailable, foreign("who knows")),
            Outcome::Other,
        ),
        same(
            status(Code::Unknown, Status::resource_exhausted("full")),
            Outcome::Status(8),
        ),
        same(Status::ok("an error that says OK"), Outcome::Other),
        // An h2 error that neither peer nor library made.
        same(h2::Error::from(h2::Reason::REFUSED_STREAM), Outcome::Other),
        // Nor is its ENHANCE_YOUR_CALM the peer's.
        same(
            h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM),
            Outcome::Other,
        ),
        same(foreign("token expired"), Outcome::Other),
        same(Snake, Outcome::Other),
    ];
    for (error, call, body) in rows {
        assert_eq!(call_error(&*error), call, "call: {error:?}");
        assert_eq!(body_error(&*error), body, "body: {error:?}");
        assert!(!enhance_your_calm(&*error), "{error:?}");
    }
}

#[tokio::test]
async fn a_closed_buffer_never_sent() {
    use tower::{Service, ServiceExt, buffer::Buffer};
    let inner = tower::service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let (mut buffer, worker) = Buffer::<(), _>::pair(inner, 1);
    drop(worker);
    let error = match buffer.ready().await {
        Ok(ready) => ready.call(()).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(call_error(&*error), Outcome::NeverSent);
    assert_eq!(call_error(&foreign(error)), Outcome::NeverSent);
}

#[test]
fn the_deepest_cause_has_something_to_say() {
    let refused = ConnectError(io::Error::from_raw_os_error(111).into());
    let deep = status(Code::Unavailable, foreign(refused));
    assert_eq!(deepest_cause(&deep), "Connection refused (os error 111)");
    let empty = Foreign("outer", Some(Foreign("  ", None).into()));
    assert_eq!(
        deepest_cause(&empty),
        "outer",
        "blank texts are passed over"
    );
    assert_eq!(deepest_cause(&Foreign("", None)), "an error without a text");
    assert_eq!(
        deepest_cause(&Status::unavailable("bye")),
        "bye",
        "a status by its message"
    );
    assert_eq!(deepest_cause(&Snake), "snake");
}

#[test]
fn the_deepest_cause_is_bounded() {
    let long = ChannelClosed::new("ä".repeat(10_000));
    let text = deepest_cause(&long);
    assert!(text.len() <= 256 && text.ends_with('ä'), "{}", text.len());
}

#[test]
fn a_closed_channel_says_why() {
    assert_eq!(
        ChannelClosed::new("GOAWAY").to_string(),
        "the channel is closed: GOAWAY"
    );
}
