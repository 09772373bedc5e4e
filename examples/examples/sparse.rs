//! A client whose point reads stay fast beside its own scans: at most 8 calls are in flight, and the flow with few of
//! them goes first.
//!
//! `cargo run -p steadfast-examples --example sparse` starts a small server of its own, and takes five seconds.

use std::time::{Duration, Instant};

use steadfast::Pool;
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_sparse::{FlowId, SparseConfig, SparseFlow, SparseFlowLayer};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use tower::Layer;

type Client = GreeterClient<SparseFlow<Pool>>;

/// Answers a scan after 20 ms and anything else after 2.
struct Slow;

#[tonic::async_trait]
impl Greeter for Slow {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = request.into_inner().name;
        let millis = if message == "scan" { 20 } else { 2 };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        Ok(Response::new(HelloReply { message }))
    }
}

async fn call(client: &mut Client, name: &str, flow: FlowId) -> Result<(), Status> {
    let mut request = Request::new(HelloRequest { name: name.into() });
    request.extensions_mut().insert(flow);
    client.say_hello(request).await.map(drop)
}

/// The median of 200 reads, one after the other, while 100 scans are outstanding all the time.
async fn reads(mut client: Client, of: FlowId, scans: FlowId) -> Result<Duration, Status> {
    let mut busy = JoinSet::new();
    for _ in 0..100 {
        let mut client = client.clone();
        busy.spawn(async move { while call(&mut client, "scan", scans).await.is_ok() {} });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut times = Vec::new();
    let until = now() + Duration::from_secs(2);
    while times.len() < 200 && now() < until {
        let began = now();
        call(&mut client, "read", of).await?;
        times.push(now() - began);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, with no test that pauses its clock"
)]
fn now() -> Instant {
    Instant::now()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().add_service(GreeterServer::new(Slow));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let layer = SparseFlowLayer::client(SparseConfig {
        places: 8,
        ..SparseConfig::default()
    })?;
    let client = GreeterClient::new(layer.layer(Pool::new(uri)?));

    let one = FlowId::of("everything");
    let median = reads(client.clone(), one, one).await?;
    println!("reads and scans as one flow:  a read takes {median:.1?}");

    let median = reads(client, FlowId::of("reads"), FlowId::of("scans")).await?;
    println!("reads and scans as two flows: a read takes {median:.1?}");
    Ok(())
}
