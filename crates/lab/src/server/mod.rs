//! A BigTable-like server in this process: ReadRows, MutateRow, MutateRows and PingAndWarm over tables held in memory.
//!
//! It speaks the real protocol, so Google's own clients can read from it (`BIGTABLE_EMULATOR_HOST=address cbt -project p -instance i read TABLE`). It
//! reads reversed too, which Google's emulator doesn't. It has no admin half: the first write to a table creates it, with any family that is named. It
//! never splits a row over messages, and it refuses the filters it doesn't know.

mod filter;
mod incoming;
pub(crate) mod process;
mod ranges;
mod read;
mod service;
mod table;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::MutateRowsRequest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;

use crate::error::{Error, Result};
pub use incoming::Manner;
use incoming::{Arrivals, Connection};
use service::{Bigtable, Shared};

/// How much later a slow connection answers: a point read takes about 1 ms here, most of it the timer's, so this
/// makes it about four times slower.
pub const SLOWER: Duration = Duration::from_millis(3);

/// A running embedded server. Dropping it closes the listener and tells its clients to go away; open calls may still end.
#[derive(Debug)]
pub struct Embedded {
    address: SocketAddr,
    shared: Arc<Shared>,
    arrivals: Arc<Arrivals>,
    term: Arc<Mutex<Term>>,
    /// Ends the listener.
    _listening: oneshot::Sender<()>,
}

/// One of the servers that follow each other on one listener: to tell all clients to go away is to end one.
#[derive(Debug)]
struct Term {
    _shutdown: oneshot::Sender<()>,
    connections: mpsc::UnboundedSender<TcpStream>,
}

impl Embedded {
    /// Starts a server with no tables on a free port of 127.0.0.1; it serves on the current tokio runtime.
    pub async fn start() -> Result<Self> {
        Self::on_port(0).await
    }

    /// The same on this port; 0 is a free one.
    pub async fn on_port(port: u16) -> Result<Self> {
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = TcpListener::bind(local)
            .await
            .map_err(|error| Error::because(format!("can't listen on {local}"), error))?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::because("can't read the address of the listener", error))?;
        let (shared, arrivals) = (Arc::default(), Arc::default());
        let term = Arc::new(Mutex::new(Term::begin(&shared, &arrivals)));
        let (listening, stopped) = oneshot::channel();
        tokio::spawn(accept(listener, Arc::clone(&term), stopped));
        Ok(Self {
            address,
            shared,
            arrivals,
            term,
            _listening: listening,
        })
    }

    /// Tells the clients of all connections to go away (GOAWAY without an error), lets their open calls end, and serves
    /// new connections.
    pub fn go_away(&self) {
        let next = Term::begin(&self.shared, &self.arrivals);
        *self.term.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes rows without going through the network.
    pub fn write(&self, request: &MutateRowsRequest) -> Result<()> {
        let table = self.shared.tables.for_writing(&request.table_name);
        for entry in &request.entries {
            table::mutate(&table, &entry.row_key, &entry.mutations)
                .map_err(|status| Error::because("can't fill the embedded server", status))?;
        }
        Ok(())
    }

    /// While true, every call is answered with Unavailable at once.
    pub fn set_failing(&self, failing: bool) {
        self.shared.failing.store(failing, Ordering::Relaxed);
    }

    /// How the connection behaves that was the first since the last mark.
    pub fn set_manner(&self, manner: Manner) {
        self.arrivals.set_manner(manner);
    }

    /// How many calls have reached it since it started, counted as HEADERS frames.
    pub fn calls(&self) -> u64 {
        self.arrivals.calls()
    }

    /// When the first connection since its start, or since [`Embedded::mark`], was accepted, as time since the host started.
    pub fn first_connection(&self) -> Option<Duration> {
        self.arrivals.first()
    }

    /// Forgets which connection was the first, so that [`Embedded::first_connection`] speaks of the next client.
    pub fn mark(&self) {
        self.arrivals.mark();
    }
}

impl Term {
    fn begin(shared: &Arc<Shared>, arrivals: &Arc<Arrivals>) -> Self {
        let (connections, accepted) = mpsc::unbounded_channel();
        let (shutdown, stopped) = oneshot::channel();
        let arrivals = Arc::clone(arrivals);
        let accepted = UnboundedReceiverStream::new(accepted)
            .map(move |stream| Connection::accept(stream, Arc::clone(&arrivals)));
        let service = Bigtable {
            shared: Arc::clone(shared),
        };
        tokio::spawn(
            Server::builder().serve_with_incoming_shutdown(service, accepted, async {
                // An error means that the sender was dropped, which is how a stop is asked for.
                let _ = stopped.await;
            }),
        );
        Self {
            _shutdown: shutdown,
            connections,
        }
    }
}

/// Hands each connection to the server whose turn it is.
async fn accept(listener: TcpListener, term: Arc<Mutex<Term>>, mut stopped: oneshot::Receiver<()>) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Its client went before it was accepted, or there are too many open files: then some may close.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            _ = &mut stopped => return,
        };
        let term = term.lock().unwrap_or_else(PoisonError::into_inner);
        // It fails only when that server ended by itself; then the connection is closed.
        let _ = term.connections.send(stream);
    }
}
