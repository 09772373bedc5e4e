//! Channels on which a failure is about to happen.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use steadfast_testkit::peer::{
    Answer, ClosedPort, Last, Peer, PeerState, Script, Settings, Step, never,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    task::yield_now,
};
use tonic::transport::{Channel, Endpoint};
use tower::{Service, ServiceExt};

use super::{
    HANG, PATIENCE,
    call::{Boxed, Opened, PATH},
    row::Open,
};

/// How the row's endpoint differs from a plain one.
pub(crate) type Tune = fn(Endpoint) -> Endpoint;

pub(crate) fn endpoint(uri: impl Into<String>) -> Endpoint {
    Endpoint::from_shared(uri.into()).expect("a good URI")
}

/// A lazy channel, and nothing else to do.
pub(crate) fn opened(channel: Channel, keep: impl Send + 'static) -> Opened {
    Opened {
        channel: Ok(channel),
        meanwhile: None,
        keep: Box::new(keep),
    }
}

/// What `make` makes.
pub(crate) fn open<F>(make: impl Fn() -> F + Send + Sync + 'static) -> Open
where
    F: Future<Output = Opened> + Send + 'static,
{
    Arc::new(move || Box::pin(make()) as Boxed<Opened>)
}

/// A channel to a peer with this script.
pub(crate) fn peer(script: Script) -> Open {
    tuned(script, |endpoint| endpoint)
}

/// The same with settings of the client's.
pub(crate) fn tuned(script: Script, tune: Tune) -> Open {
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let channel = tune(endpoint(peer.uri())).connect_lazy();
        async { opened(channel, peer) }
    })
}

/// The same peer with the scheme `https`, and no TLS configured.
pub(crate) fn https(script: Script) -> Open {
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let channel = endpoint(peer.uri().replace("http", "https")).connect_lazy();
        async { opened(channel, peer) }
    })
}

/// A peer that answers each request with these steps, once the request has come.
pub(crate) fn steps(steps: impl IntoIterator<Item = Step>) -> Open {
    peer(scripted(steps))
}

/// The script of such a peer.
pub(crate) fn scripted(steps: impl IntoIterator<Item = Step>) -> Script {
    let steps = std::iter::once(Step::AwaitRequest).chain(steps);
    Script::always(Answer::steps(steps))
}

/// The same with headers and one message before.
pub(crate) fn after_message(rest: impl IntoIterator<Item = Step>) -> Open {
    let begun = [Step::headers(), Step::good_message()];
    steps(begun.into_iter().chain(rest))
}

pub(crate) fn refused(scheme: &'static str) -> Open {
    open(move || {
        let port = ClosedPort::new().unwrap();
        let channel = endpoint(format!("{scheme}://{}", port.addr())).connect_lazy();
        async { opened(channel, port) }
    })
}

/// An eager connect to a closed port.
pub(crate) fn refused_eagerly() -> Open {
    open(|| async {
        let port = ClosedPort::new().unwrap();
        Opened {
            channel: endpoint(port.uri()).connect().await,
            meanwhile: None,
            keep: Box::new(port),
        }
    })
}

/// A name that no resolver has to be asked about: its label is too long.
pub(crate) fn unresolvable() -> Open {
    open(|| async {
        let name = format!("http://{}.test:1", "n".repeat(64));
        opened(endpoint(name).connect_lazy(), ())
    })
}

/// A connector that never ends.
pub(crate) fn never_connects(tune: Tune) -> Open {
    open(move || async move {
        let connector = tower::service_fn(never::<TokioIo<TcpStream>>);
        let endpoint = tune(endpoint("http://unused.test"));
        opened(endpoint.connect_with_connector_lazy(connector), ())
    })
}

/// A connector that fails.
pub(crate) fn fails_to_connect() -> Open {
    open(|| async {
        let connector = tower::service_fn(|_: http::Uri| async {
            Err::<TokioIo<TcpStream>, _>(io::Error::from(io::ErrorKind::ConnectionReset))
        });
        let endpoint = endpoint("http://unused.test");
        opened(endpoint.connect_with_connector_lazy(connector), ())
    })
}

