//! A network in memory: places that can be dialled, and channels whose answers the request's path
//! chooses.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use steadfast_balance::{Balance, BalanceConfig, BalanceLayer, Places};
use steadfast_core::{BoxError, ChannelId, Local, LocalKind, Meter, Metered, NewChannel, Place};
use tower::{Layer, Service, ServiceExt};

/// How a place answers a dial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dial {
    Works,
    After(Duration),
    Refuses,
    Hangs,
    Panics,
}

/// What a channel says when it is asked whether it is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Readiness {
    Ready,
    Pending,
    Lost,
}

#[derive(Default)]
struct State {
    dials: HashMap<String, Dial>,
    dialled: Vec<String>,
    served: HashMap<ChannelId, usize>,
    readiness: HashMap<ChannelId, Readiness>,
    wakers: Vec<Waker>,
    timeouts: Vec<Option<String>>,
    /// The stream limit that new channels show.
    limit: Option<u32>,
    meters: Vec<Meter>,
}

#[derive(Clone, Default)]
pub struct Net {
    state: Arc<Mutex<State>>,
    /// Channel services and bodies that are alive.
    pub alive: Arc<AtomicUsize>,
}

impl Net {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&self, place: &str, dial: Dial) {
        self.state
            .lock()
            .unwrap()
            .dials
            .insert(place.to_owned(), dial);
    }

    /// All channels, old and new, show this stream limit from now on.
    pub fn set_stream_limit(&self, limit: Option<u32>) {
        let mut state = self.state.lock().unwrap();
        state.limit = limit;
        let meters = state.meters.clone();
        drop(state);
        meters
            .iter()
            .for_each(|meter| meter.set_stream_limit(limit));
    }

    /// A pool whose channels show the stream limit that was set.
    pub fn limited_pool(&self, config: BalanceConfig) -> Balance<TestChannel> {
        let layer = BalanceLayer::new(config)
            .unwrap()
            .places(Places::list(["a"]));
        layer.layer(Limited(self.clone()))
    }

    /// How often each place was dialled.
    pub fn dials(&self, place: &str) -> usize {
        let state = self.state.lock().unwrap();
        state
            .dialled
            .iter()
            .filter(|dialled| *dialled == place)
            .count()
    }

    pub fn served(&self, id: ChannelId) -> usize {
        self.state
            .lock()
            .unwrap()
            .served
            .get(&id)
            .copied()
            .unwrap_or_default()
    }

    pub fn set_readiness(&self, id: ChannelId, readiness: Readiness) {
        let mut state = self.state.lock().unwrap();
        state.readiness.insert(id, readiness);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The grpc-timeout of each request, in the order they came.
    pub fn timeouts(&self) -> Vec<Option<String>> {
        self.state.lock().unwrap().timeouts.clone()
    }

    async fn dial(self, id: ChannelId, place: Place) -> Result<RawChannel, BoxError> {
        let dial = {
            let mut state = self.state.lock().unwrap();
            state.dialled.push(place.to_string());
            *state.dials.get(place.as_str()).unwrap_or(&Dial::Works)
        };
        match dial {
            Dial::Works => {}
            Dial::After(time) => tokio::time::sleep(time).await,
            Dial::Refuses => return Err("connection refused (a test says so)".into()),
            Dial::Hangs => std::future::pending().await,
            Dial::Panics => panic!("this place panics"),
        }
        Ok(RawChannel {
            net: self.clone(),
            id,
            _alive: Alive::new(&self.alive),
        })
    }

    pub fn pool(&self, config: BalanceConfig) -> Balance<TestChannel> {
        self.pool_at(config, Places::list(["a"]))
    }

    pub fn pool_at(&self, config: BalanceConfig, places: Places) -> Balance<TestChannel> {
        let layer = BalanceLayer::new(config).unwrap().places(places);
        layer.layer(self.factory())
    }

    pub fn factory(
        &self,
    ) -> impl Fn(
        ChannelId,
        Place,
    ) -> Pin<Box<dyn Future<Output = Result<RawChannel, BoxError>> + Send>>
    + Send
    + Sync
    + 'static
    + use<> {
        let net = self.clone();
        move |id, place| Box::pin(net.clone().dial(id, place))
    }
}

/// A factory whose channels show a stream limit on their meters.
struct Limited(Net);

impl NewChannel for Limited {
    type Service = TestChannel;
    type Future = Pin<Box<dyn Future<Output = Result<Metered<TestChannel>, BoxError>> + Send>>;

    fn new_channel(&self, id: ChannelId, place: &Place) -> Self::Future {
        let net = self.0.clone();
        let dial = net.factory().new_channel(id, place);
        Box::pin(async move {
            let channel = dial.await?;
            let mut state = net.state.lock().unwrap();
            channel.meter().set_stream_limit(state.limit);
            state.meters.push(channel.meter().clone());
            Ok(channel)
        })
    }
}

