//! Addresses and connectors that never lead to a peer.

use socket2::{Domain, Socket, Type};
use std::{
    future::{Pending, pending},
    io,
    net::{Ipv4Addr, SocketAddr},
};

/// A port of 127.0.0.1 that refuses connections: a socket holds it, so that nobody else can take it, but does not listen.
#[derive(Debug)]
pub struct ClosedPort {
    addr: SocketAddr,
    _socket: Socket,
}

impl ClosedPort {
    /// Takes a free port.
    pub fn new() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let addr = socket
            .local_addr()?
            .as_socket()
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            addr,
            _socket: socket,
        })
    }

    /// The address that refuses.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// A port of 127.0.0.1 that drops SYNs, as a firewall does: a connect hangs until its own time-out.
///
/// The socket listens with the shortest accept queue, accepts nothing, and one connection fills the queue. This is how Linux
/// behaves.
#[derive(Debug)]
pub struct SynDrop {
    addr: SocketAddr,
    _listener: Socket,
    _queued: Socket,
}

impl SynDrop {
    /// Takes a free port and fills its queue.
    pub fn new() -> io::Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        listener.listen(0)?;
        let addr = listener.local_addr()?;
        let queued = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Done when the connection is in the queue: the other side need not accept it.
        queued.connect(&addr)?;
        Ok(Self {
            addr: addr.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?,
            _listener: listener,
            _queued: queued,
        })
    }

    /// The address that drops SYNs.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` and the address.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// A connector whose connect never ends: give it to `tower::service_fn`, with the stream type that the client wants.
pub fn never<T>(_: http::Uri) -> Pending<io::Result<T>> {
    pending()
}
