//! Connecting.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use steadfast_testkit::peer::{ClosedPort, never};
use tokio::net::TcpStream;

use super::{Opened, Tune, endpoint, open, opened};
use crate::surface::row::Open;

pub(crate) fn refused(scheme: &'static str) -> Open {
    open(move || {
        let port = ClosedPort::new().unwrap();
        let channel = endpoint(format!("{scheme}://{}", port.addr())).connect_lazy();
        async { opened(channel, port) }
    })
}

/// An eager connect to a closed port.
pub(crate) fn refused_eagerly() -> Open {
    open(|| async {
        let port = ClosedPort::new().unwrap();
        Opened {
            channel: endpoint(port.uri()).connect().await,
            meanwhile: None,
            keep: Box::new(port),
        }
    })
}

/// A name that no resolver has to be asked about: its label is too long.
pub(crate) fn unresolvable() -> Open {
    open(|| async {
        let name = format!("http://{}.test:1", "n".repeat(64));
        opened(endpoint(name).connect_lazy(), ())
    })
}

/// A connector that never ends.
pub(crate) fn never_connects(tune: Tune) -> Open {
    open(move || async move {
        let connector = tower::service_fn(never::<TokioIo<TcpStream>>);
        let endpoint = tune(endpoint("http://unused.test"));
        opened(endpoint.connect_with_connector_lazy(connector), ())
    })
}

/// A connector that fails.
pub(crate) fn fails_to_connect() -> Open {
    open(|| async {
        let connector = tower::service_fn(|_: http::Uri| async {
            Err::<TokioIo<TcpStream>, _>(io::Error::from(io::ErrorKind::ConnectionReset))
        });
        let endpoint = endpoint("http://unused.test");
        opened(endpoint.connect_with_connector_lazy(connector), ())
    })
}

/// A listener whose queue is full: the kernel drops each SYN.
pub(crate) fn syn_dropped(tune: Tune) -> Open {
    open(move || async move {
        let full = tokio::task::spawn_blocking(full_listener).await.unwrap();
        let (listener, fillers) = full.expect("a listener with a full queue");
        let addr = listener.local_addr().unwrap();
        let channel = tune(endpoint(format!("http://{addr}"))).connect_lazy();
        opened(channel, (listener, fillers))
    })
}

fn full_listener() -> io::Result<(StdListener, Vec<Socket>)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(0)?;
    let addr = listener.local_addr()?;
    let mut fillers = Vec::new();
    // The queue holds one or two, by kernel; a connect that doesn't end at once found it full.
    for _ in 0..8 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        match filler.connect_timeout(&addr, Duration::from_millis(100)) {
            Ok(()) => fillers.push(filler),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Ok((listener.into(), fillers));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the queue never filled"))
}
