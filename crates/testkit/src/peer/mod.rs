//! A scripted HTTP/2 gRPC server: it speaks raw frames on the loopback interface, so that it can break every rule.
//!
//! A [`Script`] decides how a connection is treated (at accept, SETTINGS, PINGs) and which [`Answer`] each request gets; an
//! answer is a list of [`Step`]s. [`Peer`] serves, and records all that it sees. The peer never judges the client: it keeps to
//! the client's flow-control windows, acknowledges SETTINGS and PINGs, returns the window of request bodies, and all else is
//! the script's. It uses real sockets, so a test with it must not pause tokio's clock; [`Peer::serve`] is for tests that do.
//!
//! | named script | what a client meets |
//! |---|---|
//! | [`Script::good`] | headers, one message, `grpc-status: 0` |
//! | [`Script::deaf`] | k good answers, then a peer that reads but never writes |
//! | [`Script::ping_only`] | PINGs are acknowledged, requests never answered |
//! | [`Script::head_stop`] | headers and some messages, then silence |
//! | [`Script::fin`], [`Script::tcp_reset`] | the connection breaks at a chosen point |
//! | [`Script::goaway`] | GOAWAY, then silence, the rest of the answers, or a close |
//! | [`Script::rst`], [`Script::rst_after_headers`] | RST_STREAM before or after headers |
//! | [`Script::max_streams`] | a stream limit, with all streams held until released |
//! | [`Script::flow`] | 3 MiB messages that fill the client's windows |
//! | [`Script::late`] | frames on streams that the client has reset |
//! | [`Script::strict_ping`] | GOAWAY "too_many_pings" |
//! | [`Script::http`], [`Script::http1`] | not gRPC, or not HTTP/2 |
//! | [`Script::trail`], [`Script::truncated`] | unusual trailers, half a message |
//! | [`Script::gap`] | a stream with silence between its messages |
//! | [`Script::big`], [`Script::zip_bomb`] | a message over any limit, one that is so only when it is unpacked |
//! | [`Script::forgotten`] | a load balancer that forgot the connection, and resets it at the next packet |
//! | [`Script::tls_mute`] | TCP is accepted, the TLS handshake never answered |
//! | [`Flapping`] | connections that serve a few requests and die, in every way |
//! | [`ClosedPort`], [`SynDrop`], [`never()`] | a refused connection, one whose SYN is dropped, a connect that never ends |

mod answer;
mod connection;
mod dead;
mod flapping;
mod flow;
mod hostile;
mod incoming;
mod link;
mod named;
mod script;
mod state;
mod stream;
mod transport;

pub use crate::wait::Hang;
pub use answer::{Answer, GOOD_PAYLOAD, Last, Respond, Step, header_block};
pub use dead::{ClosedPort, SynDrop, never};
pub use flapping::{Death, Flapping};
pub use named::{At, Then, Trail, Truncated};
pub use script::{Accept, Ping, Script, Settings};
pub use state::{Connection, Goaway, PeerState, Request, Reset};

use crate::{listen::listen, memory::Incoming, wait::wait_until};
use flow::Flow;
use std::{
    collections::HashMap,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use stream::{Command, Context};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time,
};
use transport::{Listener, Transport};

/// Commands that may wait for the connection's task; a stream's task waits when there are more.
const COMMANDS: usize = 64;

type Scripts = Arc<dyn Fn(u64) -> Script + Send + Sync>;

struct Shared {
    state: watch::Sender<PeerState>,
    scripts: Mutex<Scripts>,
    gate: Arc<Semaphore>,
    live: Mutex<HashMap<u64, mpsc::Sender<Command>>>,
}

