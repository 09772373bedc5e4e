//! Through TLS, with a real tonic server. The certificates are for these tests alone, valid until 2126.
#![cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]

mod common;

use std::sync::Arc;

use common::{condemned, dial, fails, in_time, short};
use steadfast_classify::call_error;
use steadfast_core::{Metered, Outcome};
use steadfast_egress::{DialStage, Egress, EgressChannel};
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_testkit::peer::{Accept, Peer, Script};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};
use tonic::{
    Request, Response, Status,
    transport::{
        Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
        server::TcpIncoming,
    },
};

struct Gate(Arc<Semaphore>);

#[tonic::async_trait]
impl Greeter for Gate {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = request.into_inner().name;
        if message == "held" {
            let _passed = self.0.acquire().await;
        }
        Ok(Response::new(HelloReply { message }))
    }
}

struct Running {
    uri: String,
    gate: Arc<Semaphore>,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

async fn start() -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let gate = Arc::new(Semaphore::new(0));
    let (shutdown, stopped) = oneshot::channel();
    let identity = Identity::from_pem(
        include_str!("tls/server.pem"),
        include_str!("tls/server.key"),
    );
    let server = Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .unwrap()
        .add_service(GreeterServer::new(Gate(Arc::clone(&gate))))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
            drop(stopped.await);
        });
    let task = tokio::spawn(server);
    Running {
        uri,
        gate,
        shutdown,
        task,
    }
}

fn egress(uri: &str) -> Egress {
    let ca = Certificate::from_pem(include_str!("tls/ca.pem"));
    let tls = ClientTlsConfig::new().ca_certificate(ca);
    let endpoint = Endpoint::from_shared(uri.to_owned()).unwrap();
    Egress::new(endpoint.tls_config(tls).unwrap(), short(10_000)).unwrap()
}

async fn hello(channel: &Metered<EgressChannel>, name: &str) -> Result<String, Status> {
    let mut client = GreeterClient::new(channel.clone());
    let request = HelloRequest { name: name.into() };
    let reply = in_time(client.say_hello(request)).await?;
    Ok(reply.into_inner().message)
}

#[tokio::test]
async fn a_graceful_goaway_is_seen_by_the_next_call() {
    let server = start().await;
    let channel = dial(&egress(&server.uri)).await;
    assert_eq!(hello(&channel, "a").await.unwrap(), "a");
    let held = tokio::spawn({
        let channel = channel.clone();
        async move { hello(&channel, "held").await }
    });
    // Its request goes out before the next one's answer comes.
    tokio::task::yield_now().await;
    assert_eq!(hello(&channel, "b").await.unwrap(), "b");
    server.shutdown.send(()).unwrap();
    let error = loop {
        if let Err(error) = hello(&channel, "c").await {
            break error;
        }
    };
    assert_eq!(call_error(&error), Outcome::NeverSent, "{error:?}");
    condemned(channel.meter()).await;
    assert!(!held.is_finished());
    server.gate.add_permits(1);
    assert_eq!(in_time(held).await.unwrap().unwrap(), "held");
    in_time(server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_closed_connection_condemns_the_channel() {
    let server = start().await;
    let channel = dial(&egress(&server.uri)).await;
    hello(&channel, "a").await.unwrap();
    server.shutdown.send(()).unwrap();
    in_time(server.task).await.unwrap().unwrap();
    let why = condemned(channel.meter()).await;
    assert!(why.starts_with("connection closed: "), "{why}");
}

#[tokio::test]
async fn a_handshake_that_fails_names_its_cause() {
    let server = start().await;
    let error = fails(&Egress::new(server.uri.clone(), short(10_000)).unwrap()).await;
    assert_eq!(error.stage(), DialStage::Tls);
    assert!(
        error
            .to_string()
            .contains("no TLS connection: invalid peer certificate"),
        "{error}"
    );
    for script in [Script::good(), Script::good().accept(Accept::Fin)] {
        let peer = Peer::start(script).unwrap();
        let uri = format!("https://localhost:{}", peer.addr().port());
        let error = fails(&egress(&uri)).await;
        assert_eq!(error.stage(), DialStage::Tls, "{error}");
    }
}