/// A listener whose queue is full: the kernel drops each SYN.
pub(crate) fn syn_dropped(tune: Tune) -> Open {
    open(move || async move {
        let full = tokio::task::spawn_blocking(full_listener).await.unwrap();
        let (listener, fillers) = full.expect("a listener with a full queue");
        let addr = listener.local_addr().unwrap();
        let channel = tune(endpoint(format!("http://{addr}"))).connect_lazy();
        opened(channel, (listener, fillers))
    })
}

fn full_listener() -> io::Result<(StdListener, Vec<Socket>)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(0)?;
    let addr = listener.local_addr()?;
    let mut fillers = Vec::new();
    // The queue holds one or two, by kernel; a connect that doesn't end at once found it full.
    for _ in 0..8 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        match filler.connect_timeout(&addr, Duration::from_millis(100)) {
            Ok(()) => fillers.push(filler),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Ok((listener.into(), fillers));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the queue never filled"))
}

/// A channel whose worker's runtime is gone.
pub(crate) fn orphaned() -> Open {
    open(|| async {
        let make = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async { endpoint("http://127.0.0.1:1").connect_lazy() })
        };
        // A runtime may not be dropped inside another.
        let channel = std::thread::spawn(make).join().unwrap();
        opened(channel, ())
    })
}

/// A channel whose runtime ends when the request has reached the peer.
pub(crate) fn orphaned_after_sending() -> Open {
    open(|| async {
        let peer = Arc::new(Peer::start(Script::ping_only()).unwrap());
        let uri = peer.uri();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (hand_over, channel) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let sent = hand_over.send(endpoint(uri).connect_lazy());
                assert!(sent.is_ok(), "the row waits for the channel");
                // Either way it is over.
                let _stop = stopped.await;
            });
        });
        let watched = Arc::clone(&peer);
        let meanwhile = async move {
            let requested = |state: &PeerState| !state.requests.is_empty();
            watched.wait_until(HANG, requested).await.unwrap();
            drop(stop);
        };
        Opened {
            channel: Ok(channel.await.unwrap()),
            meanwhile: Some(Box::pin(meanwhile)),
            keep: Box::new(peer),
        }
    })
}

/// How far a request has come when its connection breaks.
#[derive(Clone, Copy)]
pub(crate) enum Queued {
    /// In h2, for a free stream.
    InH2,
    /// In hyper, behind that one.
    InHyper,
}

/// One stream is allowed and taken; then the connection ends with these steps.
pub(crate) fn queued(place: Queued, end: impl Fn() -> Vec<Step> + Send + Sync + 'static) -> Open {
    let end = Arc::new(end);
    open(move || {
        let end = Arc::clone(&end);
        async move {
            let peer = Arc::new(Peer::start(Script::max_streams(1)).unwrap());
            let channel = endpoint(peer.uri()).connect_lazy();
            let mut before = vec![tokio::spawn(background(channel.clone()))];
            let settled = |state: &PeerState| {
                state.requests.len() == 1 && state.connections[0].settings_acknowledged
            };
            peer.wait_until(HANG, settled).await.unwrap();
            if matches!(place, Queued::InHyper) {
                before.push(tokio::spawn(background(channel.clone())));
                settle().await;
            }
            let breaks = Arc::clone(&peer);
            let meanwhile = async move {
                settle().await;
                assert!(breaks.inject(0, end()).await, "the connection is open");
            };
            Opened {
                channel: Ok(channel),
                meanwhile: Some(Box::pin(meanwhile)),
                keep: Box::new((peer, before)),
            }
        }
    })
}

/// Everything in this process that can go on has gone on: the tests' runtime has one thread, and a yield
/// lets each ready task run once.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

/// A call whose end nobody looks at.
async fn background(mut channel: Channel) {
    let request = http::Request::post(PATH)
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())
        .unwrap();
    if let Ok(ready) = channel.ready().await
        && let Ok(response) = ready.call(request).await
    {
        drop(response);
        std::future::pending::<()>().await;
    }
}

