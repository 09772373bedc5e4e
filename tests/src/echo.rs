//! An echo server on a real socket, with all four kinds of call.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use steadfast_proto::{
    EchoReply, EchoRequest,
    echo_server::{Echo, EchoServer},
};
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming, codec::CompressionEncoding};

/// An echo server on a thread and a runtime of its own: what it allocates isn't counted with the test's, and it
/// goes on while the test's runtime stands still. Dropping it stops it.
#[derive(Debug)]
pub struct EchoThread {
    uri: String,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl EchoThread {
    /// Starts one.
    ///
    /// # Panics
    /// When it doesn't start soon.
    #[must_use]
    pub fn start() -> Self {
        let (sender, uri) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let echo = EchoProcess::start().await;
                sender.send(echo.uri()).expect("the test waits for it");
                // Either way it is over.
                let _ = stopped.await;
            });
        });
        let uri = uri.recv_timeout(crate::HANG).expect("it starts");
        Self { uri, _stop: stop }
    }

    /// Where it listens, as a URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }
}

/// A running echo server. Dropping it stops it.
#[derive(Debug)]
pub struct EchoProcess {
    addr: SocketAddr,
    calls: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl EchoProcess {
    /// Starts one on a free port of this machine, on the current runtime.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let calls = Arc::new(AtomicU64::new(0));
        let service = EchoServer::new(Service(Arc::clone(&calls)))
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let server = tonic::transport::Server::builder().add_service(service);
        let task = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            if let Err(error) = server.serve_with_incoming(incoming).await {
                eprintln!("the echo server ended: {error}");
            }
        });
        Self { addr, calls, task }
    }

    /// Where it listens, as a URI.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Calls that reached it so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for EchoProcess {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Service(Arc<AtomicU64>);

impl Service {
    async fn answer(&self, request: &EchoRequest) -> Result<EchoReply, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        if request.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(request.delay_ms.into())).await;
        }
        match Code::from(i32::try_from(request.code).unwrap_or(2)) {
            Code::Ok => Ok(reply(&request.payload, 0)),
            code => Err(Status::new(code, "as asked for")),
        }
    }
}

fn reply(payload: &[u8], index: u32) -> EchoReply {
    EchoReply {
        payload: payload.to_vec(),
        index,
    }
}

type Replies = Pin<Box<dyn Stream<Item = Result<EchoReply, Status>> + Send>>;

#[tonic::async_trait]
impl Echo for Service {
    async fn unary(&self, request: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        self.answer(request.get_ref()).await.map(Response::new)
    }

    type ServerStreamStream = Replies;

    async fn server_stream(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Replies>, Status> {
        let request = request.into_inner();
        self.answer(&request).await?;
        let payload = Bytes::from(request.payload);
        let delay = Duration::from_millis(request.delay_ms.into());
        let replies = tokio_stream::iter(0..request.count).then(move |index| {
            let payload = payload.clone();
            async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                Ok(reply(&payload, index))
            }
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn client_stream(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoReply>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut requests = request.into_inner();
        let (mut joined, mut count) = (Vec::new(), 0);
        while let Some(request) = requests.message().await? {
            joined.extend(request.payload);
            count += 1;
        }
        Ok(Response::new(reply(&joined, count)))
    }

    type BidiStream = Replies;

    async fn bidi(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Replies>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let replies = request
            .into_inner()
            .map(|request| request.map(|r| reply(&r.payload, 0)));
        Ok(Response::new(Box::pin(replies)))
    }
}
