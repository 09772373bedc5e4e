//! A channel's service with its meter beside it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tower_service::Service;

use crate::{ChannelId, Meter, Place, Verdict};

/// One try to warm a new channel, within the time that is given once the probe has reached the
/// transport.
pub type WarmUp =
    Arc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send + Sync>;

/// The service of one channel, with the channel's id, place and [`Meter`] beside it.
///
/// It is what a [`NewChannel`](crate::NewChannel) factory makes and what [`Each`](crate::Each) passes
/// through the channel's layers. The meter travels beside the service and not inside it, so that boxing
/// and layers that know nothing of meters can't lose it. With the feature `tower` it is a
/// `tower::load::Load`, which tower's own balancers read.
#[derive(Clone)]
pub struct Metered<S> {
    id: ChannelId,
    place: Place,
    meter: Meter,
    warm_up: Option<WarmUp>,
    service: S,
}

impl<S> Metered<S> {
    /// A new channel around `service`, with a new id and a meter at zero.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::made(ChannelId::next(), Place::default(), Meter::new(), service)
    }

    /// A channel whose id, place and meter are known: for factories.
    #[must_use]
    pub fn made(id: ChannelId, place: Place, meter: Meter, service: S) -> Self {
        Self {
            id,
            place,
            meter,
            warm_up: None,
            service,
        }
    }

    /// The channel's id.
    #[must_use]
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// The server it leads to.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its meter.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The same channel with its service wrapped or replaced.
    #[must_use]
    pub fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Metered<T> {
        Metered {
            id: self.id,
            place: self.place,
            meter: self.meter,
            warm_up: self.warm_up,
            service: wrap(self.service),
        }
    }

    /// The same channel with a probe of one of its layers, which a pool warms it with unless it has a
    /// probe of its own. The outermost layer that brings one decides.
    #[must_use]
    pub fn with_warm_up(mut self, warm_up: WarmUp) -> Self {
        self.warm_up = Some(warm_up);
        self
    }

    /// The probe that a layer brought.
    #[must_use]
    pub fn warm_up(&self) -> Option<&WarmUp> {
        self.warm_up.as_ref()
    }

    /// The service alone.
    #[must_use]
    pub fn into_service(self) -> S {
        self.service
    }
}

impl<S: fmt::Debug> fmt::Debug for Metered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered")
            .field("id", &self.id)
            .field("place", &self.place)
            .field("meter", &self.meter)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl<S, R> Service<R> for Metered<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.service.call(request)
    }
}

#[cfg(feature = "tower")]
impl<S> tower::load::Load for Metered<S> {
    /// The standing first, then the cost: a channel in reserve is heavier than any open one.
    type Metric = (crate::Standing, u64);

    fn load(&self) -> Self::Metric {
        let reading = self.meter.read();
        (reading.standing(), reading.cost())
    }
}
