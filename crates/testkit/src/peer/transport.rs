//! What a peer serves on: sockets, or a network in memory.

use crate::memory::{Incoming, MemoryStream};
use socket2::SockRef;
use std::{future::Future, io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

/// One connection.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Before the first byte.
    fn begin(&self) {}

    /// Makes the close that comes next a reset.
    fn reset(&self);
}

impl Transport for TcpStream {
    fn begin(&self) {
        // Frames must leave one by one, or the faults between them would not be seen; a failure only means a closed socket.
        let _ = self.set_nodelay(true);
    }

    fn reset(&self) {
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl Transport for MemoryStream {
    fn reset(&self) {
        Self::reset(self);
    }
}

/// Where connections come from.
pub(super) trait Listener: Send + 'static {
    type Stream: Transport;

    /// The next one. Never resolves when there will be no more. Cancel safe.
    fn next(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&mut self) -> io::Result<TcpStream> {
        self.accept().await.map(|(socket, _)| socket)
    }
}

impl Listener for Incoming {
    type Stream = MemoryStream;

    async fn next(&mut self) -> io::Result<MemoryStream> {
        match self.accept().await {
            Some(stream) => Ok(stream),
            None => std::future::pending().await,
        }
    }
}
