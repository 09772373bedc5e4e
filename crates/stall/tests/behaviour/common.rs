//! Channels in memory that fall silent when a test says so.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use steadfast_core::{
    Bottom, BottomLayer, BoxError, ChannelLayer, Local, LocalKind, Metered, Place, now,
};
use steadfast_stall::{Condition, StallConfig, StallDetect, StallDetectLayer, StallObserver};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower::Service;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// A pacemaker's tick, and what timers round up to.
pub(crate) const TICK: Duration = Duration::from_millis(55);

/// How a server treats probes while it isn't frozen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asked {
    /// Answers with this grpc-status.
    Status(u16),
    Http(u16),
    /// Sends headers and then nothing.
    HeadOnly,
    /// The connection closes.
    Closes,
    /// The thread stands still for 400 ms, and then the connection closes.
    BlocksAndCloses,
    Never,
}

/// One server with one connection: what is beneath a channel's layers.
#[derive(Clone)]
pub(crate) struct Server {
    frozen: watch::Sender<bool>,
    asked: Arc<Mutex<Asked>>,
    pub(crate) probes: Arc<AtomicUsize>,
    pub(crate) calls: Arc<AtomicUsize>,
    pub(crate) open: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            frozen: watch::Sender::new(false),
            asked: Arc::new(Mutex::new(Asked::Status(0))),
            probes: Arc::default(),
            calls: Arc::default(),
            open: Arc::default(),
        }
    }

    /// Nothing comes any more, probes' answers included.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// What was held back comes.
    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    pub(crate) fn when_asked(&self, asked: Asked) {
        *self.asked.lock().unwrap() = asked;
    }

    pub(crate) fn probes(&self) -> usize {
        self.probes.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    async fn thawed(&self) {
        let mut frozen = self.frozen.subscribe();
        // The sender lives as long as `self`.
        let _ = frozen.wait_for(|frozen| !*frozen).await;
    }

    async fn answer(self, path: String) -> Result<Response<ServerBody>, BoxError> {
        let open = Open::new(&self.open);
        let (frames, body) = mpsc::channel(1);
        let body = ServerBody(body);
        if path == "/probe" {
            return self.answer_probe(frames, body).await;
        }
        if path == "/hangs" {
            return std::future::pending().await;
        }
        if path != "/now" {
            sleep(Duration::from_millis(20)).await;
            self.thawed().await;
        }
        let server = self.clone();
        tokio::spawn(async move {
            let _open = open;
            let count = match path.as_str() {
                // A message every 20 ms, without end.
                "/stream" => usize::MAX,
                // More than anybody reads.
                "/now" => 1_000_000,
                _ => 1,
            };
            for _ in 0..count {
                if path != "/now" {
                    sleep(Duration::from_millis(20)).await;
                }
                tokio::select! {
                    () = server.thawed() => {}
                    () = frames.closed() => return,
                }
                let data = Frame::data(Bytes::from_static(b"\0\0\0\0\x03abc"));
                if frames.send(data).await.is_err() {
                    return;
                }
            }
            let _ = frames.send(Frame::trailers(status(0))).await;
        });
        Ok(head(body))
    }

    async fn answer_probe(
        self,
        frames: mpsc::Sender<Frame<Bytes>>,
        body: ServerBody,
    ) -> Result<Response<ServerBody>, BoxError> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.thawed().await;
        let asked = *self.asked.lock().unwrap();
        match asked {
            Asked::Status(code) => {
                frames.send(Frame::trailers(status(code))).await?;
                Ok(head(body))
            }
            Asked::Http(code) => {
                let mut response = Response::new(body);
                *response.status_mut() = code.try_into()?;
                Ok(response)
            }
            Asked::HeadOnly => {
                tokio::spawn(async move { frames.closed().await });
                Ok(head(body))
            }
            Asked::Closes | Asked::BlocksAndCloses => {
                if asked == Asked::BlocksAndCloses {
                    // So that others have received something meanwhile.
                    sleep(Duration::from_millis(100)).await;
                    block(Duration::from_millis(400));
                }
                let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                Err(broken.into())
            }
            Asked::Never => std::future::pending().await,
        }
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn status(code: u16) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers
}

fn head(body: ServerBody) -> Response<ServerBody> {
    let mut response = Response::new(body);
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    response
}

/// A body whose frames a task sends.
#[derive(Debug)]
pub(crate) struct ServerBody(mpsc::Receiver<Frame<Bytes>>);

impl Body for ServerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // Pending: the queue holds the waker.
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

