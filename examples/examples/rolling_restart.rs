//! A client that doesn't notice a rolling restart.
//!
//! Three servers run behind one pool. One after the other is killed, as it stands, and started again on the
//! same port, while eight callers make one call after the other. Whatever a dying server loses is sent again
//! on another channel.
//!
//! ```sh
//! cargo run -p steadfast-examples --example rolling_restart
//! ```

use std::{
    error::Error,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use steadfast::{BalanceConfig, BalanceLayer, Egress, EgressConfig, Places};
use steadfast_proto::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};
use steadfast_retry::{DeadlineConfig, DeadlineLayer, Kind, RetryConfig, RetryLayer};
use tokio::{net::TcpSocket, runtime::Runtime, task::JoinSet, time::sleep};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Endpoint, Server},
};
use tower::ServiceBuilder;

const CALLERS: usize = 8;

struct Hello;

#[tonic::async_trait]
impl Greeter for Hello {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        // It works a little, so that calls are on their way when it is killed.
        sleep(Duration::from_millis(5)).await;
        let message = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// A server in a runtime of its own, so that it can be killed with all that it holds.
struct Running {
    addr: SocketAddr,
    runtime: Option<Runtime>,
}

impl Running {
    fn start(addr: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let _inside = runtime.enter();
        let socket = if addr.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // The port is still in use by connections that are closing.
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(128)?;
        let addr = listener.local_addr()?;
        let server = Server::builder().add_service(GreeterServer::new(Hello));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(Self {
            addr,
            runtime: Some(runtime),
        })
    }

    /// Its sockets close, whatever was on its way.
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        *self = Self::start(self.addr)?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Running::start("127.0.0.1:0".parse()?)?);
    }
    let places = Places::list(
        servers
            .iter()
            .map(|server| format!("http://{}", server.addr)),
    );

    // Greeting somebody twice does no harm, so the method may be named idempotent.
    let retry = RetryLayer::new(RetryConfig::default())?
        .idempotent("/steadfast.test.Greeter/SayHello", Kind::Held)?;
    let every_call = DeadlineConfig {
        default: Some(Duration::from_secs(5)),
    };
    let pool = ServiceBuilder::new()
        .layer(DeadlineLayer::new(every_call)?)
        .layer(retry.clone())
        .layer(BalanceLayer::new(BalanceConfig::fixed(6))?.places(places))
        .service(Egress::per_place(EgressConfig::default(), |place| {
            Ok(Endpoint::from_shared(place.to_string())?)
        })?);

    let (served, over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = GreeterClient::new(pool.clone());
        let (served, over) = (Arc::clone(&served), Arc::clone(&over));
        callers.spawn(async move {
            let mut failed = Vec::new();
            while !over.load(Relaxed) {
                let name = format!("caller {caller}");
                match client.say_hello(HelloRequest { name }).await {
                    Ok(_) => drop(served.fetch_add(1, Relaxed)),
                    Err(status) => failed.push(status),
                }
            }
            failed
        });
    }
    sleep(Duration::from_secs(2)).await;
    for (number, server) in servers.iter_mut().enumerate() {
        let before = served.load(Relaxed);
        server.kill();
        println!("server {number} is killed");
        sleep(Duration::from_secs(1)).await;
        server.restart()?;
        println!(
            "server {number} is back; {} calls were served meanwhile",
            served.load(Relaxed) - before
        );
        sleep(Duration::from_secs(2)).await;
    }
    over.store(true, Relaxed);
    let failed: Vec<Status> = callers.join_all().await.into_iter().flatten().collect();
    let again = retry.snapshot();
    println!(
        "{} calls, {} errors; {} were sent again because they had not been processed, {} were repeated",
        served.load(Relaxed) + failed.len(),
        failed.len(),
        again.resent,
        again.repeated,
    );
    match failed.into_iter().next() {
        Some(status) => Err(status.into()),
        None => Ok(()),
    }
}
