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
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::MutateRowsRequest;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::error::{Error, Result};
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
    _shutdown: oneshot::Sender<()>,
}

impl Embedded {
    /// Starts a server with no tables on a free port of 127.0.0.1; it serves on the current tokio runtime.
    pub async fn start() -> Result<Self> {
        let local = "127.0.0.1:0";
        let listener = TcpListener::bind(local)
            .await
            .map_err(|error| Error::because(format!("can't listen on {local}"), error))?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::because("can't read the address of the listener", error))?;
        let (shutdown, stopped) = oneshot::channel();
        let server = Self {
            address,
            shared: Arc::default(),
            arrivals: Arc::default(),
            _shutdown: shutdown,
        };
        let arrivals = Arc::clone(&server.arrivals);
        let connections = TcpListenerStream::new(listener)
            .map(move |stream| Connection::accept(stream?, Arc::clone(&arrivals)));
        let service = Bigtable {
            shared: Arc::clone(&server.shared),
        };
        tokio::spawn(
            Server::builder().serve_with_incoming_shutdown(service, connections, async {
                // An error means that the sender was dropped, which is how a stop is asked for.
                let _ = stopped.await;
            }),
        );
        Ok(server)
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

    /// While true, each call on the connection that was the first since the last mark is answered
    /// [`SLOWER`] later.
    pub fn set_slow(&self, slow: bool) {
        self.arrivals.set_slow(slow);
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
