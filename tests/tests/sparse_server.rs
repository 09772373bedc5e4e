//! SparseFlow on a real tonic server, and with the other layers on a client.

use std::{error::Error as _, sync::Arc, time::Duration};

use steadfast::{BalanceConfig, Config, Pool};
use steadfast_core::{Local, LocalKind};
use steadfast_proto::{
    EchoRequest, HelloReply, HelloRequest,
    echo_client::EchoClient,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_sparse::{FlowId, Key, SparseConfig, SparseFlowLayer};
use steadfast_tests::{echo::EchoProcess, soon};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code, Request, Response, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint, Server},
};
use tonic_prost::ProstCodec;
use tower::{Layer, ServiceBuilder};

/// Waits in every call until it is let go.
struct Held(Arc<Semaphore>);

#[tonic::async_trait]
impl Greeter for Held {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        self.0.acquire().await.expect("it isn't closed").forget();
        let message = request.into_inner().name;
        Ok(Response::new(HelloReply { message }))
    }
}

struct Running {
    uri: String,
    gate: Arc<Semaphore>,
    layer: SparseFlowLayer,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Two calls on a server with one place: one has it, and the other waits.
    async fn fill(&self, calls: &mut Calls, channel: &Channel) {
        hello(calls, channel, None);
        self.until(1, 0).await;
        hello(calls, channel, None);
        self.until(1, 1).await;
    }

    async fn start(layer: SparseFlowLayer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let gate = Arc::new(Semaphore::new(0));
        let router = Server::builder()
            .layer(layer.clone())
            .add_service(GreeterServer::new(Held(Arc::clone(&gate))));
        let task = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            router.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            uri,
            gate,
            layer,
            task,
        }
    }

    async fn connect(&self) -> Channel {
        let endpoint = Endpoint::from_shared(self.uri.clone()).unwrap();
        soon("a connection", endpoint.connect()).await.unwrap()
    }

    /// Waits until so many calls run and wait.
    async fn until(&self, running: u32, waiting: u32) {
        until(&self.layer, running, waiting).await;
    }
}

