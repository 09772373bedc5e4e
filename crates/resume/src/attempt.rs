//! The attempts of a call, until one has a head that its body can follow.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
use http_body::Body as HttpBody;
use steadfast_classify::{Exchange, call_error, details, local_error};
use steadfast_core::{Attempt, BoxError, LocalKind, Outcome, now};
use tokio::time::sleep_until;
use tonic::body::Body;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    call::Call,
    failure::{Came, Failure},
    gap::Gap,
    next::Next,
};

/// Where it begins.
pub(crate) enum Begin<B> {
    /// With this request, the first.
    Send(Request<Body>),
    /// With an attempt that failed.
    Failed(Failure<B>),
}

/// What the attempts came to.
pub(crate) enum Opened<S, B> {
    /// A stream: its head, and its body that is to be read.
    Stream(Box<Call<S>>, Parts, Incoming<B>),
    /// All was delivered before.
    Complete,
    /// The end, for the caller.
    Up(Came<B>),
}

/// The rest of an attempt whose head came.
pub(crate) struct Incoming<B> {
    pub(crate) body: B,
    pub(crate) exchange: Exchange,
    pub(crate) gap: Gap,
}

/// Sends the call until it is answered or there is nothing more to be tried. Cancel safe: the attempt is
/// given up.
pub(crate) async fn open<S, B>(mut call: Box<Call<S>>, mut begin: Begin<B>) -> Opened<S, B>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
{
    loop {
        let failure = match begin {
            Begin::Failed(failure) => failure,
            Begin::Send(request) => match attempt(&mut call, request).await {
                Ok((parts, incoming)) => {
                    call.headed(&parts);
                    return Opened::Stream(call, parts, incoming);
                }
                Err(failure) => failure,
            },
        };
        begin = match call.next(failure.outcome, failure.pushback()).await {
            Next::Send(request) => Begin::Send(request),
            Next::Complete => return Opened::Complete,
            Next::GiveUp(why) => return Opened::Up(failure.give_up(&why, &mut call.tried)),
        };
    }
}

type Headed<B> = Result<(Parts, Incoming<B>), Failure<B>>;

/// One attempt, to its head.
async fn attempt<S, B>(call: &mut Call<S>, request: Request<Body>) -> Headed<B>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
{
    let span = call.span.clone();
    let sent = span.in_scope(|| call.service.call(request));
    let mut sent = pin!(sent.instrument(span));
    let header_timeout = call.shared.config.header_timeout;
    let mut late = pin!(sleep_until(now() + header_timeout));
    let mut gap = call.gap();
    let result = poll_fn(|cx| {
        if let Poll::Ready(result) = sent.as_mut().poll(cx) {
            return Poll::Ready(Ok(result));
        }
        // Pending: the timers hold the waker.
        while late.as_mut().poll(cx).is_ready() {
            if gap.is_owed() {
                return Poll::Ready(Err(header_late(header_timeout)));
            }
            late.as_mut().reset(now() + header_timeout);
        }
        gap.poll(cx)
            .map(|(outcome, error)| Err(Failure::error(outcome, error)))
    })
    .await;
    let response = match result {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let error = error.into();
            return Err(Failure::error(outcome(call, &error), error));
        }
        Err(failure) => return Err(failure),
    };
    call.see_channel();
    let (mut parts, body) = response.into_parts();
    details::clean(&mut parts.headers);
    let mut exchange = Exchange::new();
    match exchange.head(&parts) {
        None => {
            gap.stop();
            Ok((
                parts,
                Incoming {
                    body,
                    exchange,
                    gap,
                },
            ))
        }
        Some(outcome) => Err(Failure {
            outcome,
            came: Came::Head(Response::from_parts(parts, body)),
        }),
    }
}

fn header_late<B>(limit: Duration) -> Failure<B> {
    let text = format!("no response head came for {limit:?} (resume.header_timeout)");
    let error = local_error(LocalKind::Deadline, text, None);
    Failure::error(Outcome::Timeout, error)
}

/// What became of a call that failed. A layer between may have hidden it from the error, but not from the
/// handle.
fn outcome<S>(call: &Call<S>, error: &BoxError) -> Outcome {
    let told = || call.tried.attempt.as_ref().and_then(Attempt::outcome);
    match call_error(&**error) {
        Outcome::Other => told()
            .filter(|outcome| !outcome.is_ok() && *outcome != Outcome::Dropped)
            .unwrap_or(Outcome::Other),
        outcome => outcome,
    }
}
