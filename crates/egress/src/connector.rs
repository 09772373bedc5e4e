//! The connector of one channel: it dials once.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    vec,
};

use http::{Uri, uri::Scheme};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
    },
    rt::TokioIo,
};
use steadfast_classify::ChannelClosed;
use steadfast_core::BoxError;
use tokio::{net::TcpStream, sync::watch};
use tonic::transport::Endpoint;
use tower_service::Service;

use crate::{
    error::DialStage,
    io::{First, Watched},
    link::Link,
};

type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Dials the first time it is called; after that the channel is closed, and each call says so.
pub(crate) struct Once {
    /// The socket's knobs, and who waits for the first answer. None when it was used.
    unused: Option<(HttpConnector<Resolver>, watch::Sender<First>)>,
    link: Arc<Link>,
}

impl Once {
    pub(crate) fn new(endpoint: &Endpoint, link: Arc<Link>, first: watch::Sender<First>) -> Self {
        let resolver = Resolver {
            system: GaiResolver::new(),
            link: Arc::clone(&link),
        };
        let mut http = HttpConnector::new_with_resolver(resolver);
        // tonic puts TLS on top of what this connector gives it.
        http.enforce_http(false);
        http.set_nodelay(endpoint.get_tcp_nodelay());
        http.set_keepalive(endpoint.get_tcp_keepalive());
        http.set_keepalive_interval(endpoint.get_tcp_keepalive_interval());
        http.set_keepalive_retries(endpoint.get_tcp_keepalive_retries());
        Self {
            unused: Some((http, first)),
            link,
        }
    }
}

impl Service<Uri> for Once {
    type Response = TokioIo<Watched<TcpStream>>;
    type Error = BoxError;
    type Future = Boxed<Self::Response, BoxError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // An error here would end tonic's worker; one of the call is given to the request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let link = Arc::clone(&self.link);
        let Some((mut http, first)) = self.unused.take() else {
            return Box::pin(async move { Err(ChannelClosed::new(&*link.wants_redial()).into()) });
        };
        Box::pin(async move {
            let https = uri.scheme() == Some(&Scheme::HTTPS);
            poll_fn(|cx| http.poll_ready(cx)).await?;
            let socket = http.call(uri).await?.into_inner();
            let peer = socket.peer_addr().ok().map(|peer| vec![peer]);
            let socket = if https {
                link.reached(DialStage::Tls, peer);
                Watched::tls(socket, link)
            } else {
                link.reached(DialStage::Settings, peer);
                Watched::plain(socket, link, first)
            };
            Ok(TokioIo::new(socket))
        })
    }
}

/// The system's resolver, which tells how far the dial is.
#[derive(Clone)]
struct Resolver {
    system: GaiResolver,
    link: Arc<Link>,
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Boxed<Self::Response, io::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Pending: the system's resolver holds the waker; it is always ready.
        ready!(self.system.poll_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let link = Arc::clone(&self.link);
        link.reached(DialStage::Resolve, None);
        let lookup = self.system.call(name);
        Box::pin(async move {
            let addresses: Vec<_> = lookup.await?.collect();
            link.reached(DialStage::Connect, Some(addresses.clone()));
            Ok(addresses.into_iter())
        })
    }
}
