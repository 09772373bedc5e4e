//! The rows of TLS, with and without tonic's `server` feature.

#[path = "../../crates/classify/tests/surface/mod.rs"]
#[expect(dead_code, reason = "the rows without TLS are in another test")]
mod surface;

use std::sync::Arc;

use steadfast_core::Outcome::{ConnectionLost, DialFailed, Timeout};
use steadfast_testkit::peer::{Accept, At, Peer, PeerState, Script};
use surface::{
    HANG, docs,
    open::{LIMIT, endpoint, https, open, opened},
    row::{Open, Row},
    run::check,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

const SERVER: bool = cfg!(feature = "server");

// For tests alone, valid until 2126.
const AUTHORITY: &str = include_str!("../../crates/egress/tests/tls/ca.pem");
const CERTIFICATE: &str = include_str!("../../crates/egress/tests/tls/server.pem");
const KEY: &str = include_str!("../../crates/egress/tests/tls/server.key");

fn acceptor(alpn: &[&str]) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(CERTIFICATE.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// What the server in front of the peer does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Front {
    Passes,
    /// Closes without close_notify when a request is open.
    Cuts,
}

/// A TLS server in front of a peer; returns its port.
async fn front(front: Front, alpn: &'static [&'static str], peer: Arc<Peer>) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let acceptor = acceptor(alpn);
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, peer) = (acceptor.clone(), Arc::clone(&peer));
            connections.spawn(async move {
                // A client that refuses the certificate is what some rows are about.
                let Ok(mut client) = acceptor.accept(socket).await else {
                    return;
                };
                let mut server = TcpStream::connect(peer.addr()).await.unwrap();
                let requested =
                    |state: &PeerState| front == Front::Cuts && !state.requests.is_empty();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    _ = peer.wait_until(HANG, requested) => {}
                }
            });
        }
    });
    (port, tasks)
}

type Tune = fn(Endpoint, ClientTlsConfig) -> Endpoint;

/// The plain way to set TLS up.
fn plain(endpoint: Endpoint, tls: ClientTlsConfig) -> Endpoint {
    endpoint.tls_config(tls).unwrap()
}

fn trusting() -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(AUTHORITY))
}

/// A TLS client of a peer without TLS.
fn bare(script: Script, tune: Tune) -> Open {
    open(move || {
        let peer = Peer::start(script.clone()).unwrap();
        let uri = format!("https://localhost:{}", peer.addr().port());
        let channel = tune(endpoint(uri), trusting()).connect_lazy();
        async { opened(channel, peer) }
    })
}

/// A TLS client of a peer that answers nothing, behind TLS.
fn behind(how: Front, alpn: &'static [&'static str], tune: Tune) -> Open {
    open(move || async move {
        let peer = Arc::new(Peer::start(Script::ping_only()).unwrap());
        let (port, tasks) = front(how, alpn, Arc::clone(&peer)).await;
        let endpoint = endpoint(format!("https://localhost:{port}"));
        opened(tune(endpoint, trusting()).connect_lazy(), (peer, tasks))
    })
}

const H2: &[&str] = &["h2"];

fn rows() -> Vec<Row> {
    const INVALID: &str = "tE > ConnectError > io(InvalidData)";
    let row = Row::new;
    let mute = || Script::good().accept(Accept::Mute);
    vec![
        row("T1", bare(Script::good(), plain))
            .seen(DialFailed, INVALID, "received corrupt message of type InvalidContentType")
            .shown("Unavailable received corrupt message of type InvalidContentType"),
        row("T2", bare(Script::fin(At::Accept), plain))
            .seen(DialFailed, "tE > ConnectError > io(*)", "tls handshake eof|*onnection reset*")
            .shown("Unavailable tls handshake eof")
            .shown("Unavailable *onnection reset*"),
        row("T2b", bare(Script::tcp_reset(At::Accept), plain))
            .seen(DialFailed, "tE > ConnectError > *io(*)", "tls handshake eof|*onnection reset*|Broken pipe*")
            .shown("Unavailable *"),
        row("T3", bare(mute(), |endpoint, tls| plain(endpoint, tls).timeout(LIMIT))).pending(),
        row("T3b", bare(mute(), |endpoint, tls| plain(endpoint, tls).connect_timeout(LIMIT))).pending(),
        row("T4", behind(Front::Passes, H2, |endpoint, _| plain(endpoint, ClientTlsConfig::new())))
            .seen(DialFailed, INVALID, "invalid peer certificate: UnknownIssuer")
            .shown("Unavailable invalid peer certificate: UnknownIssuer"),
        row("T5", behind(Front::Passes, H2, |endpoint, tls| plain(endpoint, tls.domain_name("other.test"))))
            .seen(DialFailed, INVALID, "invalid peer certificate: certificate not valid for name *")
            .shown("Unavailable invalid peer certificate: certificate not valid for name *"),
        row("T6", behind(Front::Passes, H2, |endpoint, tls| plain(endpoint, tls).timeout(LIMIT * 20)))
            .seen(Timeout, "tE > TimeoutExpired", "Timeout expired")
            .shown("Cancelled Timeout expired"),
        row("T7", behind(Front::Passes, &[], plain))
            .seen(DialFailed, "tE > ConnectError > HTTP/2 was not negotiated.", "HTTP/2 was not negotiated.")
            .shown("Unavailable HTTP/2 was not negotiated."),
        row("T8", behind(Front::Cuts, H2, plain))
            .seen(ConnectionLost, "tE > hyper(Io) > io(*)", "peer closed connection without sending TLS close_notify*|*onnection reset*|*roken pipe*")
            .shown("Unknown transport error"),
        row("T9", https(Script::good()))
            .seen(DialFailed, "tE > ConnectError > Connecting to HTTPS without TLS enabled", "Connecting to HTTPS without TLS enabled")
            .shown("Unavailable Connecting to HTTPS without TLS enabled"),
    ]
}

#[tokio::test]
async fn tls() {
    check(rows(), SERVER).await;
}

#[test]
fn the_docs_have_the_same_rows() {
    docs::compare(&rows(), |id| id.starts_with('T'));
}

#[test]
fn no_row_is_missing() {
    docs::compare_ids(&rows(), |id| id.starts_with('T'));
}