impl Service<Request<()>> for Server {
    type Response = Response<ServerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ServerBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let path = request.uri().path().to_owned();
        if path != "/probe" {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(self.clone().answer(path))
    }
}

pub(crate) type Channel = Metered<StallDetect<Bottom<Server>>>;
pub(crate) type Reply = Response<steadfast_core::ObservedBody<ServerBody, StallObserver>>;

/// A request for `/ok`, `/stream`, `/now`, `/hangs` or `/probe`.
pub(crate) fn request(path: &'static str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

pub(crate) fn probe(_: &Place) -> Result<Request<()>, BoxError> {
    Ok(request("/probe"))
}

/// A layer on some channels, each with a server of its own.
pub(crate) struct Fleet {
    pub(crate) layer: StallDetectLayer<()>,
    pub(crate) servers: Vec<Server>,
    pub(crate) channels: Vec<Channel>,
    /// Between two calls of a busy caller.
    pub(crate) pause: Duration,
    callers: Vec<JoinHandle<()>>,
}

impl Fleet {
    pub(crate) fn new(channels: usize) -> Self {
        Self::with(channels, StallConfig::default())
    }

    pub(crate) fn with(channels: usize, config: StallConfig) -> Self {
        Self::of(StallDetectLayer::new(config, probe).unwrap(), channels)
    }

    pub(crate) fn of(layer: StallDetectLayer<()>, channels: usize) -> Self {
        let servers: Vec<Server> = (0..channels).map(|_| Server::new()).collect();
        let made = servers.iter().map(|server| {
            let bottom = BottomLayer.layer_channel(Metered::new(server.clone()));
            layer.layer_channel(bottom)
        });
        let channels = made.collect();
        Self {
            layer,
            servers,
            channels,
            pause: Duration::from_millis(10),
            callers: Vec::new(),
        }
    }

    /// Callers that call one after another on these channels.
    pub(crate) fn keep_busy(&mut self, channels: impl IntoIterator<Item = usize>) {
        for channel in channels {
            let (channel, pause) = (self.channels[channel].clone(), self.pause);
            self.callers.push(tokio::spawn(async move {
                loop {
                    if let Ok(reply) = call(&channel, "/ok").await {
                        let _ = read(reply).await;
                    }
                    sleep(pause).await;
                }
            }));
        }
    }

    pub(crate) fn condition(&self, channel: usize) -> Condition {
        let id = self.channels[channel].id();
        let states = self.layer.snapshot();
        states
            .iter()
            .find(|state| state.id == id)
            .unwrap()
            .condition
    }

    /// Waits until a channel stands so, and says how long that took.
    pub(crate) async fn until(&self, channel: usize, condition: Condition) -> Duration {
        let began = now();
        while self.condition(channel) != condition {
            sleep(Duration::from_millis(1)).await;
            let ring = self.layer.ring();
            assert!(began.elapsed() < 200 * SECOND, "{ring}");
        }
        began.elapsed()
    }

    pub(crate) fn probes(&self) -> usize {
        self.servers.iter().map(Server::probes).sum()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.callers.iter().for_each(JoinHandle::abort);
    }
}

/// One call to the head of its response.
pub(crate) async fn call(channel: &Channel, path: &'static str) -> Result<Reply, BoxError> {
    let mut channel = channel.clone();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await?;
    channel.call(request(path)).await
}

/// Reads to the end, and says how many frames of data came.
pub(crate) async fn read(reply: Reply) -> Result<usize, BoxError> {
    let mut body = reply.into_body();
    let mut frames = 0;
    while let Some(frame) = body.frame().await {
        frames += usize::from(frame?.is_data());
    }
    Ok(frames)
}

/// A whole call in a task of its own: what it gave, and when.
pub(crate) fn spawn_call(
    channel: &Channel,
    path: &'static str,
) -> JoinHandle<(Result<usize, BoxError>, Instant)> {
    let channel = channel.clone();
    tokio::spawn(async move {
        let reply = call(&channel, path).await;
        // The reader of a body doesn't hold the channel's service.
        drop(channel);
        let result = match reply {
            Ok(reply) => read(reply).await,
            Err(error) => Err(error),
        };
        (result, now())
    })
}

/// The mark of an error that must have been made by a quarantine.
pub(crate) fn assert_quarantined(error: &BoxError) {
    let status = error.downcast_ref::<tonic::Status>();
    let status = status.expect("a Status itself");
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let mark = Local::find(&**error).expect("marked as local");
    assert_eq!(mark.kind(), LocalKind::Quarantine);
}

/// Lets all tasks run that can.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "to stand still is what the test is about"
)]
fn block(time: Duration) {
    std::thread::sleep(time);
}