async fn until(layer: &SparseFlowLayer, running: u32, waiting: u32) {
    let what = format!("{running} running, {waiting} waiting");
    soon(&what, async {
        while counts(layer) != (running, waiting) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn counts(layer: &SparseFlowLayer) -> (u32, u32) {
    let reading = layer.snapshot();
    (reading.running.iter().sum(), reading.waiting.iter().sum())
}

fn server(config: SparseConfig) -> SparseFlowLayer {
    SparseFlowLayer::server(config).unwrap()
}

fn places(places: u32) -> SparseConfig {
    SparseConfig {
        places,
        ..SparseConfig::default()
    }
}

type Calls = JoinSet<Result<Response<HelloReply>, Status>>;

fn hello(calls: &mut Calls, channel: &Channel, tenant: Option<&'static str>) {
    let mut client = GreeterClient::new(channel.clone());
    let mut request = Request::new(HelloRequest::default());
    if let Some(tenant) = tenant {
        request
            .metadata_mut()
            .insert("x-tenant", tenant.parse().unwrap());
    }
    calls.spawn(async move { client.say_hello(request).await });
}

/// F1: on a server a connection is a flow, or a peer address, or a tenant that the metadata names.
#[tokio::test]
async fn flows_of_a_server() {
    let by_connection = server(places(16));
    let by_address = by_connection.with_key(Key::peer_address());
    let by_tenant = by_connection.with_key(Key::metadata("x-tenant").unwrap());
    let rows = [(by_connection, 3), (by_address, 1), (by_tenant, 2)];
    for (layer, flows) in rows {
        let running = Running::start(layer).await;
        let mut calls = Calls::new();
        for tenant in ["a", "b", "b"] {
            let channel = running.connect().await;
            hello(&mut calls, &channel, Some(tenant));
            hello(&mut calls, &channel, Some(tenant));
        }
        running.until(6, 0).await;
        assert_eq!(running.layer.snapshot().flows, flows);
        running.gate.add_permits(6);
        for call in soon("all", calls.join_all()).await {
            call.unwrap();
        }
        running.until(0, 0).await;
    }
}

/// F6: who would have to wait over the bound gets RESOURCE_EXHAUSTED with a time to come back, over the wire.
#[tokio::test]
async fn a_refusal_over_the_wire() {
    let running = Running::start(server(SparseConfig {
        max_waiting: 1,
        ..places(1)
    }))
    .await;
    let channel = running.connect().await;
    let mut calls = Calls::new();
    running.fill(&mut calls, &channel).await;
    let mut client = GreeterClient::new(channel);
    let refused = soon("a refusal", client.say_hello(HelloRequest::default())).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let hint = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    let hint: u64 = hint.to_str().unwrap().parse().unwrap();
    assert!((50..=150).contains(&hint), "{hint}");
    running.gate.add_permits(2);
    for call in soon("the others", calls.join_all()).await {
        call.unwrap();
    }
}

/// F7: health checks, reflection and PingAndWarm are answered while every place is taken and every queue full; this
/// server has none of these services, so that it says so is the answer.
#[tokio::test]
async fn what_passes_a_full_server() {
    let running = Running::start(server(SparseConfig {
        max_waiting: 1,
        ..places(1)
    }))
    .await;
    let channel = running.connect().await;
    let mut calls = Calls::new();
    running.fill(&mut calls, &channel).await;
    let passing = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/google.bigtable.v2.Bigtable/PingAndWarm",
    ];
    let code = async |path: &'static str| {
        let mut client = Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = ProstCodec::<HelloRequest, HelloReply>::default();
        let request = Request::new(HelloRequest::default());
        let path = PathAndQuery::from_static(path);
        let called = client.unary(request, path, codec);
        soon("an answer", called).await.unwrap_err().code()
    };
    for path in passing {
        assert_eq!(code(path).await, Code::Unimplemented, "{path}");
    }
    let others = [
        "/google.bigtable.v2.Bigtable/ReadRows",
        "/grpc.health.v2.Health/Check",
        "/steadfast.test.Echo/Unary",
    ];
    for path in others {
        assert_eq!(code(path).await, Code::ResourceExhausted, "{path}");
    }
    running.until(1, 1).await;
}

/// F5: a client that goes away, whether its call waits or runs, leaves nothing behind.
#[tokio::test]
async fn a_client_that_goes_away() {
    let running = Running::start(server(places(1))).await;
    let channel = running.connect().await;
    let mut calls = Calls::new();
    running.fill(&mut calls, &channel).await;
    calls.shutdown().await;
    running.until(0, 0).await;
    // A whole connection that goes.
    let channel = running.connect().await;
    running.fill(&mut calls, &channel).await;
    drop(channel);
    calls.shutdown().await;
    running.until(0, 0).await;
}

/// F5: a stream holds its place on a client until its last message was read, or its reader went away.
#[tokio::test]
async fn a_stream_holds_its_place() {
    let echo = EchoProcess::start().await;
    let pool = Pool::builder(echo.uri())
        .config(Config {
            balance: BalanceConfig::fixed(2),
            ..Config::default()
        })
        .build()
        .unwrap();
    let layer = SparseFlowLayer::client(places(1)).unwrap();
    let mut client = EchoClient::new(layer.layer(pool));
    let request = || EchoRequest {
        payload: b"row".to_vec(),
        count: 3,
        ..EchoRequest::default()
    };
    for goes_away in [false, true] {
        let opened = soon("a stream", client.server_stream(request())).await;
        let mut stream = opened.unwrap().into_inner();
        soon("a message", stream.message()).await.unwrap().unwrap();
        assert_eq!(counts(&layer), (1, 0));
        let mut other = client.clone();
        let waits = tokio::spawn(async move { other.unary(request()).await });
        until(&layer, 1, 1).await;
        if !goes_away {
            while soon("a message", stream.message()).await.unwrap().is_some() {}
        }
        drop(stream);
        soon("its turn", waits).await.unwrap().unwrap();
        until(&layer, 0, 0).await;
    }
}

/// S4: on a client a refusal is marked as made locally, where a generated client shows it.
#[tokio::test]
async fn a_clients_refusal_is_marked() {
    let echo = EchoProcess::start().await;
    let layer = SparseFlowLayer::client(SparseConfig {
        max_waiting: 1,
        ..places(1)
    })
    .unwrap();
    let mut client = EchoClient::new(layer.layer(Pool::new(echo.uri()).unwrap()));
    let mut calls = JoinSet::new();
    for waiting in 0..2 {
        let mut client = client.clone();
        calls.spawn(async move {
            let request = EchoRequest {
                delay_ms: 60_000,
                ..EchoRequest::default()
            };
            client.unary(request).await
        });
        until(&layer, 1, waiting).await;
    }
    let refused = soon("a refusal", client.unary(EchoRequest::default())).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let mark = Local::find(status.source().unwrap()).map(Local::kind);
    assert_eq!(mark, Some(LocalKind::Overload));
    assert!(status.metadata().contains_key("grpc-retry-pushback-ms"));
}

/// X1: with layers of others around and between, on either side.
#[tokio::test]
async fn between_layers_of_others() {
    let echo = EchoProcess::start().await;
    let layer = SparseFlowLayer::client(places(4)).unwrap();
    let service = ServiceBuilder::new()
        .layer(tower_http::trace::TraceLayer::new_for_grpc())
        .layer(layer.clone())
        .layer(tower_http::set_header::SetRequestHeaderLayer::overriding(
            http::HeaderName::from_static("x-token"),
            http::HeaderValue::from_static("secret"),
        ))
        .service(Pool::new(echo.uri()).unwrap());
    let mut client = EchoClient::new(service);
    let mut request = Request::new(EchoRequest::default());
    request.extensions_mut().insert(FlowId::of("reads"));
    request.set_timeout(Duration::from_secs(20));
    soon("an answer", client.unary(request)).await.unwrap();
    assert_eq!(counts(&layer), (0, 0));

    let echo = EchoProcess::start().await;
    let channel = Endpoint::from_shared(echo.uri()).unwrap().connect_lazy();
    let twice = ServiceBuilder::new()
        .layer(layer.clone())
        .layer(layer.with_key(Key::method()))
        .service(channel);
    soon(
        "an answer",
        EchoClient::new(twice).unary(EchoRequest::default()),
    )
    .await
    .unwrap();
}
