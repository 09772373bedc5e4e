//! How channels are made, and how layers are put on each of them.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower_layer::Layer;

use crate::{Bottom, BottomLayer, BoxError, ChannelId, Meter, Metered, Place};

/// Makes channels: async and fallible, called anew for every dial, so that credentials and
/// certificates can rotate.
///
/// A closure `Fn(ChannelId, Place) -> impl Future<Output = Result<service, error>>` is one.
///
/// ```
/// use steadfast_core::{BoxError, ChannelId, NewChannel, Place};
///
/// // A real one returns `Endpoint::from_shared(place.to_string())?.connect().await`.
/// fn is_factory<F: NewChannel>(factory: F) -> Vec<Place> {
///     factory.places()
/// }
/// let places = is_factory(|_id: ChannelId, place: Place| async move {
///     Ok::<_, BoxError>(format!("a service that leads to {place}"))
/// });
/// assert_eq!(places, [Place::new("default")]);
/// ```
pub trait NewChannel: Send + Sync + 'static {
    /// The service of a channel, without its meter.
    type Service;
    /// The dial in progress. Dropping it gives the dial up.
    type Future: Future<Output = Result<Metered<Self::Service>, BoxError>> + Send + 'static;

    /// Dials `place` and makes a channel with this id. It resolves when the channel is ready to take
    /// requests; the caller bounds the time.
    fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future;

    /// The places that the factory knows of itself: what a pool dials when it is given no others.
    fn places(&self) -> Vec<Place> {
        vec![Place::default()]
    }
}

impl<F, Fut, S, E> NewChannel for F
where
    F: Fn(ChannelId, Place) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, E>> + Send + 'static,
    S: 'static,
    E: Into<BoxError>,
{
    type Service = Bottom<S>;
    type Future = Dial<Fut>;

    fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future {
        Dial {
            inner: self(id, place.clone()),
            id,
            place: place.clone(),
        }
    }
}

pin_project! {
    /// The dial of a factory that is a closure: gives the bare service its meter and its bottom.
    #[derive(Debug)]
    pub struct Dial<F> {
        #[pin]
        inner: F,
        id: ChannelId,
        place: Place,
    }
}

impl<F, S, E> Future for Dial<F>
where
    F: Future<Output = Result<S, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Metered<Bottom<S>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Pending: the closure's future holds the waker.
        this.inner.poll(cx).map(|made| match made {
            Ok(service) => Ok(Metered::made(
                *this.id,
                this.place.clone(),
                Meter::new(),
                BottomLayer.layer(service),
            )),
            Err(error) => Err(error.into()),
        })
    }
}

/// A layer that knows it is put on a channel, and so gets the channel's meter.
pub trait ChannelLayer<S> {
    /// The channel's service with this layer around it.
    type Service;

    /// Puts the layer on one channel.
    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service>;
}

/// Makes any tower layer a [`ChannelLayer`]: the channel keeps its meter past it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep<L>(pub L);

impl<L, S> ChannelLayer<S> for Keep<L>
where
    L: Layer<S>,
{
    type Service = L::Service;

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service> {
        channel.map(|service| self.0.layer(service))
    }
}

/// Lifts a [`ChannelLayer`] so that it is put on every channel a factory makes.
///
/// In a `ServiceBuilder` it stands below the pool's layer and above the factory. Layers that are not
/// ours go in as `Each(Keep(layer))`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Each<L>(pub L);

impl<L, F> Layer<F> for Each<L>
where
    L: Clone,
{
    type Service = EachFactory<L, F>;

    fn layer(&self, factory: F) -> Self::Service {
        EachFactory {
            layer: Arc::new(self.0.clone()),
            factory,
        }
    }
}

/// The factory that [`Each`] makes of another one.
#[derive(Clone, Debug)]
pub struct EachFactory<L, F> {
    layer: Arc<L>,
    factory: F,
}

impl<L, F> NewChannel for EachFactory<L, F>
where
    F: NewChannel,
    L: ChannelLayer<F::Service> + Send + Sync + 'static,
{
    type Service = L::Service;
    type Future = EachDial<L, F::Future>;

    fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future {
        EachDial {
            inner: self.factory.new_channel(id, place),
            layer: Arc::clone(&self.layer),
        }
    }

    fn places(&self) -> Vec<Place> {
        self.factory.places()
    }
}

pin_project! {
    /// A dial whose channel gets a layer when it is made.
    #[derive(Debug)]
    pub struct EachDial<L, F> {
        #[pin]
        inner: F,
        layer: Arc<L>,
    }
}

impl<L, F, S> Future for EachDial<L, F>
where
    F: Future<Output = Result<Metered<S>, BoxError>>,
    L: ChannelLayer<S>,
{
    type Output = Result<Metered<L::Service>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Pending: the inner dial holds the waker.
        this.inner
            .poll(cx)
            .map_ok(|channel| this.layer.layer_channel(channel))
    }
}
