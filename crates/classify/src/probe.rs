//! One probe of one channel, and its verdict.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use steadfast_core::{BoxError, End, Outcome, Place, Probe, Probing, Verdict};
use tokio::{
    select,
    time::{sleep, timeout},
};
use tower_service::Service;

use crate::{Exchange, call_error, chain::reset_by_peer};

/// The times that one probe may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeLimits {
    /// To be prepared, and again to come through the channel's layers to the transport: both are where
    /// credentials are fetched.
    pub prepare: Duration,
    /// From there to its status.
    pub answer: Duration,
}

/// Sends one probe through `service` and waits for its status.
///
/// An answer is a gRPC status of any code, a bare HTTP status, or a RST_STREAM of the peer: they show
/// that requests go through. The head alone is none, nor is a connection that ends. A probe that can't
/// be prepared, or doesn't reach the transport in time (which [`Probing`] is told by the channel's
/// [`Bottom`](steadfast_core::Bottom)), was not attempted. The answer's data is dropped as it comes.
/// Cancel safe: the probe is given up.
pub async fn ask<P, S, B>(mut service: S, probe: &P, place: &Place, limits: ProbeLimits) -> Verdict
where
    P: Probe,
    S: Service<Request<P::Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut request = match timeout(limits.prepare, probe.prepare(place)).await {
        Ok(Ok(request)) => request,
        Ok(Err(error)) => return Verdict::NotAttempted(error),
        Err(_) => return late("the probe wasn't prepared", limits.prepare),
    };
    let mark = Probing::new();
    request.extensions_mut().insert(mark.clone());
    let answer = pin!(async {
        let ready: Result<(), BoxError> = poll_fn(|cx| service.poll_ready(cx))
            .await
            .map_err(Into::into);
        match ready {
            Ok(()) => status(service.call(request), &mark).await,
            // "Discard me": the channel is of no more use.
            Err(error) => Verdict::NoAnswer(call_error(&*error)),
        }
    });
    await_verdict(answer, &mark, limits).await
}

async fn await_verdict(
    mut answer: Pin<&mut impl Future<Output = Verdict>>,
    mark: &Probing,
    limits: ProbeLimits,
) -> Verdict {
    select! {
        biased;
        verdict = answer.as_mut() => return verdict,
        () = mark.reached() => {}
        () = sleep(limits.prepare) => {
            return late("the probe didn't reach the transport", limits.prepare);
        }
    }
    let verdict = timeout(limits.answer, answer).await;
    verdict.unwrap_or(Verdict::NoAnswer(Outcome::Timeout))
}

fn late(what: &str, limit: Duration) -> Verdict {
    Verdict::NotAttempted(format!("{what} within {limit:?}").into())
}

fn judge(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Status(_) | Outcome::Http(_) | Outcome::Reset(_) => Verdict::Answered(outcome),
        _ => Verdict::NoAnswer(outcome),
    }
}

/// Reads the answer to its status.
async fn status<F, B, E>(call: F, mark: &Probing) -> Verdict
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = match call.await.map_err(Into::into) {
        Ok(response) => response.into_parts(),
        // A layer between failed it, such as one that fetches credentials.
        Err(error) if !mark.has_reached() => return Verdict::NotAttempted(error),
        Err(error) if reset_by_peer(&*error) => return Verdict::Answered(call_error(&*error)),
        Err(error) => return judge(call_error(&*error)),
    };
    let mut exchange = Exchange::new();
    if let Some(told) = exchange.head(&head) {
        return judge(told);
    }
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame {
            Ok(frame) => {
                if let Some(trailers) = frame.trailers_ref() {
                    return judge(exchange.end(&End::Trailers(trailers)));
                }
                if let Some(data) = frame.data_ref() {
                    exchange.data(data);
                }
            }
            Err(error) => return judge(exchange.end(&End::Failed(&*error.into()))),
        }
    }
    judge(exchange.end(&End::Eos))
}
