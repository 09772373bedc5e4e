//! The rules for source chains, on errors made by hand. Those that can't be made by hand are in `wire`.

use std::{
    error::Error,
    fmt, io,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use steadfast_classify::{ChannelClosed, body_error, call_error, deepest_cause, enhance_your_calm};
use steadfast_core::{BoxError, Local, LocalKind, Outcome};
use tonic::{Code, ConnectError, Status, TimeoutExpired};
use tower::{Service, ServiceExt, buffer::Buffer};

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

/// It never left, unless it is a body's error: then there was an answer.
fn unsent(error: impl Into<BoxError>) -> Row {
    (error.into(), Outcome::NeverSent, Outcome::ConnectionLost)
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
        // A channel that doesn't dial again, wherever it is; but not once there was an answer.
        unsent(ChannelClosed::new("GOAWAY")),
        unsent(ConnectError(ChannelClosed::new("GOAWAY").into())),
        unsent(foreign(ConnectError(
            foreign(ChannelClosed::new("x")).into(),
        ))),
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

fn hidden_by_a_status(error: BoxError) -> Status {
    let mut status = Status::unavailable("a layer's");
    status.set_source(Arc::from(error));
    status
}

/// hyper's error for a request that it hands back.
async fn given_back() -> hyper::Error {
    let (client, server) = tokio::io::duplex(1024);
    let (executor, io) = (TokioExecutor::new(), TokioIo::new(client));
    let handshake = hyper::client::conn::http2::handshake(executor, io);
    let (mut sender, connection) = handshake.await.unwrap();
    drop((server, connection));
    let request = http::Request::new(Empty::<Bytes>::new());
    sender.send_request(request).await.unwrap_err()
}

/// A service that fails before it takes a request.
struct NotReady(Option<BoxError>);

impl Service<()> for NotReady {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(self.0.take().map_or(Ok(()), Err))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        unreachable!("it is never ready")
    }
}

/// The error of a buffer whose worker is gone.
async fn closed() -> BoxError {
    let inner = tower::service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let (mut buffer, worker) = Buffer::<(), _>::pair(inner, 1);
    drop(worker);
    match buffer.ready().await {
        Ok(ready) => ready.call(()).await.unwrap_err(),
        Err(error) => error,
    }
}

/// T1: a buffer that is closed never sent. Below a layer's error it may be another buffer than the call's, and
/// of a body too.
#[tokio::test]
async fn a_closed_buffer_never_sent() {
    assert_eq!(call_error(&*closed().await), Outcome::NeverSent);
    assert_eq!(body_error(&*closed().await), Outcome::ConnectionLost);
    for hidden in [
        BoxError::from(foreign(closed().await)),
        hidden_by_a_status(closed().await).into(),
    ] {
        assert_eq!(call_error(&*hidden), Outcome::ConnectionLost);
    }
}

/// T1: what the transport promises of its own request isn't believed of another's: hyper gave a request back, but
/// it is a layer that says so. tower's buffer only passes on what it was told.
#[tokio::test]
async fn a_promise_below_a_stranger_is_none() {
    let error = given_back().await;
    assert_eq!(call_error(&error), Outcome::NeverSent);
    assert_eq!(body_error(&error), Outcome::ConnectionLost);
    for hidden in [
        BoxError::from(foreign(error)),
        hidden_by_a_status(given_back().await.into()).into(),
    ] {
        assert_eq!(call_error(&*hidden), Outcome::ConnectionLost, "{hidden:?}");
    }

    let mut buffer = Buffer::new(NotReady(Some(given_back().await.into())), 1);
    let passed_on = match buffer.ready().await {
        Ok(ready) => ready.call(()).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(passed_on.is::<tower::buffer::error::ServiceError>());
    assert_eq!(call_error(&*passed_on), Outcome::NeverSent);
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
