//! Counting requests in flight where no pool does it.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::{
    BoxError, ChannelLayer, End, Meter, Metered, Observe, Observed, ObservedBody, Probing,
};

/// Counts the requests of a channel on its meter, from the call to the end of the response body.
///
/// Steadfast's own pool counts from the pick and needs no such layer. It is for channels under another
/// balancer (tower's p2c reads the count through `Load`) and must be the channel's outermost layer
/// there. Under our pool it would count each request twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlightLayer;

impl<S> ChannelLayer<S> for InFlightLayer {
    type Service = InFlight<S>;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service> {
        let meter = channel.meter().clone();
        channel.map(|inner| InFlight { inner, meter })
    }
}

/// The service of [`InFlightLayer`].
#[derive(Clone, Debug)]
pub struct InFlight<S> {
    inner: S,
    meter: Meter,
}

impl<S, Q, B> Service<Request<Q>> for InFlight<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<B, InFlightObserver>>;
    type Error = BoxError;
    type Future = Observed<S::Future, InFlightObserver>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // A probe is nobody's call.
        let meter = (!Probing::is_on(request.extensions())).then(|| self.meter.clone());
        if let Some(meter) = &meter {
            meter.enter();
        }
        let observer = InFlightObserver(meter);
        Observed::new(self.inner.call(request), observer)
    }
}

/// Takes the request off the meter when its exchange ends.
#[derive(Debug)]
pub struct InFlightObserver(Option<Meter>);

impl Observe for InFlightObserver {
    /// Whichever way it ended, the observer goes with it.
    fn end(self, _end: End<'_>) {}
}

impl Drop for InFlightObserver {
    // Not in `end`: a service that panics in `call` leaves no exchange that could end.
    fn drop(&mut self) {
        if let Some(meter) = &self.0 {
            meter.release();
        }
    }
}
