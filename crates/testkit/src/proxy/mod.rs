//! A TCP proxy that fails on command: it freezes, mutes, delays, throttles, cuts and resets the connections that pass through
//! it.
//!
//! It moves bytes between a client and one upstream address and knows nothing of their meaning, except that it counts the
//! HTTP/2 HEADERS frames of the client, which tells how many requests went over a connection, and that a mute goes by frames.
//! It uses real sockets, so a test with it must not pause tokio's clock. With the feature `cli` it is a command too:
//! `fault-proxy --help`.
//!
//! ```
//! use std::time::Duration;
//! use steadfast_testkit::{peer::{Peer, Script}, proxy::{FaultProxy, Which}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let peer = Peer::start(Script::good())?;
//! let proxy = FaultProxy::start(peer.addr())?;
//! let mut client = steadfast_proto::echo_client::EchoClient::connect(proxy.uri()).await?;
//! client.unary(steadfast_proto::EchoRequest::default()).await?;
//! proxy.reset(Which::All);
//! proxy.wait_until(Duration::from_secs(10), |seen| seen.open_connections() == 0).await?;
//! assert_eq!(proxy.connections()[0].headers, 1);
//! # Ok(())
//! # }
//! ```

mod accept;
mod count;
mod lane;
mod pump;
mod state;

pub use crate::wait::Hang;
pub use state::{AcceptMode, Faults, ProxiedConnection, ProxyState, Which};

use crate::{listen::listen, wait::wait_until};
use accept::accept;
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cut,
    Reset,
}

/// What the test has asked of one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    faults: Faults,
    end: Option<End>,
}

struct Settings {
    upstream: SocketAddr,
    mode: AcceptMode,
    next: VecDeque<AcceptMode>,
    fresh: Control,
    live: HashMap<u64, watch::Sender<Control>>,
}

struct Shared {
    state: watch::Sender<ProxyState>,
    settings: Mutex<Settings>,
}

impl Shared {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running proxy.
///
/// Dropping it stops it: its tasks are aborted, and its sockets close when the runtime next runs them. [`FaultProxy::stop`]
/// waits until they are closed.
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultProxy")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl FaultProxy {
    /// Starts a proxy to `upstream` on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::bind((Ipv4Addr::LOCALHOST, 0).into(), upstream)
    }

    /// The same on a given address.
    ///
    /// # Panics
    /// As [`FaultProxy::start`].
    pub fn bind(addr: SocketAddr, upstream: SocketAddr) -> io::Result<Self> {
        let listener = listen(addr)?;
        let addr = listener.local_addr()?;
        let settings = Settings {
            upstream,
            mode: AcceptMode::default(),
            next: VecDeque::new(),
            fresh: Control::default(),
            live: HashMap::new(),
        };
        let shared = Arc::new(Shared {
            state: watch::Sender::default(),
            settings: Mutex::new(settings),
        });
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared), stopped));
        Ok(Self {
            addr,
            shared,
            stop: Some(stop),
            accepting,
        })
    }

    /// Where the proxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Connects later connections to this upstream; open ones stay where they are.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.settings().upstream = upstream;
    }

    /// What to do with new connections. Default: [`AcceptMode::Serve`].
    pub fn set_accept_mode(&self, mode: AcceptMode) {
        self.shared.settings().mode = mode;
    }

    /// Treats the next `connections` connections so, and those after them as before. Calls add up, in their order.
    pub fn accept_next(&self, connections: usize, mode: AcceptMode) {
        self.shared
            .settings()
            .next
            .extend(std::iter::repeat_n(mode, connections));
    }

    /// Stops moving bytes, both ways; the sockets stay open. A chunk that is being written at this moment may still go.
    pub fn freeze(&self, which: Which) {
        self.change(which, |faults| faults.frozen = true);
    }

    /// Moves bytes again; those that came meanwhile are not lost.
    pub fn thaw(&self, which: Which) {
        self.change(which, |faults| faults.frozen = false);
    }

    /// Holds each byte back this long, by its direction. Bytes that already wait keep their time. Default: zero.
    pub fn delay(&self, which: Which, to_server: Duration, to_client: Duration) {
        self.change(which, |faults| {
            (faults.to_server, faults.to_client) = (to_server, to_client)
        });
    }

    /// Passes no request and no answer any more, and keeps the connection alive: the proxy answers the PINGs of both sides
    /// itself, and lets SETTINGS pass. It follows HTTP/2 frames for that, and begins and ends between two of them; on a
    /// connection that speaks something else, TLS included, nothing passes. What it holds is held in memory, without a limit.
    pub fn mute(&self, which: Which) {
        self.change(which, |faults| faults.muted = true);
    }

    /// Passes all again, first what was held.
    pub fn unmute(&self, which: Which) {
        self.change(which, |faults| faults.muted = false);
    }

    /// Passes at most so many bytes a second, in each direction; with 0 none. A mebibyte may wait for that, then the proxy reads
    /// no more.
    pub fn throttle(&self, which: Which, bytes_per_second: u64) {
        self.change(which, |faults| {
            faults.bytes_per_second = Some(bytes_per_second)
        });
    }

    /// Passes bytes as fast as they come again.
    pub fn unthrottle(&self, which: Which) {
        self.change(which, |faults| faults.bytes_per_second = None);
    }

    /// Closes open connections (FIN), both ways. What the proxy still held is lost.
    pub fn cut(&self, which: Which) {
        self.end(which, End::Cut);
    }

    /// Resets open connections (TCP RST), both ways. What the proxy still held is lost.
    pub fn reset(&self, which: Which) {
        self.end(which, End::Reset);
    }

    fn end(&self, which: Which, end: End) {
        let settings = self.shared.settings();
        // A connection that is being cut keeps that end.
        let ask = |control: &mut Control| control.end = control.end.or(Some(end));
        match which {
            Which::All => settings
                .live
                .values()
                .for_each(|control| control.send_modify(ask)),
            Which::One(number) => settings
                .live
                .get(&number)
                .into_iter()
                .for_each(|control| control.send_modify(ask)),
        }
    }

    fn change(&self, which: Which, change: impl Fn(&mut Faults)) {
        let mut settings = self.shared.settings();
        if which == Which::All {
            change(&mut settings.fresh.faults);
        }
        for (number, control) in &settings.live {
            if which == Which::All || which == Which::One(*number) {
                control.send_modify(|control| change(&mut control.faults));
                let at = usize::try_from(*number).ok();
                self.shared.state.send_modify(|state| {
                    if let Some(connection) = at.and_then(|at| state.connections.get_mut(at)) {
                        connection.faults = control.borrow().faults;
                    }
                });
            }
        }
    }

    /// The connections accepted so far, by number.
    pub fn connections(&self) -> Vec<ProxiedConnection> {
        self.shared.state.borrow().connections.clone()
    }

    /// Waits until the condition holds; it is looked at after each change. `bound` is real time: how long to wait before the
    /// test counts as hung.
    ///
    /// `condition` runs under the state's lock: it must not call this proxy. Cancel safe.
    pub async fn wait_until(
        &self,
        bound: Duration,
        condition: impl FnMut(&ProxyState) -> bool,
    ) -> Result<(), Hang> {
        wait_until(&self.shared.state, bound, condition).await
    }

    /// Stops the proxy and waits until its listener and all its connections are closed. Dropped before its end, it stops the
    /// proxy as a drop does.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // The receiver lives as long as the task, which ends only here.
            let _ = stop.send(());
        }
        let _ = (&mut self.accepting).await;
    }
}
