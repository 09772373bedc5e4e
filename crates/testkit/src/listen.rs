//! Listening sockets that can be bound again at once after a restart.

use socket2::{Domain, Socket, Type};
use std::{io, net::SocketAddr};
use tokio::net::TcpListener;

/// Connections that may wait for their accept: more than any test opens at once.
const BACKLOG: i32 = 4096;

pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // The old port's connections may still be in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
