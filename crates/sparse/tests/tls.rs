//! Flows by the certificate that a client shows, on a real connection.
#![cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]

use std::sync::Arc;

use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_sparse::{Key, SparseConfig, SparseFlowLayer};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{
        Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig,
    },
};

/// For tests alone, valid until 2126.
const AUTHORITY: &str = include_str!("tls/ca.pem");

/// Waits in every call until it is let go.
struct Held(Arc<Semaphore>);

#[tonic::async_trait]
impl Greeter for Held {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let _passed = self.0.acquire().await;
        let message = request.into_inner().name;
        Ok(Response::new(HelloReply { message }))
    }
}

/// A server under this layer, which asks clients for a certificate and takes those who have none.
async fn serve(layer: SparseFlowLayer) -> (String, Arc<Semaphore>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let gate = Arc::new(Semaphore::new(0));
    let identity = Identity::from_pem(
        include_str!("tls/server.pem"),
        include_str!("tls/server.key"),
    );
    let tls = ServerTlsConfig::new()
        .identity(identity)
        .client_ca_root(Certificate::from_pem(AUTHORITY))
        .client_auth_optional(true);
    let router = Server::builder()
        .tls_config(tls)
        .unwrap()
        .layer(layer)
        .add_service(GreeterServer::new(Held(Arc::clone(&gate))));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    (uri, gate)
}

async fn connect(uri: &str, identity: Option<(&str, &str)>) -> Channel {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(AUTHORITY));
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::from_shared(uri.to_owned()).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap()
}

/// How many flows two connections of one client, one of another, and two without a certificate make.
async fn flows(layer: SparseFlowLayer) -> usize {
    let (uri, gate) = serve(layer.clone()).await;
    let one = Some((include_str!("tls/one.pem"), include_str!("tls/one.key")));
    let two = Some((include_str!("tls/two.pem"), include_str!("tls/two.key")));
    let mut calls = tokio::task::JoinSet::new();
    for identity in [one, one, two, None, None] {
        let mut client = GreeterClient::new(connect(&uri, identity).await);
        calls.spawn(async move { client.say_hello(HelloRequest::default()).await });
    }
    while layer.snapshot().running.iter().sum::<u32>() < 5 {
        tokio::task::yield_now().await;
    }
    let flows = layer.snapshot().flows;
    gate.add_permits(5);
    for joined in calls.join_all().await {
        joined.unwrap();
    }
    flows
}

/// F1: by TLS identity a client is one flow, however many connections it has; by connection each is one; and one
/// without a certificate is the next key's.
#[tokio::test]
async fn by_tls_identity() {
    let layer = SparseFlowLayer::server(SparseConfig::default()).unwrap();
    assert_eq!(flows(layer.with_key(Key::tls_identity())).await, 3);
    let with_fallback = Key::tls_identity().or(Key::connection());
    assert_eq!(flows(layer.with_key(with_fallback)).await, 4);
    assert_eq!(flows(layer.clone()).await, 5);
    assert_eq!(flows(layer.with_key(Key::peer_address())).await, 1);
}
