//! The proxy between a real client and the peer: every fault, and what it counts.

mod common;

use common::*;
use std::{net::SocketAddr, time::Duration};
use steadfast_testkit::{
    peer::{Peer, Script},
    proxy::{AcceptMode, FaultProxy, Which},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn pair() -> (Peer, FaultProxy) {
    let peer = Peer::start(Script::good()).unwrap();
    let proxy = FaultProxy::start(peer.addr()).unwrap();
    (peer, proxy)
}

/// A server that sends back what it reads.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    addr
}

#[tokio::test]
async fn calls_pass_and_are_counted() {
    let (peer, proxy) = pair().await;
    let client = client(proxy.addr());
    for _ in 0..5 {
        unary(&client).await.unwrap();
    }
    let connections = proxy.connections();
    assert_eq!(
        (
            connections.len(),
            connections[0].headers,
            connections[0].open
        ),
        (1, 5, true)
    );
    assert!(connections[0].to_server > 100 && connections[0].to_client > 100);
    assert!(proxy.uri().ends_with(&proxy.addr().port().to_string()));
    drop(client);
    proxy
        .wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn bytes_and_half_closes_pass_unchanged() {
    let proxy = FaultProxy::start(echo().await).unwrap();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let (mut read, mut write) = socket.split();
    let mut back = Vec::new();
    let (written, read) = soon(async {
        tokio::join!(
            async {
                write.write_all(&sent).await?;
                write.shutdown().await
            },
            read.read_to_end(&mut back)
        )
    })
    .await;
    written.unwrap();
    assert_eq!(read.unwrap(), sent.len());
    assert!(back == sent);
    proxy
        .wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    assert_eq!(
        (
            proxy.connections()[0].to_server,
            proxy.connections()[0].to_client
        ),
        (3_000_000, 3_000_000)
    );
}

#[tokio::test]
async fn a_frozen_connection_stays_open_and_thaws_without_loss() {
    let (peer, proxy) = pair().await;
    let client_ = client(proxy.addr());
    unary(&client_).await.unwrap();
    proxy.freeze(Which::One(0));
    let before = proxy.connections()[0];
    let call = tokio::spawn({
        let client = client_.clone();
        async move { unary(&client).await }
    });
    pending(peer.wait_until(HANG, |state| state.requests.len() > 1)).await;
    assert_eq!(
        (
            proxy.connections()[0].to_server,
            proxy.connections()[0].open
        ),
        (before.to_server, true)
    );
    unary(&client(proxy.addr()))
        .await
        .expect("another connection is not frozen");
    proxy.thaw(Which::One(0));
    soon(call).await.unwrap().unwrap();
    assert_eq!(proxy.connections().len(), 2);
}

#[tokio::test]
async fn freezing_all_holds_for_later_connections() {
    let (peer, proxy) = pair().await;
    proxy.freeze(Which::All);
    let client = client(proxy.addr());
    let call = tokio::spawn(async move { unary(&client).await });
    proxy
        .wait_until(HANG, |state| state.connections.len() == 1)
        .await
        .unwrap();
    pending(peer.wait_until(HANG, |state| !state.requests.is_empty())).await;
    proxy.thaw(Which::All);
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_delay_holds_for_its_direction() {
    let (_peer, proxy) = pair().await;
    let client = client(proxy.addr());
    unary(&client).await.unwrap();
    for (to_server, to_client) in [(60, 0), (0, 60), (30, 30)] {
        proxy.delay(
            Which::All,
            Duration::from_millis(to_server),
            Duration::from_millis(to_client),
        );
        let start = now();
        unary(&client).await.unwrap();
        assert!(now() - start >= Duration::from_millis(60));
    }
    proxy.delay(Which::All, Duration::ZERO, Duration::ZERO);
    unary(&client).await.unwrap();
}

#[tokio::test]
async fn cut_and_reset_show_at_both_ends() {
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(upstream.local_addr().unwrap()).unwrap();
    for reset in [false, true] {
        let mut near = TcpStream::connect(proxy.addr()).await.unwrap();
        let (mut far, _) = soon(upstream.accept()).await.unwrap();
        near.write_all(b"x").await.unwrap();
        soon(far.read_u8()).await.unwrap();
        if reset {
            proxy.reset(Which::All)
        } else {
            proxy.cut(Which::All)
        }
        for socket in [&mut near, &mut far] {
            match soon(socket.read(&mut [0])).await {
                Ok(0) => assert!(!reset),
                Err(error) => assert!(
                    reset && error.kind() == std::io::ErrorKind::ConnectionReset,
                    "{error}"
                ),
                Ok(_) => panic!("nothing was sent"),
            }
        }
        proxy
            .wait_until(HANG, |state| state.open_connections() == 0)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_client_survives_a_cut_on_a_new_connection() {
    let (peer, proxy) = pair().await;
    let client = client(proxy.addr());
    unary(&client).await.unwrap();
    proxy.cut(Which::One(0));
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    // The client may not have noticed yet, so the first call after it may still fail.
    if unary(&client).await.is_err() {
        unary(&client).await.unwrap();
    }
    assert_eq!(proxy.connections().len(), 2);
}

#[tokio::test]
async fn new_connections_are_treated_as_told() {
    let (_peer, proxy) = pair().await;
    proxy.accept_next(1, AcceptMode::Reset);
    proxy.accept_next(1, AcceptMode::Cut);
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let error = soon(socket.read(&mut [0])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    assert_eq!(soon(socket.read(&mut [0])).await.unwrap(), 0);
    let client_ = client(proxy.addr());
    unary(&client_).await.unwrap();

    proxy.set_accept_mode(AcceptMode::Ignore);
    unary(&client_).await.expect("open connections go on");
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    pending(socket.read(&mut [0])).await;
    proxy.reset(Which::One(3));
    soon(socket.read(&mut [0])).await.unwrap_err();
}

#[tokio::test]
async fn the_upstream_can_change_and_can_be_down() {
    let (first, proxy) = pair().await;
    unary(&client(proxy.addr())).await.unwrap();
    let second = Peer::start(Script::good()).unwrap();
    proxy.set_upstream(second.addr());
    unary(&client(proxy.addr())).await.unwrap();
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
    soon(second.stop()).await;
    unary(&client(proxy.addr())).await.unwrap_err();
}

#[tokio::test]
async fn a_stopped_proxy_refuses() {
    let (_peer, proxy) = pair().await;
    let addr = proxy.addr();
    let client_ = client(addr);
    unary(&client_).await.unwrap();
    soon(proxy.stop()).await;
    let error = chain(&soon(raw(&channel(addr))).await.unwrap_err());
    assert!(error.contains("io(ConnectionRefused)"), "{error}");
}

/// A client that PINGs all the time.
fn pinging(proxy: &FaultProxy) -> tonic::transport::Channel {
    let every = Duration::from_millis(50);
    tonic::transport::Endpoint::from_shared(proxy.uri())
        .unwrap()
        .http2_keep_alive_interval(every)
        .keep_alive_timeout(HANG)
        .keep_alive_while_idle(true)
        .connect_lazy()
}

#[tokio::test]
async fn a_muted_connection_lives_and_passes_nothing() {
    let (peer, proxy) = pair().await;
    let client = steadfast_proto::echo_client::EchoClient::new(pinging(&proxy));
    unary(&client).await.unwrap();
    proxy.mute(Which::One(0));
    assert!(proxy.connections()[0].faults.muted);
    let call = tokio::spawn({
        let client = client.clone();
        async move { unary(&client).await }
    });
    let before = peer.pings();
    proxy
        .wait_until(HANG, |state| state.connections[0].pings >= 5)
        .await
        .unwrap();
    assert_eq!(peer.pings(), before, "the proxy answers PINGs itself");
    assert_eq!(peer.requests().len(), 1);
    assert!(!call.is_finished());
    proxy.unmute(Which::One(0));
    soon(call).await.unwrap().expect("nothing is lost");
    assert_eq!((peer.connections(), peer.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_mute_in_the_middle_of_a_large_answer_loses_nothing() {
    let peer = Peer::start(Script::big(3 << 20)).unwrap();
    let proxy = FaultProxy::start(peer.addr()).unwrap();
    let client = steadfast_proto::echo_client::EchoClient::new(pinging(&proxy));
    let call = tokio::spawn({
        let client = client.clone();
        async move { unary(&client).await }
    });
    proxy
        .wait_until(HANG, |state| {
            let sent = |connection: &steadfast_testkit::proxy::ProxiedConnection| {
                connection.to_client > 100_000
            };
            state.connections.first().is_some_and(sent)
        })
        .await
        .unwrap();
    proxy.mute(Which::All);
    let pings = proxy.connections()[0].pings;
    proxy
        .wait_until(HANG, |state| state.connections[0].pings >= pings + 3)
        .await
        .unwrap();
    proxy.unmute(Which::All);
    let reply = soon(call).await.unwrap().unwrap();
    assert_eq!(reply.payload.len(), 3 << 20);
}

#[tokio::test]
async fn a_connection_can_be_made_through_a_muted_proxy() {
    let (peer, proxy) = pair().await;
    proxy.mute(Which::All);
    let client = steadfast_proto::echo_client::EchoClient::new(pinging(&proxy));
    let call = tokio::spawn(async move { unary(&client).await });
    proxy
        .wait_until(HANG, |state| {
            state.connections.first().is_some_and(|c| c.pings >= 2)
        })
        .await
        .unwrap();
    assert!(peer.inspect(|state| state.connections[0].settings_acknowledged));
    assert!(peer.requests().is_empty());
    proxy.unmute(Which::All);
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_throttle_holds_its_rate_and_can_be_lifted() {
    let proxy = FaultProxy::start(echo().await).unwrap();
    proxy.throttle(Which::All, 40_000);
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    let start = now();
    let sent = vec![7; 10_000];
    socket.write_all(&sent).await.unwrap();
    let mut back = vec![0; 10_000];
    soon(socket.read_exact(&mut back)).await.unwrap();
    // 10,000 bytes at 40,000 a second, but the last part of them, which nobody waits for.
    assert!(now() - start >= Duration::from_millis(190));
    assert_eq!(back, sent);
    proxy.throttle(Which::One(0), 0);
    socket.write_all(&sent).await.unwrap();
    pending(socket.read_exact(&mut back[..1])).await;
    proxy.unthrottle(Which::All);
    soon(socket.read_exact(&mut back)).await.unwrap();
    assert_eq!(proxy.connections()[0].faults.bytes_per_second, None);
}
