//! What a new channel has to show before it takes requests.

use std::{error::Error, fmt, future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use steadfast_classify::{ProbeLimits, ask};
use steadfast_core::{BoxError, Meter, Metered, Outcome, Place, Probe, Standing, Verdict};
use tokio::time::sleep;
use tower_service::Service;

use crate::backoff::backoff;

/// How long a probe may take to be prepared, and again to reach the transport, before it counts as one
/// that wasn't attempted.
const PREPARE_LIMIT: Duration = Duration::from_secs(10);

type Warming = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Warms a new channel: the pool admits it when this succeeds. Implemented by [`NoWarmUp`] and
/// [`ProbeWarmUp`].
pub trait WarmUp<S>: Send + Sync + 'static {
    /// Warms `channel` within `budget`, what is left of the time to connect.
    fn warm(&self, channel: Metered<S>, budget: Duration) -> Warming;
}

/// A connected channel is ready; where one of its layers brings a probe (stall detection does), one that
/// has answered it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWarmUp;

impl<S> WarmUp<S> for NoWarmUp {
    fn warm(&self, channel: Metered<S>, budget: Duration) -> Warming {
        let Some(warm_up) = channel.warm_up().cloned() else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let (meter, place) = (channel.meter().clone(), channel.place().clone());
        Box::pin(until_attempted(meter, place, budget, move || {
            warm_up(budget)
        }))
    }
}

/// A channel is ready when it has answered a probe: with any status, or a reset of the stream.
#[derive(Clone, Debug)]
pub struct ProbeWarmUp<P>(pub(crate) std::sync::Arc<P>);

impl<S, P, B> WarmUp<S> for ProbeWarmUp<P>
where
    P: Probe,
    S: Service<Request<P::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    fn warm(&self, channel: Metered<S>, budget: Duration) -> Warming {
        let probe = std::sync::Arc::clone(&self.0);
        let (meter, place) = (channel.meter().clone(), channel.place().clone());
        let limits = ProbeLimits {
            prepare: PREPARE_LIMIT,
            answer: budget,
        };
        let to = place.clone();
        Box::pin(until_attempted(meter, place, budget, move || {
            let (probe, to) = (std::sync::Arc::clone(&probe), to.clone());
            let service = channel.service().clone();
            async move { ask(service, &*probe, &to, limits).await }
        }))
    }
}

/// Probes as often as it takes until a probe was attempted: one that couldn't be prepared says nothing
/// about the channel. Ends with an error when the channel is lost meanwhile.
async fn until_attempted<F>(
    meter: Meter,
    place: Place,
    budget: Duration,
    probe: impl Fn() -> F,
) -> Result<(), BoxError>
where
    F: Future<Output = Verdict>,
{
    for failures in 1.. {
        match probe().await {
            Verdict::Answered(_) => return Ok(()),
            Verdict::NotAttempted(error) => {
                tracing::warn!(%place, %error, "a warm-up probe wasn't attempted");
            }
            Verdict::NoAnswer(outcome) => return Err(WarmUpFailed { outcome, budget }.into()),
            verdict => return Err(verdict.to_string().into()),
        }
        sleep(backoff(failures, fastrand::f64())).await;
        if meter.read().standing() == Standing::Condemned {
            break;
        }
    }
    Err("the channel was lost before its warm-up probe was attempted".into())
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
