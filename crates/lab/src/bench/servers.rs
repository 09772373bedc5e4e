//! The `bench-servers` helper: four small servers in one process, one of which fails at once.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_server::{Greeter, GreeterServer},
};
use tokio::{net::TcpListener, time::sleep};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::{
    error::{Error, Result},
    helper::{Helper, OnDrop, Orders, end_with_parent},
};

/// How long the good ones take.
const WORK: Duration = Duration::from_millis(5);
/// Streams that each takes at a time.
const STREAMS: u32 = 1_000;
/// How many there are; the first one fails.
pub(crate) const SERVERS: usize = 4;

/// Where they listen, the failing one first.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    addresses: Vec<SocketAddr>,
}

/// Calls that reached each so far.
#[derive(Debug, Serialize, Deserialize)]
struct Calls {
    calls: Vec<u64>,
}

/// The bench's end of the helper.
#[derive(Debug)]
pub(crate) struct Servers {
    helper: Helper,
    /// Their URIs, the failing one first.
    pub(crate) uris: Vec<String>,
}

impl Servers {
    pub(crate) async fn start(program: &Path) -> Result<Self> {
        let none: [&str; 0] = [];
        let mut helper = Helper::start(program, "bench-servers", &none, OnDrop::Kill)?;
        let Listening { addresses } = helper.hear().await?;
        let uris = addresses.iter().map(|address| format!("http://{address}"));
        Ok(Self {
            uris: uris.collect(),
            helper,
        })
    }

    /// Calls that reached each so far, in the order of the URIs.
    pub(crate) async fn calls(&mut self) -> Result<Vec<u64>> {
        let Calls { calls } = self.helper.ask("calls").await?;
        Ok(calls)
    }

    pub(crate) async fn end(self) {
        self.helper.end().await;
    }
}

/// Serves until the lab closes this process's standard input.
pub(crate) async fn serve() -> Result<()> {
    end_with_parent()?;
    let mut addresses = Vec::new();
    let mut counts = Vec::new();
    for number in 0..SERVERS {
        let calls = Arc::new(AtomicU64::new(0));
        counts.push(Arc::clone(&calls));
        addresses.push(
            start(Small {
                fails: number == 0,
                calls,
            })
            .await?,
        );
    }
    let mut orders = Orders::new();
    orders.answer(&Listening { addresses }).await?;
    while orders.next().await.is_some() {
        let calls = counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        orders.answer(&Calls { calls }).await?;
    }
    Ok(())
}

async fn start(server: Small) -> Result<SocketAddr> {
    let bind = async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    };
    let (address, listener) = bind
        .await
        .map_err(|error| Error::because("can't listen on a port of 127.0.0.1", error))?;
    let router = Server::builder()
        .max_concurrent_streams(Some(STREAMS))
        .add_service(GreeterServer::new(server));
    tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        if let Err(error) = router.serve_with_incoming(incoming).await {
            eprintln!("a bench server ended: {error}");
        }
    });
    Ok(address)
}

struct Small {
    fails: bool,
    calls: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl Greeter for Small {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> std::result::Result<Response<HelloReply>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails {
            return Err(Status::unavailable("this server fails"));
        }
        sleep(WORK).await;
        let message = request.into_inner().name;
        Ok(Response::new(HelloReply { message }))
    }
}
