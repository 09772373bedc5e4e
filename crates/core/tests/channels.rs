//! How channels are made and wrapped: the meter and the id travel beside the service, past any layer
//! (X1), and can be read as tower's `Load` (X2).

mod support;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use steadfast_core::{
    Bottom, BoxError, ChannelId, ChannelLayer, Each, Keep, Meter, Metered, NewChannel, Place,
};
use support::Broken;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, util::BoxCloneService};

/// A service that answers with a text, and counts how it was asked.
#[derive(Clone, Debug, Default)]
struct Echo(Arc<AtomicUsize>);

impl Service<http::Request<&'static str>> for Echo {
    type Response = String;
    type Error = Infallible;
    type Future = Ready<Result<String, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<&'static str>) -> Self::Future {
        ready(Ok(request.into_body().to_owned()))
    }
}

/// A layer that knows nothing of meters: it writes its name around the answer, boxed.
#[derive(Clone, Copy)]
struct Named(&'static str);

impl<S> Layer<S> for Named
where
    S: Service<http::Request<&'static str>, Response = String, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Service = BoxCloneService<http::Request<&'static str>, String, Infallible>;

    fn layer(&self, inner: S) -> Self::Service {
        let name = self.0;
        BoxCloneService::new(inner.map_response(move |answer| format!("{name}({answer})")))
    }
}

/// A layer that takes the channel's meter, and charges it.
#[derive(Clone, Copy)]
struct Charges(u32);

impl<S> ChannelLayer<S> for Charges {
    type Service = (steadfast_core::MeterOwner, S);

    fn layer_channel(&self, channel: Metered<S>) -> Metered<Self::Service> {
        let owner = channel.meter().owner();
        owner.set_charge(self.0);
        channel.map(|service| (owner, service))
    }
}

fn factory() -> impl NewChannel<Service = Bottom<Echo>> {
    |_id: ChannelId, _place: Place| async { Ok::<_, Infallible>(Echo::default()) }
}

/// B12: a closure is a factory; what it makes has the id and place it was asked for and a new meter.
#[tokio::test]
async fn a_closure_makes_metered_channels() {
    let factory = factory();
    let (first, second) = (ChannelId::next(), ChannelId::next());
    let place = Place::new("http://one:80");
    let one = factory.new_channel(first, &place).await.unwrap();
    let two = factory.new_channel(second, &place).await.unwrap();
    assert_eq!((one.id(), one.place()), (first, &place));
    assert_eq!(two.id(), second);
    assert!(!one.meter().same_as(two.meter()));
    assert_eq!(one.meter().read(), Meter::new().read());
    assert_eq!(factory.places(), [Place::default()]);
}

/// B12: a factory is told the place, and called anew at every dial.
#[tokio::test]
async fn a_factory_is_called_at_every_dial() {
    let dials = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dials);
    let factory = move |_id, place: Place| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, BoxError>(format!("{place} {nth}")) }
    };
    for nth in 0..3 {
        let dial = factory.new_channel(ChannelId::next(), &Place::new("a"));
        let made = dial.await.unwrap();
        assert_eq!(made.service().transport(), &format!("a {nth}"));
    }
    assert_eq!(dials.load(Ordering::SeqCst), 3);
}

/// B6: a dial may fail; the error keeps its type through `Each`.
#[tokio::test]
async fn a_dial_may_fail() {
    let fails = |_id: ChannelId, _place: Place| async { Err::<Echo, _>(Broken::new("refused")) };
    let factory = Each(Charges(1)).layer(fails);
    let dial = factory.new_channel(ChannelId::next(), &Place::default());
    let error = dial.await.err().unwrap();
    assert!(error.is::<Broken>());
}

/// X1: `Keep` carries the meter past layers that know nothing of it, boxing ones included, and `Each`
/// puts them on every channel: the first is the outermost.
#[tokio::test]
async fn each_and_keep_carry_the_meter() {
    let factory = ServiceBuilder::new()
        .layer(Each(Keep(Named("outer"))))
        .layer(Each(Keep(Named("inner"))))
        .service(factory());
    assert_eq!(factory.places(), [Place::default()]);
    let (id, place) = (ChannelId::next(), Place::new("a"));
    let channel = factory.new_channel(id, &place).await.unwrap();
    assert_eq!((channel.id(), channel.place()), (id, &place));
    channel.meter().enter();
    let clone = channel.clone();
    assert_eq!(clone.meter().read().in_flight(), 1);
    assert_eq!(
        channel.oneshot(http::Request::new("x")).await,
        Ok("outer(inner(x))".to_owned())
    );
    assert_eq!(
        clone.oneshot(http::Request::new("y")).await,
        Ok("outer(inner(y))".to_owned())
    );
}

