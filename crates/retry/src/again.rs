//! The slow path: attempts after the first one, and all attempts where each has a time-out.

use std::future::{Future, poll_fn};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use steadfast_classify::local_error;
use steadfast_core::{BoxError, LocalKind, Outcome, now};
use tokio::time::{Instant, error::Elapsed, sleep, timeout_at};
use tonic::body::Body;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    Resend,
    call::Call,
    failure::{Answer, Came, Failure},
    guard::guard,
};

/// Where it begins.
pub(crate) enum Begin {
    /// With this request, the first.
    Send(Request<Body>),
    /// With sending again, because of this.
    Again(Resend, BoxError),
}

/// Sends the call until it is answered or there is nothing more to be tried. Cancel safe: the attempt is
/// given up.
pub(crate) async fn run<S, B>(mut call: Call<S>, begin: Begin) -> Answer<B>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let mut request = match begin {
        Begin::Send(request) => request,
        Begin::Again(how, cause) => again(&mut call, how, cause).await?,
    };
    loop {
        let late = call.late().map(|time| now() + time);
        let failure = match attempt(&mut call, request, late).await {
            Came::Up(response) => return Ok(response),
            Came::Stream(response, exchange) => return Ok(guard(call, response, exchange, late)),
            Came::Failed(failure) => failure,
            Came::Read(_) => unreachable!("it was read"),
        };
        request = match call.decide(&failure) {
            Ok(how) => again(&mut call, how, failure.into_cause()).await?,
            Err(why) => return call.give_up(failure, &why),
        };
    }
}

/// Waits, and makes the next request, for which the service is ready then.
async fn again<S, B>(
    call: &mut Call<S>,
    how: Resend,
    cause: BoxError,
) -> Result<Request<Body>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let deadline = call.deadline;
    let service = &mut call.service;
    let ready = async {
        if !how.after.is_zero() {
            sleep(how.after).await;
        }
        poll_fn(|cx| service.poll_ready(cx)).await
    };
    match within(deadline, ready).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(call.last(error.into())),
        Err(_) => {
            let what = "the deadline passed while it was between attempts (phase: retry)";
            return Err(call.local(LocalKind::Deadline, what, cause));
        }
    }
    match call.once_more() {
        Some(request) => Ok(request),
        None => Err(call.last(cause)),
    }
}

/// One attempt, its reply read if it is to be kept.
async fn attempt<S, B>(call: &mut Call<S>, request: Request<Body>, late: Option<Instant>) -> Came<B>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let span = call.span.clone();
    let sent = span.in_scope(|| call.service.call(request));
    let Ok(result) = within(late, sent.instrument(span.clone())).await else {
        return Came::Failed(timed_out());
    };
    let mut reading = match call.headed(result.map_err(Into::into)) {
        Came::Read(reading) => reading,
        came => return came,
    };
    let limit = call.shared.config.reply_limit;
    let progress = call.progress.clone();
    let read = poll_fn(|cx| reading.poll(limit, progress.as_ref(), cx)).instrument(span);
    match within(late, read).await {
        Ok(read) => call.read(reading, read),
        Err(_) => Came::Failed(timed_out()),
    }
}

/// Bounds a future, if there is a bound. The future is asked first, and dropped when this resolves.
async fn within<F: Future>(until: Option<Instant>, future: F) -> Result<F::Output, Elapsed> {
    match until {
        Some(until) => timeout_at(until, future).await,
        None => Ok(future.await),
    }
}

/// The failure of an attempt that took too long.
pub(crate) fn timed_out<B>() -> Failure<B> {
    let cause = Box::new(tower::timeout::error::Elapsed::new());
    let text = "the attempt timed out";
    let error = local_error(LocalKind::Deadline, text, Some(cause));
    Failure::error(Outcome::Timeout, error)
}