/// A running server.
///
/// Dropping it stops it: its tasks are aborted, and its sockets close when the runtime next runs them. [`Peer::stop`] waits
/// until they are closed.
pub struct Peer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Peer {
    /// Starts a peer on a free port of 127.0.0.1, with one script for all connections.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::scripted(move |_| script.clone())
    }

    /// The same with a script for each connection, by its number; the first one accepted is 0.
    ///
    /// # Panics
    /// As [`Peer::start`].
    pub fn scripted(scripts: impl Fn(u64) -> Script + Send + Sync + 'static) -> io::Result<Self> {
        Self::bind((Ipv4Addr::LOCALHOST, 0).into(), scripts)
    }

    /// The same on a given address, for a server that comes back after [`Peer::stop`].
    ///
    /// # Panics
    /// As [`Peer::start`].
    pub fn bind(
        addr: SocketAddr,
        scripts: impl Fn(u64) -> Script + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = listen(addr)?;
        let addr = listener.local_addr()?;
        Ok(Self::on(listener, addr, scripts))
    }

    /// Serves the connections of a network in memory: see [`memory`](crate::memory). [`Peer::addr`] is 0.0.0.0:0 then.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub fn serve(
        incoming: Incoming,
        scripts: impl Fn(u64) -> Script + Send + Sync + 'static,
    ) -> Self {
        Self::on(incoming, (Ipv4Addr::UNSPECIFIED, 0).into(), scripts)
    }

    fn on<L: Listener>(
        listener: L,
        addr: SocketAddr,
        scripts: impl Fn(u64) -> Script + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: watch::Sender::default(),
            scripts: Mutex::new(Arc::new(scripts)),
            gate: Arc::new(Semaphore::new(0)),
            live: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), stopped));
        Self {
            addr,
            shared,
            stop: Some(stop),
            accepting,
        }
    }

    /// Where the peer listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address, for `tonic::transport::Endpoint`.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Uses this script for the connections accepted from now on.
    pub fn set_script(&self, script: Script) {
        self.set_scripts(move |_| script.clone());
    }

    /// Uses these scripts for the connections accepted from now on. The numbers go on counting.
    pub fn set_scripts(&self, scripts: impl Fn(u64) -> Script + Send + Sync + 'static) {
        *self
            .shared
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(scripts);
    }

    /// Looks at what the peer has seen. `look` runs under the state's lock: it must not call this peer.
    pub fn inspect<R>(&self, look: impl FnOnce(&PeerState) -> R) -> R {
        look(&self.shared.state.borrow())
    }

    /// A copy of all that the peer has seen.
    pub fn state(&self) -> PeerState {
        self.inspect(PeerState::clone)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.inspect(|state| state.connections.len())
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.inspect(PeerState::open_connections)
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.inspect(|state| state.requests.clone())
    }

    /// How many streams are open now on each connection, by its number; closed connections have none.
    pub fn open_streams_per_connection(&self) -> Vec<usize> {
        self.inspect(|state| {
            state
                .connections
                .iter()
                .map(|connection| connection.open_streams.len())
                .collect()
        })
    }

    /// The RST_STREAM frames that clients sent, in order.
    pub fn resets(&self) -> Vec<Reset> {
        self.inspect(|state| state.resets.clone())
    }

    /// The GOAWAY frames that clients sent, in order.
    pub fn goaways(&self) -> Vec<Goaway> {
        self.inspect(|state| state.goaways.clone())
    }

    /// PINGs received, without acknowledgements.
    pub fn pings(&self) -> u64 {
        self.inspect(PeerState::pings)
    }

    /// Waits until the condition holds; it is looked at after each change. `bound` is real time: how long to wait before the
    /// test counts as hung.
    ///
    /// `condition` runs under the state's lock: it must not call this peer. Cancel safe.
    pub async fn wait_until(
        &self,
        bound: Duration,
        condition: impl FnMut(&PeerState) -> bool,
    ) -> Result<(), Hang> {
        wait_until(&self.shared.state, bound, condition).await
    }

    /// Lets this many answers pass their [`Step::Hold`], the longest held first. Places that no answer takes now are kept for
    /// later ones.
    pub fn release(&self, answers: usize) {
        self.shared.gate.add_permits(answers);
    }

    /// Lets all answers pass their [`Step::Hold`], now and in future.
    pub fn release_all(&self) {
        self.shared.gate.close();
    }

    /// Makes a live connection perform these steps besides its answers, for example a GOAWAY at a moment of the test's choice.
    /// They belong to stream 0. False if the connection is closed.
    ///
    /// Returns when the steps are queued, not when they are done. Dropped before, it queues nothing.
    pub async fn inject(&self, connection: u64, steps: impl IntoIterator<Item = Step>) -> bool {
        let answer = Answer::steps(steps);
        let commands = self
            .shared
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&connection)
            .cloned();
        match commands {
            Some(commands) => commands.send(Command::Run(answer)).await.is_ok(),
            None => false,
        }
    }

    /// Stops the peer and waits until its listener and all its connections are closed, so that another peer can bind the same
    /// port. Dropped before its end, it stops the peer as a drop does.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // The receiver lives as long as the task, which ends only here.
            let _ = stop.send(());
        }
        let _ = (&mut self.accepting).await;
    }
}

async fn accept<L: Listener>(
    mut listener: L,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.next() => match accepted {
                Ok(socket) => {
                    connections.spawn(connect(socket, Arc::clone(&shared)));
                }
                // Out of descriptors: the wait leaves others the time to close some.
                Err(_) => time::sleep(Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connect<T: Transport>(socket: T, shared: Arc<Shared>) {
    /// Forgets the connection however its task ends.
    struct Live(Arc<Shared>, u64);
    impl Drop for Live {
        fn drop(&mut self) {
            self.0
                .live
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&self.1);
        }
    }

    let (commands, inbox) = mpsc::channel(COMMANDS);
    let mut number = 0;
    shared.state.send_modify(|state| {
        number = state.connections.len() as u64;
        state.connections.push(Connection {
            open: true,
            ..Connection::default()
        });
    });
    shared
        .live
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(number, commands.clone());
    let live = Live(Arc::clone(&shared), number);
    // The lock is released before the user's closure runs, which may call `set_script`.
    let scripts = Arc::clone(
        &shared
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    let script = scripts(number);
    let context = Context {
        number,
        state: shared.state.clone(),
        gate: Arc::clone(&shared.gate),
        flow: Arc::new(Flow::new()),
        commands,
    };
    connection::run(socket, script, context, inbox).await;
    drop(live);
}
