//! One side of a connection.

use super::link::{End, Link};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// One side of a connection of a [`Network`](super::Network): an `AsyncRead` and `AsyncWrite`, and with the feature `tonic` one
/// that tonic's server takes.
#[derive(Debug)]
pub struct MemoryStream {
    pipe: DuplexStream,
    link: Arc<Link>,
    side: Side,
}

impl MemoryStream {
    pub(super) fn new(pipe: DuplexStream, link: Arc<Link>, side: Side) -> Self {
        Self { pipe, link, side }
    }

    /// Ends the connection with "connection reset", both ways.
    pub(crate) fn reset(&self) {
        self.link.end(End::Reset);
    }

    fn reader(&self) -> usize {
        self.side as usize
    }

    fn writer(&self) -> usize {
        2 + self.side as usize
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.link.closed();
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Pending: the link holds the waker.
        match ready!(self.link.poll_read(self.reader(), context)) {
            // Pending: the pipe holds the waker, and the link too.
            Ok(()) => Pin::new(&mut self.pipe).poll_read(context, buffer),
            // The end of the stream.
            Err(End::Cut) => Poll::Ready(Ok(())),
            Err(end) => Poll::Ready(Err(end.into())),
        }
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.link.poll_write(self.writer(), context)?;
        // Pending: the pipe holds the waker, and the link too.
        let written = ready!(Pin::new(&mut self.pipe).poll_write(context, bytes))?;
        let side = self.side;
        self.link.note(|connection| match side {
            Side::Client => connection.to_server += written as u64,
            Side::Server => connection.to_client += written as u64,
        });
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

#[cfg(feature = "tonic")]
impl tonic::transport::server::Connected for MemoryStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
