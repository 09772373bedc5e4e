//! Deadlines of calls through a pool, exact on a paused clock: a network in memory, tonic's channels, the pool,
//! retries and the deadline on top.

use std::{future::Future, time::Duration};

use steadfast::{
    Balance, BalanceConfig, BalanceLayer, Bottom, BoxError, Local, LocalKind, Place,
    classify::deadline,
};
use steadfast_core::now;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_retry::{
    DeadlineConfig, DeadlineLayer, Deadlined, Kind, Retry, RetryConfig, RetryLayer,
};
use steadfast_testkit::{
    memory::{self, DialMode, Network},
    peer::{Answer, Peer, Request, Script, Step},
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tower::{Layer, ServiceBuilder};

const UNARY: &str = "/steadfast.test.Echo/Unary";
const DEADLINE: Duration = Duration::from_millis(2_500);

type Pool = Deadlined<Retry<Balance<Bottom<Channel>>>>;

/// A pool of one channel over a network in memory.
fn pool(network: &Network, deadlines: DeadlineLayer) -> Pool {
    let network = network.clone();
    let dial = move |_id, _place: Place| {
        let network = network.clone();
        async move {
            let endpoint = Endpoint::from_static("http://memory");
            Ok::<_, BoxError>(endpoint.connect_with_connector(network).await?)
        }
    };
    let mut config = RetryConfig::default();
    config.retry_on.unavailable = true;
    let retry = RetryLayer::new(config).unwrap();
    let retry = retry.idempotent(UNARY, Kind::Held).unwrap();
    let balance = BalanceLayer::new(BalanceConfig::fixed(1)).unwrap();
    let layers = ServiceBuilder::new().layer(deadlines).layer(retry);
    layers.service(balance.layer(dial))
}

fn start(script: Script) -> (Network, Peer) {
    let (network, incoming) = memory::network();
    (network, Peer::serve(incoming, move |_| script.clone()))
}

/// The two ways to have a deadline: the caller's own, and the default for those that set none.
fn ways() -> [(DeadlineLayer, bool); 2] {
    let config = DeadlineConfig {
        default: Some(DEADLINE),
    };
    [
        (DeadlineLayer::default(), true),
        (DeadlineLayer::new(config).unwrap(), false),
    ]
}

fn request(own: bool) -> tonic::Request<EchoRequest> {
    let mut request = tonic::Request::new(EchoRequest::default());
    if own {
        request.set_timeout(DEADLINE);
    }
    request
}

/// The call is over when its deadline is, to the millisecond, with a status that says so.
async fn over<T: std::fmt::Debug>(call: impl Future<Output = Result<T, Status>>, phase: &str) {
    let began = now();
    let status = call.await.unwrap_err();
    assert_eq!(now() - began, DEADLINE, "{status}");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains(phase), "{status}");
    let mark = Local::find(&status).expect("made locally");
    assert_eq!(mark.kind(), LocalKind::Deadline);
}

/// M1, B7: while the only channel connects, and when the server comes before, in the rest of the time.
#[tokio::test(start_paused = true)]
async fn while_connecting() {
    for (layer, own) in ways() {
        let (network, _peer) = start(Script::good());
        network.set_dial_mode(DialMode::Hang);
        let mut client = EchoClient::new(pool(&network, layer.clone()));
        over(client.unary(request(own)), "waited for a channel").await;
        let (network, peer) = start(Script::ping_only());
        network.set_dial_mode(DialMode::Hang);
        let mut client = EchoClient::new(pool(&network, layer));
        let connects = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            network.set_dial_mode(DialMode::Connect);
        };
        let call = over(client.unary(request(own)), "phase: headers");
        tokio::join!(call, connects);
        let left = deadline::read(&peer.requests()[0].headers);
        assert_eq!(
            left,
            Some(Duration::from_millis(1_500)),
            "it waited for 1 s"
        );
    }
}

/// M1, B8: in the queue for a stream of a channel that has no free one.
#[tokio::test(start_paused = true)]
async fn in_the_queue() {
    for (layer, own) in ways() {
        let (network, peer) = start(Script::ping_only());
        let service = pool(&network, layer);
        let mut others = tokio::task::JoinSet::new();
        for _ in 0..99 {
            let mut client = EchoClient::new(service.clone());
            let mut request = request(false);
            request.set_timeout(Duration::from_secs(3_600));
            others.spawn(async move { client.unary(request).await });
        }
        while peer.requests().len() < 99 {
            tokio::task::yield_now().await;
        }
        let mut client = EchoClient::new(service);
        over(client.unary(request(own)), "waited for a channel").await;
        assert_eq!(peer.requests().len(), 99);
    }
}

/// M1: while the server doesn't answer; tonic's transport has the same deadline, and says that it was
/// cancelled: that isn't what the caller gets.
#[tokio::test(start_paused = true)]
async fn in_the_headers() {
    for (layer, own) in ways() {
        let (network, _peer) = start(Script::ping_only());
        let mut client = EchoClient::new(pool(&network, layer));
        over(client.unary(request(own)), "phase: headers").await;
        over(client.server_stream(request(own)), "phase: headers").await;
    }
}

/// M1: while the reply is read: a stream, and a reply that is kept.
#[tokio::test(start_paused = true)]
async fn in_the_body() {
    for (layer, own) in ways() {
        let (network, _peer) = start(Script::head_stop(1));
        let mut client = EchoClient::new(pool(&network, layer));
        over(client.unary(request(own)), "passed").await;
        let read = async {
            let mut stream = client.server_stream(request(own)).await?.into_inner();
            while stream.message().await?.is_some() {}
            Ok(())
        };
        over(read, "phase: body").await;
    }
}

/// M1, R6: between attempts, each of which is sent with what is left.
#[tokio::test(start_paused = true)]
async fn between_attempts() {
    for (layer, own) in ways() {
        let said = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "2000")];
        let fields = said.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let answer = Answer::steps([
            Step::AwaitRequest,
            Step::Headers {
                status: 200,
                fields: fields.into(),
                end: true,
            },
        ]);
        let (network, peer) = start(Script::always(answer));
        let mut client = EchoClient::new(pool(&network, layer));
        over(client.unary(request(own)), "between attempts").await;
        let sent = |request: &Request| deadline::read(&request.headers);
        let sent: Vec<_> = peer.requests().iter().map(sent).collect();
        assert_eq!(sent, [Some(DEADLINE), Some(Duration::from_millis(500))]);
    }
}
