//! A network in memory: connections without sockets, for behaviour tests under a paused clock.
//!
//! [`network`] gives both sides of one server: the [`Network`], which is a connector for clients (a `tower` service of
//! `http::Uri`, as `tonic::transport::Endpoint::connect_with_connector` wants it) and the handle for faults, and the
//! [`Incoming`] connections, which [`Peer::serve`](crate::peer::Peer::serve) or, with the feature `tonic`, tonic's
//! `Server::serve_with_incoming` takes. Nothing in it waits for the operating system, so a paused clock jumps only when every
//! task is idle, and the same test takes the same steps each time.
//!
//! ```
//! use steadfast_testkit::{memory, peer::{Peer, Script}, proxy::Which};
//! use tonic::transport::Endpoint;
//! # use steadfast_proto::{EchoRequest, echo_client::EchoClient};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let (network, incoming) = memory::network();
//! let _peer = Peer::serve(incoming, |_| Script::good());
//! let channel = Endpoint::from_static("http://memory").connect_with_connector_lazy(network.clone());
//! let mut client = EchoClient::new(channel);
//! client.unary(EchoRequest::default()).await.unwrap();
//! network.freeze(Which::All);
//! let hour = std::time::Duration::from_secs(3600); // passes at once
//! tokio::time::timeout(hour, client.unary(EchoRequest::default())).await.unwrap_err();
//! assert_eq!(network.state().connections.len(), 1);
//! # }
//! ```

mod link;
mod stream;

pub use crate::wait::Hang;
pub use stream::MemoryStream;

use crate::{proxy::Which, wait::wait_until};
use hyper_util::rt::TokioIo;
use link::{End, Link};
use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};
use stream::Side;
use tokio::{
    io::duplex,
    sync::{mpsc, watch},
};
use tokio_stream::Stream;
use tower_service::Service;

/// Bytes that one direction of a connection holds: a writer waits while the other side doesn't read.
const BUFFER: usize = 64 * 1024;

/// How the network treats a dial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialMode {
    /// Connects. The default.
    #[default]
    Connect,
    /// Fails at once: connection refused.
    Refuse,
    /// Waits until another mode is set, which then holds for it.
    Hang,
}

/// One connection of a [`Network`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryConnection {
    /// Whether both sides still hold it and it wasn't cut or reset.
    pub open: bool,
    /// Bytes that the client has written.
    pub to_server: u64,
    /// Bytes that the server has written.
    pub to_client: u64,
}

/// What a [`Network`] has seen.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NetworkState {
    /// Dials begun, those that were refused or hang included.
    pub dials: u64,
    /// The connections, by number; the first one is 0.
    pub connections: Vec<MemoryConnection>,
}

impl NetworkState {
    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        let open = |connection: &&MemoryConnection| connection.open;
        self.connections.iter().filter(open).count()
    }
}

impl fmt::Display for NetworkState {
    /// A summary for the message of a failed test.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dials, {:?}", self.dials, self.connections)
    }
}

#[derive(Default)]
struct Links {
    all: Vec<Arc<Link>>,
    /// Whether a new connection begins frozen.
    frozen: bool,
}

struct Shared {
    state: watch::Sender<NetworkState>,
    mode: watch::Sender<DialMode>,
    links: Mutex<Links>,
    incoming: mpsc::UnboundedSender<MemoryStream>,
}

/// The clients' side of a network, and the handle for its faults. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

/// A network to one server, whose side is the [`Incoming`].
pub fn network() -> (Network, Incoming) {
    let (incoming, accepted) = mpsc::unbounded_channel();
    let network = Network(Arc::new(Shared {
        state: watch::Sender::default(),
        mode: watch::Sender::default(),
        links: Mutex::default(),
        incoming,
    }));
    (network, Incoming(accepted))
}

