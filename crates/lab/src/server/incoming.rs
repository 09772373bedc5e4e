//! The embedded server's connections, with every HEADERS frame that clients send on them counted.
//!
//! Counting frames as they are read, not calls as they are dispatched, also counts what a stopped server finds in its socket once it goes on.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tonic::transport::server::Connected;

use crate::clock;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;

/// What a server has seen arriving: the calls since its start, and when the first connection since [`Arrivals::mark`] was accepted.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    calls: AtomicU64,
    /// Nanoseconds of [`clock::uptime`]; 0 while nothing was accepted.
    first: AtomicU64,
    /// Connections accepted so far, and how many there were at the last mark.
    accepted: AtomicU64,
    marked: AtomicU64,
    manner: watch::Sender<Manner>,
    /// Of the frozen connection's tasks.
    wakers: Mutex<Vec<Waker>>,
}

/// How the connection behaves that was the first since the last mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Manner {
    /// Like all others.
    #[default]
    Good,
    /// Its calls are answered later.
    Slow,
    /// Nothing is read from it or written to it.
    Frozen,
    /// It is read and its PINGs are answered, its calls are not.
    Mute,
}

impl Arrivals {
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// When the first connection since the mark was accepted, on the host's uptime clock.
    pub(crate) fn first(&self) -> Option<Duration> {
        Some(self.first.load(Ordering::Relaxed))
            .filter(|first| *first != 0)
            .map(Duration::from_nanos)
    }

    /// Forgets which connection was the first.
    pub(crate) fn mark(&self) {
        self.first.store(0, Ordering::Relaxed);
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.marked.store(accepted, Ordering::Relaxed);
    }

    pub(crate) fn set_manner(&self, manner: Manner) {
        self.manner.send_replace(manner);
        let wakers = std::mem::take(&mut *self.wakers());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wakers(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How this connection behaves now.
    fn manner_of(&self, number: u64) -> Manner {
        if self.marked.load(Ordering::Relaxed) == number {
            *self.manner.borrow()
        } else {
            Manner::Good
        }
    }

    /// Whether this connection is frozen; if so the task is woken when that changes.
    fn is_frozen(&self, number: u64, cx: &Context<'_>) -> bool {
        if self.manner_of(number) != Manner::Frozen {
            return false;
        }
        self.wakers().push(cx.waker().clone());
        // Looked at once more, since it may have thawed before the waker was there.
        self.manner_of(number) == Manner::Frozen
    }

    /// Counts a connection, and says its number.
    fn accepted(&self) -> u64 {
        let now = u64::try_from(clock::uptime().as_nanos()).unwrap_or(u64::MAX);
        // Fails when one was accepted before, and then that one stays the first.
        let _ = self
            .first
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed)
    }
}

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    frames: Frames,
    arrivals: Arc<Arrivals>,
    number: u64,
}

/// What a call's handler knows of its connection.
#[derive(Debug, Clone)]
pub(crate) struct OfConnection {
    arrivals: Arc<Arrivals>,
    number: u64,
}

impl OfConnection {
    /// Whether its calls are to be answered later.
    pub(crate) fn is_slow(&self) -> bool {
        self.arrivals.manner_of(self.number) == Manner::Slow
    }

    /// Resolves when its calls may be answered.
    pub(crate) async fn speaks(self) {
        let mut manner = self.arrivals.manner.subscribe();
        let is_mute = |_: &Manner| self.arrivals.manner_of(self.number) == Manner::Mute;
        // An error means that the server is gone, and the connection with it.
        let _ = manner.wait_for(|now| !is_mute(now)).await;
    }
}

impl Connection {
    pub(crate) fn accept(stream: TcpStream, arrivals: Arc<Arrivals>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let number = arrivals.accepted();
        Ok(Self {
            number,
            stream,
            frames: Frames::default(),
            arrivals,
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = OfConnection;

    fn connect_info(&self) -> OfConnection {
        OfConnection {
            arrivals: Arc::clone(&self.arrivals),
            number: self.number,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.arrivals.is_frozen(self.number, cx) {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        let headers = self.frames.headers_in(&buf.filled()[before..]);
        self.arrivals.calls.fetch_add(headers, Ordering::Relaxed);
        poll
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.arrivals.is_frozen(self.number, cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.arrivals.is_frozen(self.number, cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Finds the HEADERS frames in what a client sends, wherever the reads cut it.
#[derive(Debug)]
struct Frames {
    /// Bytes to pass over before the next frame header begins: the preface or a payload.
    skip: usize,
    header: [u8; FRAME_HEADER],
    have: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            skip: PREFACE,
            header: [0; FRAME_HEADER],
            have: 0,
        }
    }
}

impl Frames {
    fn headers_in(&mut self, mut bytes: &[u8]) -> u64 {
        let mut found = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (FRAME_HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == FRAME_HEADER {
                let [a, b, c, kind, ..] = self.header;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.have = 0;
                found += u64::from(kind == HEADERS);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        // A payload full of the type byte of HEADERS must not be taken for frames.
        frame.extend(std::iter::repeat_n(HEADERS, length.into()));
        frame
    }

    #[test]
    fn headers_are_counted_wherever_the_reads_cut_the_stream() {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, length) in [
            (4, 6),
            (HEADERS, 40),
            (0, 30),
            (8, 4),
            (HEADERS, 0),
            (HEADERS, 7),
        ] {
            sent.extend(frame(kind, length));
        }
        for cut in 1..sent.len() {
            let mut frames = Frames::default();
            let found: u64 = sent.chunks(cut).map(|part| frames.headers_in(part)).sum();
            assert_eq!(found, 3, "in reads of {cut} bytes");
        }
    }
}
