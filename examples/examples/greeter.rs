//! A generated client on a pool: what changes in a program is one line.
//!
//! `cargo run -p steadfast-examples --example greeter` starts two greeters of its own, calls them through
//! one pool, and shows which channel served what. With URIs behind it (`-- http://host:port …`) it calls
//! those instead.

use steadfast::{Places, Pool};
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

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

/// Starts a greeter on a free port of this machine.
async fn start() -> Result<String, Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().add_service(GreeterServer::new(Hello));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(uri)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut uris: Vec<String> = std::env::args().skip(1).collect();
    if uris.is_empty() {
        uris = vec![start().await?, start().await?];
    }
    let pool = Pool::builder(uris[0].clone())
        .places(Places::list(uris))
        .build()?;

    // The one line: a plain client would be made of a Channel here.
    let client = GreeterClient::new(pool.clone());

    let calls = (0..20).map(|n| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let request = HelloRequest {
                name: format!("caller {n}"),
            };
            client
                .say_hello(request)
                .await
                .map(|reply| reply.into_inner().message)
        })
    });
    for call in calls.collect::<Vec<_>>() {
        println!("{}", call.await??);
    }
    for channel in pool.snapshot().channels {
        println!(
            "channel {} to {} served {} calls",
            channel.id, channel.place, channel.picks
        );
    }
    Ok(())
}
