//! Keys from what tonic's server knows of a connection.

use std::net::SocketAddr;

use tonic::transport::server::TcpConnectInfo;
#[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
use tonic::transport::server::TlsConnectInfo;

use crate::{CallHead, FlowId, Key};

impl Key {
    /// By connection: the peer's address and port, over TCP with or without TLS (features `tls-ring` and `tls-aws-lc`).
    ///
    /// Other transports, such as Unix sockets, have nothing that tells connections apart: give theirs a
    /// `ConnectInfo` of your own that does, and find it with [`Key::from_fn`].
    #[must_use]
    pub fn connection() -> Self {
        Self::named("connection", |call| peer(call).map(FlowId::of))
    }

    /// By the peer's IP address: a client with many connections is one flow, and so are all clients behind one
    /// proxy or NAT. An IPv4 address mapped into IPv6 is the IPv4 address.
    #[must_use]
    pub fn peer_address() -> Self {
        Self::named("peer address", |call| {
            peer(call).map(|peer| FlowId::of(peer.ip().to_canonical()))
        })
    }

    /// By the certificate that the client showed: the one of a client, whatever signed it. A client that
    /// gets a new certificate is a new flow. To go by a name in it, use [`Key::from_fn`].
    #[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
    #[must_use]
    pub fn tls_identity() -> Self {
        Self::named("TLS identity", |call| {
            let info = call.extensions().get::<TlsConnectInfo<TcpConnectInfo>>()?;
            let certificates = info.peer_certs()?;
            Some(FlowId::of(certificates.first()?.as_ref()))
        })
    }
}

fn peer(call: CallHead<'_>) -> Option<SocketAddr> {
    let extensions = call.extensions();
    #[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
    if let Some(info) = extensions.get::<TlsConnectInfo<TcpConnectInfo>>() {
        return info.get_ref().remote_addr();
    }
    extensions.get::<TcpConnectInfo>()?.remote_addr()
}