/// A neighbour of 1,200 streams that are dropped at once, and whose answers come all the same.
pub(crate) fn beside_a_mass_cancel() -> Open {
    const DROPPED: usize = 1200;
    open(|| async {
        let script = Script::new(|request| {
            let begun = [Step::headers(), Step::good_message()];
            if request.index == 0 {
                Answer::steps(begun)
            } else {
                Answer::silence().after_reset(begun)
            }
        });
        let peer = Arc::new(Peer::start(script).unwrap());
        let channel = endpoint(peer.uri()).connect_lazy();
        let others = channel.clone();
        let watched = Arc::clone(&peer);
        let meanwhile = async move {
            let requests = |count| move |state: &PeerState| state.requests.len() == count;
            watched.wait_until(HANG, requests(1)).await.unwrap();
            let calls: Vec<_> = (0..DROPPED)
                .map(|_| tokio::spawn(background(others.clone())))
                .collect();
            watched
                .wait_until(HANG, requests(1 + DROPPED))
                .await
                .unwrap();
            calls.iter().for_each(|call| call.abort());
        };
        Opened {
            channel: Ok(channel),
            meanwhile: Some(Box::pin(meanwhile)),
            keep: Box::new(peer),
        }
    })
}

/// A peer that allows no stream at all.
pub(crate) fn no_streams(tune: Tune) -> Open {
    let settings = Settings {
        max_concurrent_streams: Some(0),
        ..Settings::default()
    };
    let script = Script::good().settings(settings);
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let channel = tune(endpoint(peer.uri())).connect_lazy();
        async move {
            // The first request would go out before the SETTINGS came.
            let first = tokio::spawn(background(channel.clone()));
            let seen = |state: &PeerState| matches!(&state.connections[..], [only] if only.settings_acknowledged);
            peer.wait_until(HANG, seen).await.unwrap();
            opened(channel, (peer, first))
        }
    })
}

/// Where in an exchange a transport fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    BeforeHead,
    InBody,
}

/// A transport whose reads fail with an error of this kind.
pub(crate) fn failing_reads(kind: io::ErrorKind, at: Fails) -> Open {
    open(move || {
        let peer =
            Arc::new(Peer::start(Script::head_stop(usize::from(at == Fails::InBody))).unwrap());
        if at == Fails::BeforeHead {
            peer.set_script(Script::ping_only());
        }
        let watched = Arc::clone(&peer);
        let connector = tower::service_fn(move |_: http::Uri| {
            let peer = Arc::clone(&watched);
            async move {
                let inner = TcpStream::connect(peer.addr()).await?;
                let trigger: Boxed<()> = Box::pin(async move {
                    let requested = |state: &PeerState| !state.requests.is_empty();
                    peer.wait_until(HANG, requested).await.unwrap();
                });
                let failing = Failing {
                    inner,
                    kind,
                    trigger: (at == Fails::BeforeHead).then_some(trigger),
                    failing: false,
                };
                Ok::<_, io::Error>(TokioIo::new(failing))
            }
        });
        let channel = endpoint("http://unused.test").connect_with_connector_lazy(connector);
        async { opened(channel, peer) }
    })
}

struct Failing {
    inner: TcpStream,
    kind: io::ErrorKind,
    /// Reads fail from its end on; without one, when the good message has passed.
    trigger: Option<Boxed<()>>,
    failing: bool,
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.failing {
            return Poll::Ready(Err(self.kind.into()));
        }
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(read) => {
                let passed = buf.filled().windows(3).any(|bytes| bytes == b"abc");
                self.failing |= passed && self.trigger.is_none();
                Poll::Ready(read)
            }
            // Pending: the socket holds the waker, and the trigger, if there is one.
            Poll::Pending => match &mut self.trigger {
                Some(trigger) => {
                    ready!(trigger.as_mut().poll(cx));
                    self.failing = true;
                    Poll::Ready(Err(self.kind.into()))
                }
                None => Poll::Pending,
            },
        }
    }
}

impl AsyncWrite for Failing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The short time limit of the rows that have one.
pub(crate) const LIMIT: Duration = Duration::from_millis(50);

/// A time limit within which a head surely comes.
pub(crate) const HEAD_LIMIT: Duration = Duration::from_secs(1);

/// Keepalive that expires well within [`HANG`].
pub(crate) fn keepalive(endpoint: Endpoint) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(LIMIT)
        .keep_alive_timeout(LIMIT)
}

/// The same, when the head has surely come.
pub(crate) fn late_keepalive(endpoint: Endpoint) -> Endpoint {
    keepalive(endpoint).http2_keep_alive_interval(HEAD_LIMIT)
}

/// GOAWAY.
pub(crate) fn goaway(code: u32, last: Last) -> Step {
    Step::goaway(code, last)
}

/// A while, much shorter than the rows that hang are watched.
pub(crate) fn later() -> Step {
    Step::Wait(PATIENCE / 4)
}
