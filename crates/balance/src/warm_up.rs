//! What a new channel has to show before it takes requests.

use std::{
    error::Error,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use steadfast_classify::{Exchange, call_error};
use steadfast_core::{BoxError, End, Metered, Outcome, Place, Probe, Standing};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::backoff::backoff;

/// How long a probe may take to be prepared, before it counts as one that couldn't be.
const PREPARE_LIMIT: Duration = Duration::from_secs(10);

type Warming = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Warms a new channel: the pool admits it when this succeeds. Implemented by [`NoWarmUp`] and
/// [`ProbeWarmUp`].
pub trait WarmUp<S>: Send + Sync + 'static {
    /// Warms `channel` within `budget`, what is left of the time to connect.
    fn warm(&self, channel: Metered<S>, budget: Duration) -> Warming;
}

/// A connected channel is ready.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWarmUp;

impl<S> WarmUp<S> for NoWarmUp {
    fn warm(&self, _channel: Metered<S>, _budget: Duration) -> Warming {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A channel is ready when it has answered a probe: with any status, or a reset of the stream.
#[derive(Clone, Debug)]
pub struct ProbeWarmUp<P>(pub(crate) std::sync::Arc<P>);

impl<S, P, B> WarmUp<S> for ProbeWarmUp<P>
where
    P: Probe,
    S: Service<Request<P::Body>, Response = Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    fn warm(&self, channel: Metered<S>, budget: Duration) -> Warming {
        let probe = std::sync::Arc::clone(&self.0);
        Box::pin(async move {
            let meter = channel.meter().clone();
            let place = channel.place().clone();
            let request = prepare(&*probe, &place, || {
                meter.read().standing() == Standing::Condemned
            });
            let request = request.await?;
            let outcome = timeout(budget, ask(channel.into_service(), request)).await;
            match outcome.unwrap_or(Outcome::Timeout) {
                Outcome::Status(_) | Outcome::Http(_) | Outcome::Reset(_) => Ok(()),
                outcome => Err(WarmUpFailed { outcome, budget }.into()),
            }
        })
    }
}

/// Prepares the probe, as often as it takes: a probe that can't be prepared says nothing about the
/// channel. Ends with an error when the channel is lost meanwhile.
async fn prepare<P: Probe>(
    probe: &P,
    place: &Place,
    lost: impl Fn() -> bool,
) -> Result<Request<P::Body>, BoxError> {
    for failures in 1.. {
        match timeout(PREPARE_LIMIT, probe.prepare(place)).await {
            Ok(Ok(request)) => return Ok(request),
            Ok(Err(error)) => {
                tracing::warn!(%place, %error, "a warm-up probe couldn't be prepared")
            }
            Err(_) => tracing::warn!(%place, "a warm-up probe took over 10 s to prepare"),
        }
        sleep(backoff(failures, fastrand::f64())).await;
        if lost() {
            break;
        }
    }
    Err("the channel was lost before its warm-up probe could be prepared".into())
}

/// Sends the probe and reads its answer to the end.
async fn ask<S, Q, B>(mut service: S, request: Request<Q>) -> Outcome
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let ready: Result<(), BoxError> = poll_fn(|cx| service.poll_ready(cx))
        .await
        .map_err(Into::into);
    if let Err(error) = ready {
        return call_error(&*error);
    }
    let sent: Result<_, BoxError> = service.call(request).await.map_err(Into::into);
    let (head, body) = match sent {
        Ok(response) => response.into_parts(),
        Err(error) => return call_error(&*error),
    };
    let mut exchange = Exchange::new();
    exchange.head(&head);
    let mut body = pin!(body);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame {
            Ok(frame) => {
                if let Some(trailers) = frame.trailers_ref() {
                    return exchange.end(&End::Trailers(trailers));
                }
                if let Some(data) = frame.data_ref() {
                    exchange.data(data);
                }
            }
            Err(error) => return exchange.end(&End::Failed(&*error.into())),
        }
    }
    exchange.end(&End::Eos)
}

#[derive(Debug)]
struct WarmUpFailed {
    outcome: Outcome,
    budget: Duration,
}

impl fmt::Display for WarmUpFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outcome, budget } = self;
        write!(
            f,
            "the warm-up probe got no answer within {budget:?}: {outcome}"
        )
    }
}

impl Error for WarmUpFailed {}
