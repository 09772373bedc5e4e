//! A transport whose reads fail.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper_util::rt::TokioIo;
use steadfast_testkit::peer::{Peer, PeerState, Script};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{endpoint, open, opened};
use crate::surface::{HANG, call::Boxed, row::Open};

/// Where in an exchange a transport fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fails {
    BeforeHead,
    InBody,
}

/// A transport whose reads fail with an error of this kind.
pub(crate) fn failing_reads(kind: io::ErrorKind, at: Fails) -> Open {
    open(move || {
        let peer =
            Arc::new(Peer::start(Script::head_stop(usize::from(at == Fails::InBody))).unwrap());
        if at == Fails::BeforeHead {
            peer.set_script(Script::ping_only());
        }
        let watched = Arc::clone(&peer);
        let connector = tower::service_fn(move |_: http::Uri| {
            let peer = Arc::clone(&watched);
            async move {
                let inner = TcpStream::connect(peer.addr()).await?;
                let trigger: Boxed<()> = Box::pin(async move {
                    let requested = |state: &PeerState| !state.requests.is_empty();
                    peer.wait_until(HANG, requested).await.unwrap();
                });
                let failing = Failing {
                    inner,
                    kind,
                    trigger: (at == Fails::BeforeHead).then_some(trigger),
                    failing: false,
                };
                Ok::<_, io::Error>(TokioIo::new(failing))
            }
        });
        let channel = endpoint("http://unused.test").connect_with_connector_lazy(connector);
        async { opened(channel, peer) }
    })
}

struct Failing {
    inner: TcpStream,
    kind: io::ErrorKind,
    /// Reads fail from its end on; without one, when the good message has passed.
    trigger: Option<Boxed<()>>,
    failing: bool,
}

impl AsyncRead for Failing {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.failing {
            return Poll::Ready(Err(self.kind.into()));
        }
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(read) => {
                let passed = buf.filled().windows(3).any(|bytes| bytes == b"abc");
                self.failing |= passed && self.trigger.is_none();
                Poll::Ready(read)
            }
            // Pending: the socket holds the waker, and the trigger, if there is one.
            Poll::Pending => match &mut self.trigger {
                Some(trigger) => {
                    ready!(trigger.as_mut().poll(cx));
                    self.failing = true;
                    Poll::Ready(Err(self.kind.into()))
                }
                None => Poll::Pending,
            },
        }
    }
}

impl AsyncWrite for Failing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
