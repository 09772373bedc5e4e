//! The layers in every order and with other people's layers between them: they compile, and serve.

use steadfast::{
    BalanceConfig, BalanceLayer, BoxError, ChannelLayer, Each, Egress, EgressConfig, InFlightLayer,
    Keep, Metered, PenaltyConfig, PenaltyWindowLayer, TonicBodyLayer,
};
use steadfast_core::{ChannelId, NewChannel, Place};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_tests::{
    echo::EchoProcess,
    soon,
    stacks::{BoxLayer, Boxed, header, serves},
};
use tonic::{
    service::{InterceptorLayer, interceptor::InterceptedService},
    transport::Endpoint,
};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http::trace::TraceLayer;

fn balance() -> BalanceLayer {
    BalanceLayer::new(BalanceConfig::fixed(2)).unwrap()
}

fn penalty() -> PenaltyWindowLayer {
    PenaltyWindowLayer::new(PenaltyConfig::default()).unwrap()
}

/// X1: every subset and order of the layers that go onto channels. A foreign one is tower-http's, a boxed
/// one hides the type.
#[tokio::test]
async fn every_subset_and_order_of_channel_layers() {
    let echo = EchoProcess::start().await;
    let egress = || Egress::new(echo.uri(), EgressConfig::default()).unwrap();
    macro_rules! check {
        ($($layer:expr),*) => {{
            let stack = ServiceBuilder::new().layer(balance())$(.layer(Each($layer)))*.service(egress());
            serves(stringify!($($layer),*), stack).await;
        }};
    }
    check!();
    check!(penalty());
    check!(Keep(header()));
    check!(Keep(BoxLayer));
    check!(penalty(), Keep(header()));
    check!(Keep(header()), penalty());
    check!(penalty(), Keep(BoxLayer));
    check!(Keep(BoxLayer), penalty());
    check!(Keep(header()), Keep(BoxLayer));
    check!(Keep(BoxLayer), Keep(header()));
    check!(penalty(), Keep(header()), Keep(BoxLayer));
    check!(penalty(), Keep(BoxLayer), Keep(header()));
    check!(Keep(header()), penalty(), Keep(BoxLayer));
    check!(Keep(header()), Keep(BoxLayer), penalty());
    check!(Keep(BoxLayer), penalty(), Keep(header()));
    check!(Keep(BoxLayer), Keep(header()), penalty());
    check!(
        penalty(),
        Keep(TonicBodyLayer),
        Keep(TraceLayer::new_for_grpc()),
        penalty()
    );
}

/// X1: a tonic interceptor on each channel, as an auth layer would be, written for tonic's own body.
#[tokio::test]
async fn an_interceptor_on_each_channel() {
    let echo = EchoProcess::start().await;
    let interceptor = InterceptorLayer::new(|mut request: tonic::Request<()>| {
        request
            .metadata_mut()
            .insert("token", "t".parse().expect("it is ASCII"));
        Ok(request)
    });
    let stack = ServiceBuilder::new()
        .layer(balance())
        .layer(Each(penalty()))
        .layer(Each(Keep(interceptor)))
        .service(Egress::new(echo.uri(), EgressConfig::default()).unwrap());
    serves("an interceptor below", stack.clone()).await;
    let above = InterceptedService::new(stack, |request: tonic::Request<()>| Ok(request));
    serves("and one above", above).await;
}

/// X1: tower-http's tracing, a header layer and a boxed service above the pool.
#[tokio::test]
async fn foreign_layers_above_the_pool() {
    let echo = EchoProcess::start().await;
    let egress = Egress::new(echo.uri(), EgressConfig::default()).unwrap();
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_grpc())
        .layer(header())
        .layer(TonicBodyLayer)
        .layer(balance())
        .layer(Each(penalty()))
        .service(egress);
    serves("tower-http above", stack.clone()).await;
    serves(
        "boxed above",
        Boxed::new(TonicBodyLayer.layer(stack).map_err(Into::into)),
    )
    .await;
}

/// X1: one layer around one plain tonic channel, with neither factory nor pool.
#[tokio::test]
async fn one_layer_around_one_channel() {
    let echo = EchoProcess::start().await;
    let channel = Endpoint::from_shared(echo.uri()).unwrap().connect_lazy();
    serves("a penalty window alone", penalty().layer(channel)).await;
}

/// X1: any closure that makes a tonic channel is a factory.
#[tokio::test]
async fn a_closure_is_a_factory() {
    let echo = EchoProcess::start().await;
    let uri = echo.uri();
    let factory = move |_: ChannelId, _: Place| {
        let endpoint = Endpoint::from_shared(uri.clone());
        async move { endpoint?.connect().await }
    };
    let stack = ServiceBuilder::new()
        .layer(balance())
        .layer(Each(penalty()))
        .service(factory);
    serves("a closure", stack).await;
}

/// X2: tower's own p2c in place of our pool, with our per-channel layers under it: it reads their meters,
/// and sends little to the channel that fails.
#[tokio::test]
async fn towers_p2c_on_our_channel_layers() {
    let good = EchoProcess::start().await;
    let peer = steadfast_testkit::peer::Script::trail(steadfast_testkit::peer::Trail::Only(14));
    let bad = steadfast_testkit::peer::Peer::start(peer).unwrap();
    let layer = penalty();
    let mut channels = Vec::new();
    for uri in [good.uri(), bad.uri(), good.uri()] {
        let egress = Egress::new(uri, EgressConfig::default()).unwrap();
        let place = egress.places().remove(0);
        let made = soon("a dial", egress.new_channel(ChannelId::next(), &place))
            .await
            .unwrap();
        let made: Metered<_> = InFlightLayer.layer_channel(layer.layer_channel(made));
        channels.push(made);
    }
    let meters: Vec<_> = channels
        .iter()
        .map(|channel| channel.meter().clone())
        .collect();
    let discover = tower::discover::ServiceList::new(channels);
    let balance = tower::balance::p2c::Balance::new(discover);
    let buffered = tower::buffer::Buffer::new(balance, 64);
    let mut failed = 0;
    for _ in 0..200 {
        let mut client = EchoClient::new(
            ServiceBuilder::new()
                .map_err(text)
                .service(buffered.clone()),
        );
        failed += usize::from(
            soon("a call", client.unary(EchoRequest::default()))
                .await
                .is_err(),
        );
    }
    assert!(
        (1..=10).contains(&failed),
        "{failed} of 200: p2c steers away from the one that fails"
    );
    assert!(meters.iter().all(|meter| meter.read().in_flight() == 0));
    drop(good);
}

fn text(error: BoxError) -> tonic::Status {
    tonic::Status::from_error(error)
}