impl Network {
    /// Dials, as the set [`DialMode`] says. Cancel safe.
    ///
    /// # Errors
    /// Connection refused: by the mode, or because the [`Incoming`] is gone.
    pub async fn connect(&self) -> io::Result<MemoryStream> {
        self.0.state.send_modify(|state| state.dials += 1);
        let mut mode = self.0.mode.subscribe();
        // The sender lives as long as `self`.
        let decided = mode.wait_for(|mode| *mode != DialMode::Hang).await;
        let decided = decided.map_or(DialMode::Refuse, |mode| *mode);
        if decided == DialMode::Refuse || self.0.incoming.is_closed() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = duplex(BUFFER);
        let mut links = self.links();
        let mut number = 0;
        self.0.state.send_modify(|state| {
            number = state.connections.len();
            state.connections.push(MemoryConnection {
                open: true,
                ..MemoryConnection::default()
            });
        });
        let link = Arc::new(Link::new(links.frozen, number, self.0.state.clone()));
        links.all.push(Arc::clone(&link));
        drop(links);
        let far = MemoryStream::new(far, Arc::clone(&link), Side::Server);
        let near = MemoryStream::new(near, link, Side::Client);
        match self.0.incoming.send(far) {
            Ok(()) => Ok(near),
            Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }

    /// How to treat dials from now on, and those that hang. Default: [`DialMode::Connect`].
    pub fn set_dial_mode(&self, mode: DialMode) {
        self.0.mode.send_replace(mode);
    }

    /// Delivers nothing any more, both ways; a writer goes on until 64 KiB wait. [`Which::All`] holds for later connections
    /// too.
    pub fn freeze(&self, which: Which) {
        self.set_frozen(which, true);
    }

    /// Delivers again; nothing is lost.
    pub fn thaw(&self, which: Which) {
        self.set_frozen(which, false);
    }

    fn set_frozen(&self, which: Which, frozen: bool) {
        if which == Which::All {
            self.links().frozen = frozen;
        }
        self.each(which, |link| link.freeze(frozen));
    }

    /// Ends open connections as a close does, both ways. What wasn't delivered yet is lost.
    pub fn cut(&self, which: Which) {
        self.each(which, |link| link.end(End::Cut));
    }

    /// Ends open connections with "connection reset", both ways. What wasn't delivered yet is lost.
    pub fn reset(&self, which: Which) {
        self.each(which, |link| link.end(End::Reset));
    }

    fn each(&self, which: Which, act: impl Fn(&Link)) {
        // Copied, so that no lock is held while a link wakes its sides.
        let links = self.links().all.clone();
        match which {
            Which::All => links.iter().for_each(|link| act(link)),
            Which::One(number) => {
                let at = usize::try_from(number).ok();
                if let Some(link) = at.and_then(|at| links.get(at)) {
                    act(link);
                }
            }
        }
    }

    /// A copy of all that the network has seen.
    pub fn state(&self) -> NetworkState {
        self.0.state.borrow().clone()
    }

    /// Waits until the condition holds; it is looked at after each change. `bound` is on tokio's clock: where that is paused,
    /// the wait ends as soon as nothing else can happen.
    ///
    /// `condition` runs under the state's lock: it must not call this network. Cancel safe.
    pub async fn wait_until(
        &self,
        bound: Duration,
        condition: impl FnMut(&NetworkState) -> bool,
    ) -> Result<(), Hang> {
        wait_until(&self.0.state, bound, condition).await
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("mode", &*self.0.mode.borrow())
            .field("state", &*self.0.state.borrow())
            .finish_non_exhaustive()
    }
}

/// A dial of a [`Network`].
type Connect = Pin<Box<dyn Future<Output = io::Result<TokioIo<MemoryStream>>> + Send>>;

impl Service<http::Uri> for Network {
    type Response = TokioIo<MemoryStream>;
    type Error = io::Error;
    type Future = Connect;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: http::Uri) -> Connect {
        let network = self.clone();
        Box::pin(async move { network.connect().await.map(TokioIo::new) })
    }
}

/// The server's side of a network: a stream of connections. It ends with the last clone of the [`Network`]; without it dials
/// are refused.
#[derive(Debug)]
pub struct Incoming(mpsc::UnboundedReceiver<MemoryStream>);

impl Incoming {
    /// The next connection, or `None` when there will be no more. Cancel safe.
    pub async fn accept(&mut self) -> Option<MemoryStream> {
        self.0.recv().await
    }
}

impl Stream for Incoming {
    type Item = io::Result<MemoryStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Pending: the channel holds the waker.
        self.0.poll_recv(context).map(|stream| stream.map(Ok))
    }
}
