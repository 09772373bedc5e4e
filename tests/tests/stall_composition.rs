//! StallDetect among other layers: in every order, around one channel, and under tower's own balancer.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use steadfast::{
    BalanceConfig, BalanceLayer, BoxError, ChannelLayer, Each, Egress, EgressConfig, InFlightLayer,
    Keep, Local, LocalKind, Metered, PenaltyConfig, PenaltyWindowLayer, TonicBodyLayer,
};
use steadfast_core::{BottomLayer, now};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_stall::{Condition, HealthProbe, StallConfig, StallDetectLayer};
use steadfast_testkit::{
    memory,
    peer::{Peer, Script},
    proxy::Which,
};
use steadfast_tests::{
    echo::EchoProcess,
    stacks::{BoxLayer, header, serves},
};
use tokio::time::sleep;
use tonic::{
    service::{InterceptorLayer, interceptor::InterceptedService},
    transport::Endpoint,
};
use tower::{Layer, ServiceBuilder};
use tower_http::trace::TraceLayer;

const SECOND: Duration = Duration::from_secs(1);

fn balance() -> BalanceLayer {
    BalanceLayer::new(BalanceConfig::fixed(2)).unwrap()
}

fn penalty() -> PenaltyWindowLayer {
    PenaltyWindowLayer::new(PenaltyConfig::default()).unwrap()
}

fn stall() -> StallDetectLayer {
    StallDetectLayer::default()
}

/// X1, S9: every order of the layers that go onto channels, with foreign and boxed ones between.
#[tokio::test]
async fn every_order_of_channel_layers() {
    let echo = EchoProcess::start().await;
    let egress = || Egress::new(echo.uri(), EgressConfig::default()).unwrap();
    macro_rules! check {
        ($($layer:expr),*) => {{
            let stack = ServiceBuilder::new().layer(balance())$(.layer(Each($layer)))*.service(egress());
            serves(stringify!($($layer),*), stack).await;
        }};
    }
    check!(stall());
    check!(stall(), penalty());
    check!(penalty(), stall());
    check!(stall(), Keep(header()));
    check!(Keep(header()), stall());
    check!(stall(), Keep(BoxLayer));
    check!(Keep(BoxLayer), stall());
    check!(stall(), penalty(), Keep(header()));
    check!(stall(), Keep(header()), penalty());
    check!(penalty(), stall(), Keep(header()));
    check!(penalty(), Keep(header()), stall());
    check!(Keep(header()), stall(), penalty());
    check!(Keep(header()), penalty(), stall());
    check!(stall(), penalty(), Keep(BoxLayer));
    check!(stall(), Keep(BoxLayer), penalty());
    check!(penalty(), Keep(BoxLayer), stall());
    check!(Keep(BoxLayer), penalty(), stall());
    check!(stall(), stall());
    check!(
        stall(),
        Keep(TonicBodyLayer),
        Keep(TraceLayer::new_for_grpc()),
        stall()
    );
}

/// X1: a tonic interceptor on each channel, below and above; the probe goes through it.
#[tokio::test]
async fn an_interceptor_on_each_channel() {
    let echo = EchoProcess::start().await;
    let interceptor = InterceptorLayer::new(|mut request: tonic::Request<()>| {
        let token = "t".parse().expect("it is ASCII");
        request.metadata_mut().insert("token", token);
        Ok(request)
    });
    let stack = ServiceBuilder::new()
        .layer(balance())
        .layer(Each(stall()))
        .layer(Each(Keep(interceptor)))
        .service(Egress::new(echo.uri(), EgressConfig::default()).unwrap());
    serves("an interceptor below", stack.clone()).await;
    let above = InterceptedService::new(stack, |request: tonic::Request<()>| Ok(request));
    serves("and one above", above).await;
}

/// X1, S9: around one plain tonic channel that dials when it is first used, made outside a runtime's tasks.
#[tokio::test]
async fn around_one_lazy_channel() {
    let echo = EchoProcess::start().await;
    let layer = StallDetectLayer::new(StallConfig::alone(), HealthProbe::new()).unwrap();
    let channel = Endpoint::from_shared(echo.uri()).unwrap().connect_lazy();
    let service = layer.layer(channel);
    serves("stall detection alone", service).await;
    assert_eq!(layer.snapshot().len(), 0, "it left with its last clone");
}

/// X2: tower's own p2c in place of our pool. A channel that falls silent is passed over from its quarantine
/// on, and used again when it is restored.
#[tokio::test(start_paused = true)]
async fn towers_p2c_on_our_channel_layers() {
    // The type of the stack is too deep for rustc to see that its futures are `Send`.
    tokio::task::LocalSet::new().run_until(under_p2c()).await;
}

async fn under_p2c() {
    let (network, incoming) = memory::network();
    let peer = Peer::serve(incoming, |_| Script::good());
    let layer = stall();
    let mut channels: Vec<Metered<_>> = Vec::new();
    for _ in 0..4 {
        let endpoint = Endpoint::from_static("http://memory");
        let channel = endpoint
            .connect_with_connector(network.clone())
            .await
            .unwrap();
        let bottom = BottomLayer.layer_channel(Metered::new(channel));
        let channel = penalty().layer_channel(layer.layer_channel(bottom));
        channels.push(InFlightLayer.layer_channel(channel));
    }
    let id = channels[0].id();
    let condition = || {
        let states = layer.snapshot();
        states.iter().find(|it| it.id == id).unwrap().condition
    };
    let discover = tower::discover::ServiceList::new(channels);
    let balance = tower::balance::p2c::Balance::new(discover);
    let buffered = tower::buffer::Buffer::new(balance, 1_024);
    let failed = std::sync::Arc::new(AtomicUsize::new(0));
    let load = tokio::task::spawn_local({
        let failed = std::sync::Arc::clone(&failed);
        async move {
            loop {
                let text = |error: BoxError| tonic::Status::from_error(error);
                let service = ServiceBuilder::new()
                    .map_err(text)
                    .service(buffered.clone());
                let failed = std::sync::Arc::clone(&failed);
                tokio::task::spawn_local(async move {
                    let result = EchoClient::new(service).unary(EchoRequest::default()).await;
                    if let Err(status) = result {
                        let mark = Local::find(&status).map(Local::kind);
                        assert_eq!(mark, Some(LocalKind::Quarantine), "{status:?}");
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                });
                sleep(Duration::from_millis(5)).await;
            }
        }
    });
    sleep(2 * SECOND).await;
    network.freeze(Which::One(0));
    let began = now();
    while condition() != Condition::Quarantined {
        sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < 3 * SECOND, "{}", layer.ring());
    }
    sleep(Duration::from_millis(50)).await;
    let cut = failed.load(Ordering::SeqCst);
    assert!(cut > 0);
    sleep(5 * SECOND).await;
    assert_eq!(
        failed.load(Ordering::SeqCst),
        cut,
        "nobody came on it afterwards"
    );
    let on_it = || {
        let requests = peer.requests();
        let calls = requests.iter().filter(|it| it.path.contains("Echo"));
        calls.filter(|it| it.connection == 0).count()
    };
    network.thaw(Which::One(0));
    while condition() != Condition::Serving {
        sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < 30 * SECOND, "{}", layer.ring());
    }
    let before = on_it();
    sleep(2 * SECOND).await;
    assert!(on_it() > before + 10, "restored, and not used");
    assert_eq!(failed.load(Ordering::SeqCst), cut);
    load.abort();
}
