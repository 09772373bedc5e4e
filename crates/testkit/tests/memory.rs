//! The network in memory, under a paused clock: a live tonic client, tonic's server or the peer, and no socket.

mod common;

use common::{chain, now as wall};
use std::{io::ErrorKind, time::Duration};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::{
    memory::{DialMode, Network, network},
    peer::{Answer, Peer, Script, Step},
    proxy::Which,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tonic::transport::{Channel, Endpoint};

/// On the paused clock: longer than anything but a hang.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn channel(network: &Network) -> Channel {
    Endpoint::from_static("http://memory").connect_with_connector_lazy(network.clone())
}

fn client(network: &Network) -> EchoClient<Channel> {
    EchoClient::new(channel(network))
}

async fn unary(client: &mut EchoClient<Channel>) -> Result<(), tonic::Status> {
    let call = client.unary(EchoRequest::default());
    timeout(DAY, call).await.expect("hung").map(drop)
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_both_ways_and_ends_are_seen() {
    let (network, mut incoming) = network();
    let mut near = network.connect().await.unwrap();
    let mut far = incoming.accept().await.unwrap();
    let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut came = vec![0; sent.len()];
    let (written, read) = tokio::join!(near.write_all(&sent), far.read_exact(&mut came));
    written.unwrap();
    read.unwrap();
    assert!(came == sent);
    far.write_all(b"abc").await.unwrap();
    drop(far);
    let mut rest = Vec::new();
    near.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"abc");
    let state = network.state();
    let connection = state.connections[0];
    assert_eq!((connection.to_server, connection.to_client), (300_000, 3));
    assert_eq!((state.open_connections(), state.dials), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn frozen_bytes_wait_and_thaw() {
    let (network, mut incoming) = network();
    let mut near = network.connect().await.unwrap();
    let mut far = incoming.accept().await.unwrap();
    network.freeze(Which::One(0));
    near.write_all(b"x").await.unwrap();
    timeout(DAY, far.read_u8()).await.unwrap_err();
    let read = tokio::spawn(async move { far.read_u8().await });
    timeout(DAY, near.write_all(&[0; 100_000]))
        .await
        .expect_err("the pipe is full");
    network.thaw(Which::One(0));
    assert_eq!(read.await.unwrap().unwrap(), b'x');
    network.freeze(Which::All);
    let mut near = network.connect().await.unwrap();
    let mut far = incoming.accept().await.unwrap();
    near.write_all(b"y").await.unwrap();
    timeout(DAY, far.read_u8())
        .await
        .expect_err("later ones are frozen too");
    network.thaw(Which::All);
    assert_eq!(far.read_u8().await.unwrap(), b'y');
}

#[tokio::test(start_paused = true)]
async fn cut_and_reset_wake_who_waits() {
    let (network, mut incoming) = network();
    for (number, kind) in [
        (0, ErrorKind::UnexpectedEof),
        (1, ErrorKind::ConnectionReset),
    ] {
        let mut near = network.connect().await.unwrap();
        let mut far = incoming.accept().await.unwrap();
        let reads = [
            tokio::spawn(async move { (near.read_u8().await, near.write_all(b"x").await) }),
            tokio::spawn(async move { (far.read_u8().await, far.write_all(b"x").await) }),
        ];
        tokio::time::sleep(DAY).await;
        assert!(reads.iter().all(|read| !read.is_finished()));
        match number {
            0 => network.cut(Which::One(number)),
            _ => network.reset(Which::One(number)),
        }
        for read in reads {
            let (read, written) = read.await.unwrap();
            assert_eq!(read.unwrap_err().kind(), kind);
            written.unwrap_err();
        }
    }
    network
        .wait_until(DAY, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn dials_are_refused_hang_and_go_on() {
    let (network, incoming) = network();
    network.set_dial_mode(DialMode::Refuse);
    let error = network.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    network.set_dial_mode(DialMode::Hang);
    let dial = tokio::spawn({
        let network = network.clone();
        async move { network.connect().await }
    });
    tokio::time::sleep(DAY).await;
    assert!(!dial.is_finished());
    network.set_dial_mode(DialMode::Connect);
    dial.await.unwrap().unwrap();
    drop(incoming);
    network.connect().await.unwrap_err();
    assert_eq!(network.state().dials, 3);
}

/// The peer over memory: a silence of an hour passes at once, and a reset looks like one.
#[tokio::test(start_paused = true)]
async fn the_peer_serves_in_memory() {
    let begun = wall();
    let (network, incoming) = network();
    let hour = Duration::from_secs(3600);
    let peer = Peer::serve(incoming, move |connection| {
        if connection == 0 {
            Script::gap(hour, 1)
        } else {
            Script::always(Answer::steps([Step::TcpReset]))
        }
    });
    unary(&mut client(&network)).await.unwrap();
    assert!(wall() - begun < Duration::from_secs(5));
    assert_eq!(peer.requests().len(), 1);
    let request = http::Request::post("/steadfast.test.Echo/Unary")
        .body(tonic::body::Body::empty())
        .unwrap();
    let call = tower::ServiceExt::oneshot(channel(&network), request);
    let error = chain(&call.await.unwrap_err());
    assert!(error.contains("io(ConnectionReset)"), "{error}");
    peer.stop().await;
    network
        .connect()
        .await
        .expect_err("a stopped peer accepts nothing");
}

#[cfg(feature = "tonic")]
mod tonics_server {
    use super::*;
    use steadfast_proto::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    };
    use tonic::{Request, Response, Status, transport::Server};

    struct Hourly;

    #[tonic::async_trait]
    impl Greeter for Hourly {
        async fn say_hello(
            &self,
            request: Request<HelloRequest>,
        ) -> Result<Response<HelloReply>, Status> {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let message = request.into_inner().name;
            Ok(Response::new(HelloReply { message }))
        }
    }

    /// A live client and server, keepalive and all: an hour and more of the paused clock in a moment.
    #[tokio::test(start_paused = true)]
    async fn an_hour_passes_in_a_moment() {
        let begun = wall();
        let (network, incoming) = network();
        let server = Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(20)))
            .add_service(GreeterServer::new(Hourly));
        tokio::spawn(server.serve_with_incoming(incoming));
        let channel = Endpoint::from_static("http://memory")
            .http2_keep_alive_interval(Duration::from_secs(20))
            .connect_with_connector_lazy(network.clone());
        let start = tokio_now();
        for n in 0..61 {
            let mut client = GreeterClient::new(channel.clone());
            let name = n.to_string();
            let call = client.say_hello(HelloRequest { name: name.clone() });
            assert_eq!(call.await.unwrap().into_inner().message, name);
        }
        assert!(tokio_now() - start >= Duration::from_secs(3600));
        assert!(wall() - begun < Duration::from_secs(5));
        assert_eq!(network.state().dials, 1);
        network.freeze(Which::All);
        let mut client = GreeterClient::new(channel);
        let error = client.say_hello(HelloRequest::default()).await.unwrap_err();
        assert!(
            chain(&error).contains("keep-alive timed out"),
            "{}",
            chain(&error)
        );
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tokio's clock is the one that is paused"
    )]
    fn tokio_now() -> tokio::time::Instant {
        tokio::time::Instant::now()
    }
}
