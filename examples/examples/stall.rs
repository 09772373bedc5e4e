//! Stall detection around one plain tonic channel, without a pool.
//!
//! `cargo run -p steadfast-examples --example stall` starts a greeter of its own, freezes the connection to it
//! under a call, and shows how the call ends after about two seconds instead of never, and how the channel
//! is used again when it has thawed.

use std::time::Duration;

use steadfast_core::{Bottom, Local};
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_stall::{HealthProbe, StallConfig, StallDetect, StallDetectLayer};
use steadfast_testkit::proxy::{FaultProxy, Which};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, Server},
};
use tower::Layer;

struct Hello;

#[tonic::async_trait]
impl Greeter for Hello {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // Stands between the two, and freezes when it is told to.
    let proxy = FaultProxy::start(listener.local_addr()?)?;
    let server = Server::builder().add_service(GreeterServer::new(Hello));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Endpoint::from_shared(proxy.uri())?.connect().await?;

    // The two lines. This server has no health service: it says so, and that is an answer too.
    let stall = StallDetectLayer::new(StallConfig::alone(), HealthProbe::new())?;
    let mut client = GreeterClient::new(stall.layer(channel));

    greet(&mut client, "before").await;
    proxy.freeze(Which::All);
    greet(&mut client, "while it is frozen").await;
    greet(&mut client, "during the quarantine").await;
    proxy.thaw(Which::All);
    while !greet(&mut client, "after the thaw").await {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("\nwhat the layer saw and did:\n{}", stall.ring());
    Ok(())
}

type Client = GreeterClient<StallDetect<Bottom<Channel>>>;

/// One call, without a deadline. Says whether it was answered.
async fn greet(client: &mut Client, when: &str) -> bool {
    let began = steadfast_core::now();
    let name = "you".to_owned();
    let result = client.say_hello(HelloRequest { name }).await;
    let took = began.elapsed();
    match &result {
        Ok(reply) => println!("{when}: {:?} after {took:?}", reply.get_ref().message),
        Err(status) => {
            let made = Local::find(status).map(Local::kind);
            println!(
                "{when}: {:?} after {took:?}, made here for: {made:?}",
                status.code()
            );
        }
    }
    result.is_ok()
}
