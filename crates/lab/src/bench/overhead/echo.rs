//! The `bench-echo` helper: one echo server in a process of its own.

use std::{net::SocketAddr, path::Path, pin::Pin};

use serde::{Deserialize, Serialize};
use steadfast_proto::{
    EchoReply, EchoRequest,
    echo_server::{Echo as Service, EchoServer},
};
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

use crate::{
    error::{Error, Result},
    helper::{Helper, OnDrop, Orders, end_with_parent},
};

/// Streams that it takes at a time: more than there are callers.
const STREAMS: u32 = 10_000;

/// Where it listens.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    address: SocketAddr,
}

/// The bench's end of the helper.
#[derive(Debug)]
pub(super) struct Echo {
    helper: Helper,
    pub(super) uri: String,
}

impl Echo {
    pub(super) async fn start(program: &Path) -> Result<Self> {
        let none: [&str; 0] = [];
        let mut helper = Helper::start(program, "bench-echo", &none, OnDrop::Kill)?;
        let Listening { address } = helper.hear().await?;
        let uri = format!("http://{address}");
        Ok(Self { helper, uri })
    }

    pub(super) async fn end(self) {
        self.helper.end().await;
    }
}

/// Serves until the lab closes this process's standard input.
pub(crate) async fn serve() -> Result<()> {
    end_with_parent()?;
    let failed = |error| Error::because("can't listen on a port of 127.0.0.1", error);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let router = Server::builder()
        .max_concurrent_streams(Some(STREAMS))
        .add_service(EchoServer::new(Small));
    tokio::spawn(async move {
        // Without it a stream's second write waits for the client to acknowledge the first, 40 ms later.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        if let Err(error) = router.serve_with_incoming(incoming).await {
            eprintln!("the bench's echo server ended: {error}");
        }
    });
    let mut orders = Orders::new();
    orders.answer(&Listening { address }).await?;
    while orders.next().await.is_some() {}
    Ok(())
}

struct Small;

type Replies = Pin<Box<dyn Stream<Item = Result<EchoReply, Status>> + Send>>;

fn reply(request: EchoRequest) -> EchoReply {
    EchoReply {
        payload: request.payload,
        index: 0,
    }
}

#[tonic::async_trait]
impl Service for Small {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        Ok(Response::new(reply(request.into_inner())))
    }

    type ServerStreamStream = Replies;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Replies>, Status> {
        let request = request.into_inner();
        let count = request.count as usize;
        let reply = reply(request);
        let replies = std::iter::repeat_n(reply, count).map(Ok);
        Ok(Response::new(Box::pin(tokio_stream::iter(replies))))
    }

    async fn client_stream(
        &self,
        _requests: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoReply>, Status> {
        Err(Status::unimplemented("the bench sends no such call"))
    }

    type BidiStream = Replies;

    async fn bidi(
        &self,
        _requests: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Replies>, Status> {
        Err(Status::unimplemented("the bench sends no such call"))
    }
}
