//! The socket of a connection, watched.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::{
    frames::{Frames, Seen},
    link::Link,
};

/// What the peer's first bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// Less than the head of a frame until now: these.
    Waiting(Vec<u8>),
    /// HTTP/2's SETTINGS.
    Settings,
    /// Something else that begins with these.
    Other(Vec<u8>),
}

/// A socket that reports its end to its [`Link`], and with `frames` what the peer says on it.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    inner: S,
    link: Arc<Link>,
    /// None under TLS.
    frames: Option<Frames>,
    /// Until the first answer came. Dropped without one: there will be none.
    first: Option<watch::Sender<First>>,
}

impl<S> Watched<S> {
    /// A socket without TLS above it, with who waits for the peer's first answer.
    pub(crate) fn plain(inner: S, link: Arc<Link>, first: watch::Sender<First>) -> Self {
        Self {
            inner,
            link,
            frames: Some(Frames::default()),
            first: Some(first),
        }
    }

    /// A socket with TLS above it: only its end is seen.
    pub(crate) fn tls(inner: S, link: Arc<Link>) -> Self {
        Self {
            inner,
            link,
            frames: None,
            first: None,
        }
    }

    fn came(&mut self, bytes: &[u8]) {
        let Some(frames) = &mut self.frames else {
            return;
        };
        let (link, first) = (&self.link, &mut self.first);
        frames.feed(bytes, |seen| match seen {
            Seen::Streams(limit) => link.allows(limit),
            Seen::Settings => tell(first, First::Settings),
            Seen::NoSettings(bytes) => tell(first, First::Other(bytes)),
            Seen::GoAway { code, debug } => link.told_to_go(code, &debug),
        });
        if let Some(first) = first {
            first.send_replace(First::Waiting(frames.first_bytes().to_vec()));
        }
    }

    fn wrote<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.link.failed(error))
    }
}

fn tell(waiting: &mut Option<watch::Sender<First>>, first: First) {
    if let Some(waiting) = waiting.take() {
        waiting.send_replace(first);
    }
}

// Pending, in all of these: the inner socket holds the waker.
impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining() > 0);
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        match (&result, &buf.filled()[before..]) {
            (Err(error), _) => self.link.failed(error),
            (Ok(()), []) if room => self.link.closed_by_peer(),
            (Ok(()), bytes) => self.came(bytes),
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        Poll::Ready(self.wrote(result))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        Poll::Ready(self.wrote(result))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        Poll::Ready(self.wrote(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.shut();
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.link.gone();
        // `first` goes after this, so who waits for the first answer finds the end already known.
    }
}