/// X1: layers that do take the meter all speak on the same one, in any order, with others between.
#[tokio::test]
async fn channel_layers_share_the_meter() {
    let one = ServiceBuilder::new()
        .layer(Each(Charges(5)))
        .layer(Each(Keep(Named("between"))))
        .service(factory());
    let channel = one.new_channel(ChannelId::next(), &Place::default());
    assert_eq!(channel.await.unwrap().meter().read().charge(), 5);

    let two = ServiceBuilder::new()
        .layer(Each(Charges(5)))
        .layer(Each(Charges(20)))
        .service(factory());
    let dial = two.new_channel(ChannelId::next(), &Place::default());
    let channel = dial.await.unwrap();
    let meter = channel.meter().clone();
    assert_eq!(meter.read().charge(), 25);
    drop(channel);
    assert_eq!(meter.read().charge(), 0, "the charges end with the channel");
}

/// X1: each channel gets its own service of the layer, by one shared layer value.
#[tokio::test]
async fn each_puts_one_layer_value_on_every_channel() {
    #[derive(Clone)]
    struct Counts(Arc<AtomicUsize>);
    impl<S> ChannelLayer<S> for Counts {
        type Service = S;
        fn layer_channel(&self, channel: Metered<S>) -> Metered<S> {
            self.0.fetch_add(1, Ordering::SeqCst);
            channel
        }
    }
    let layered = Arc::new(AtomicUsize::new(0));
    let factory = Each(Counts(Arc::clone(&layered))).layer(factory());
    assert_eq!(layered.load(Ordering::SeqCst), 0, "none is made yet");
    for _ in 0..3 {
        let dial = factory.new_channel(ChannelId::next(), &Place::default());
        dial.await.unwrap();
    }
    assert_eq!(layered.load(Ordering::SeqCst), 3);
}

/// B12: a factory's own places go up through `Each`.
#[test]
fn places_go_up_through_each() {
    struct Two;
    impl NewChannel for Two {
        type Service = Echo;
        type Future = Ready<Result<Metered<Echo>, BoxError>>;
        fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future {
            let channel = Metered::made(id, place.clone(), Meter::new(), Echo::default());
            ready(Ok(channel))
        }
        fn places(&self) -> Vec<Place> {
            vec![Place::new("a"), Place::new("b")]
        }
    }
    let factory = Each(Charges(1)).layer(Each(Keep(Named("n"))).layer(Two));
    assert_eq!(factory.places(), [Place::new("a"), Place::new("b")]);
}

/// X1: one channel without a factory works too, and `Metered` asks and calls its own service.
#[tokio::test]
async fn a_single_channel_needs_no_factory() {
    let echo = Echo::default();
    let asked = Arc::clone(&echo.0);
    let channel = Charges(2).layer_channel(Metered::new(echo));
    assert_eq!(channel.place(), &Place::default());
    assert_eq!(channel.meter().read().charge(), 2);
    let (owner, echo) = channel.into_service();
    let mut channel = Metered::new(echo);
    assert_eq!(
        channel
            .ready()
            .await
            .unwrap()
            .call(http::Request::new("x"))
            .await
            .unwrap(),
        "x"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    drop(owner);
    assert_ne!(channel.id(), Metered::new(()).id());
}

/// X2: as tower's `Load`, a worse standing weighs more than any cost, and within one the cost counts.
#[cfg(feature = "tower")]
#[test]
fn the_load_is_the_standing_then_the_cost() {
    use steadfast_core::Standing;
    use tower::load::Load;

    let (busy, held, shut) = (
        Metered::new(Echo::default()),
        Metered::new(Echo::default()),
        Metered::new(Echo::default()),
    );
    assert_eq!(busy.load(), (Standing::Open, 0));
    (0..100).for_each(|_| busy.meter().enter());
    let (reserve, closed) = (held.meter().owner(), shut.meter().owner());
    reserve.set_standing(Standing::Reserve);
    closed.set_standing(Standing::Shut);
    assert!(busy.load() < held.load() && held.load() < shut.load());
    reserve.set_standing(Standing::Open);
    reserve.set_charge(99);
    assert!(held.load() < busy.load());
    reserve.set_charge(101);
    assert!(held.load() > busy.load());
}
