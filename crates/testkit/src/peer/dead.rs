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

/// A connector whose connect never ends: give it to `tower::service_fn`, with the stream type that the client wants.
pub fn never<T>(_: http::Uri) -> Pending<io::Result<T>> {
    pending()
}
