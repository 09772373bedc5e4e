//! A rule for a method of one's own: how its streams go on where they broke.
//!
//! `Echo/ServerStream` answers with `count` messages, each with its index. Its request has no place for the index to begin
//! with, so the payload says it. The server is behind a proxy that cuts the stream three times.
//!
//! ```sh
//! cargo run -p steadfast-examples --example own_rule
//! ```

use std::{error::Error, pin::Pin, time::Duration};

use prost::Message;
use steadfast::{BoxError, Pass, Pool, Rest, Rule, StreamProgress};
use steadfast_proto::{
    EchoReply, EchoRequest,
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
};
use steadfast_testkit::proxy::{FaultProxy, Which};
use tokio::{net::TcpListener, time::sleep};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

// ---- The rule.

struct ServerStream;

impl Rule for ServerStream {
    fn method(&self) -> &str {
        "/steadfast.test.Echo/ServerStream"
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn StreamProgress>, BoxError> {
        let request = EchoRequest::decode(request)?;
        Ok(Box::new(Left { request }))
    }
}

/// The request for what is left.
struct Left {
    request: EchoRequest,
}

impl StreamProgress for Left {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        let next = EchoReply::decode(message)?.index + 1;
        self.request.payload = next.to_string().into_bytes();
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(match first(&self.request)? == self.request.count {
            true => Rest::Complete,
            false => Rest::request(self.request.encode_to_vec()),
        })
    }
}

fn first(request: &EchoRequest) -> Result<u32, BoxError> {
    match &request.payload[..] {
        [] => Ok(0),
        text => Ok(std::str::from_utf8(text)?.parse()?),
    }
}

// ---- A server, and what happens to it.

struct Numbers;

type Replies = Pin<Box<dyn Stream<Item = Result<EchoReply, Status>> + Send>>;

#[tonic::async_trait]
impl Echo for Numbers {
    type ServerStreamStream = Replies;
    type BidiStream = Replies;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Replies>, Status> {
        let request = request.into_inner();
        let first = first(&request).map_err(|error| Status::invalid_argument(error.to_string()))?;
        println!("the server is asked for {first} to {}", request.count);
        let replies = tokio_stream::iter(first..request.count).then(async |index| {
            sleep(Duration::from_millis(20)).await;
            Ok(EchoReply {
                index,
                ..EchoReply::default()
            })
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn unary(&self, _: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn client_stream(
        &self,
        _: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoReply>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn bidi(&self, _: Request<Streaming<EchoRequest>>) -> Result<Response<Replies>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = FaultProxy::start(listener.local_addr()?)?;
    let server = Server::builder().add_service(EchoServer::new(Numbers));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    // Two cuts are what three attempts bear; three need one more.
    let mut config = steadfast::Config::default();
    config.resume.max_attempts = 4;
    // All connections are cut at once: an attempt waits for a new one.
    config.balance.wait_for_ready = Some(Duration::from_secs(10));
    let pool = Pool::builder(proxy.uri())
        .config(config)
        .resume(ServerStream)
        .build()?;
    let request = EchoRequest {
        count: 100,
        ..EchoRequest::default()
    };
    let mut replies = EchoClient::new(pool)
        .server_stream(request)
        .await?
        .into_inner();
    let mut came = Vec::new();
    while let Some(reply) = replies.message().await? {
        came.push(reply.index);
        if [20, 50, 80].contains(&came.len()) {
            proxy.cut(Which::All);
        }
    }
    assert_eq!(came, (0..100).collect::<Vec<_>>());
    println!("100 messages, each once and in order");
    Ok(())
}