#[derive(Debug)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Clone for Alive {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the pool's factory makes of a [`RawChannel`].
pub type TestChannel = steadfast_core::Bottom<RawChannel>;

#[derive(Clone)]
pub struct RawChannel {
    net: Net,
    id: ChannelId,
    _alive: Alive,
}

/// A request for one of the answers below.
pub fn request(path: &'static str) -> Request<()> {
    Request::builder().uri(path).body(()).unwrap()
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<TestBody>, BoxError>> + Send>>;

impl Service<Request<()>> for RawChannel {
    type Response = Response<TestBody>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut state = self.net.state.lock().unwrap();
        match state.readiness.get(&self.id).unwrap_or(&Readiness::Ready) {
            Readiness::Ready => Poll::Ready(Ok(())),
            Readiness::Lost => Poll::Ready(Err("the channel is gone (a test says so)".into())),
            Readiness::Pending => {
                // Pending: `set_readiness` wakes it.
                state.wakers.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn call(&mut self, request: Request<()>) -> Answer {
        let mut state = self.net.state.lock().unwrap();
        *state.served.entry(self.id).or_default() += 1;
        let timeout = request.headers().get("grpc-timeout");
        state
            .timeouts
            .push(timeout.map(|value| value.to_str().unwrap().to_owned()));
        drop(state);
        let path = request.uri().path().to_owned();
        Box::pin(answer(path))
    }
}

async fn answer(path: String) -> Result<Response<TestBody>, BoxError> {
    let data = || Step::Data(Bytes::from_static(b"\0\0\0\0\x03abc"));
    let steps = match path.as_str() {
        "/headless" => return std::future::pending().await,
        "/error" => return Err("the connection broke (a test says so)".into()),
        "/held" => vec![data(), Step::Hold],
        "/silent" => vec![Step::Hold],
        "/trailers" => vec![data(), Step::Trailers(0)],
        "/eos" => vec![data(), Step::Nothing],
        "/at-end" => vec![data()],
        "/broken" => vec![data(), Step::Error],
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            vec![data(), Step::Trailers(0)]
        }
        "/unavailable" => return Ok(head(Some(14), Vec::new())),
        _ => return Ok(head(Some(0), Vec::new())),
    };
    Ok(head(None, steps))
}

fn head(status: Option<u16>, steps: Vec<Step>) -> Response<TestBody> {
    let mut response = Response::new(TestBody {
        steps: steps.into(),
    });
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    if let Some(status) = status {
        headers.insert("grpc-status", HeaderValue::from(status));
    }
    response
}

enum Step {
    Data(Bytes),
    Trailers(u16),
    /// `None` comes without `is_end_stream` having said so.
    Nothing,
    Error,
    Hold,
}

/// A body that goes through its steps; one whose steps are all done says so by `is_end_stream`.
pub struct TestBody {
    steps: std::collections::VecDeque<Step>,
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if matches!(self.steps.front(), Some(Step::Hold)) {
            // Pending for ever: nobody wakes it, as on a connection that went silent.
            return Poll::Pending;
        }
        Poll::Ready(match self.steps.pop_front() {
            Some(Step::Data(data)) => Some(Ok(Frame::data(data))),
            Some(Step::Trailers(status)) => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from(status));
                Some(Ok(Frame::trailers(trailers)))
            }
            Some(Step::Error) => Some(Err("the body broke (a test says so)".into())),
            Some(Step::Nothing | Step::Hold) | None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }
}

/// What a call gives, without its body's type.
pub type Held = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>>;

/// One call, to the head of its response.
pub async fn call(pool: &Balance<TestChannel>, path: &'static str) -> Result<Held, BoxError> {
    send(pool, request(path)).await
}

pub async fn send(pool: &Balance<TestChannel>, request: Request<()>) -> Result<Held, BoxError> {
    let response = pool.clone().oneshot(request).await?;
    Ok(response.map(BodyExt::boxed_unsync))
}

/// The mark and the text of an error that must have been made locally.
pub fn local(error: &BoxError) -> (LocalKind, String) {
    let status = error
        .downcast_ref::<tonic::Status>()
        .expect("a Status itself");
    let mark = Local::find(&**error).expect("marked as local");
    (mark.kind(), status.message().to_owned())
}

/// In flight of each ready channel.
pub fn loads(pool: &Balance<TestChannel>) -> Vec<u32> {
    pool.snapshot()
        .channels
        .iter()
        .map(|channel| channel.in_flight)
        .collect()
}

/// Lets all tasks run that can.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
