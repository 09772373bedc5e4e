//! Each named script provokes in a real client what it is named for.

mod common;

use common::*;
use std::time::Duration;
use steadfast_proto::EchoRequest;
use steadfast_testkit::peer::{
    At, ClosedPort, Last, Peer, Ping, Script, Step, SynDrop, Then, Trail, Truncated, never,
};
use tonic::{
    Code,
    codec::CompressionEncoding,
    transport::{Channel, Endpoint},
};

const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The chain of the call's error, which a peer with this script provokes.
async fn call_error(script: Script) -> String {
    let peer = Peer::start(script).unwrap();
    chain(&soon(raw(&channel(peer.addr()))).await.unwrap_err())
}

/// What the body of the answer ends with.
async fn body(script: Script) -> Read {
    let peer = Peer::start(script).unwrap();
    read(soon(raw(&channel(peer.addr()))).await.unwrap().into_body()).await
}

async fn status(script: Script) -> tonic::Status {
    let peer = Peer::start(script).unwrap();
    unary(&client(peer.addr())).await.unwrap_err()
}

fn keepalive(peer: &Peer) -> Channel {
    Endpoint::from_shared(peer.uri())
        .unwrap()
        .http2_keep_alive_interval(Duration::from_millis(100))
        .keep_alive_timeout(Duration::from_millis(150))
        .keep_alive_while_idle(true)
        .connect_lazy()
}

#[tokio::test]
async fn deaf_answers_then_neither_calls_nor_pings() {
    let peer = Peer::start(Script::deaf(1)).unwrap();
    let channel = keepalive(&peer);
    raw(&channel).await.unwrap();
    let error = chain(&soon(raw(&channel)).await.unwrap_err());
    assert!(error.contains("keep-alive timed out"), "{error}");
    assert!(peer.pings() > 0);
    raw(&channel)
        .await
        .expect("the next connection is good for one call again");
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn ping_only_keeps_keepalive_content() {
    let peer = Peer::start(Script::ping_only()).unwrap();
    let call = tokio::spawn({
        let channel = keepalive(&peer);
        async move { raw(&channel).await }
    });
    peer.wait_until(HANG, |state| state.pings() >= 4)
        .await
        .unwrap();
    assert!(!call.is_finished());
    assert_eq!(peer.open_streams_per_connection(), [1]);
    call.abort();
}

#[tokio::test]
async fn ignored_pings_end_the_connection() {
    let peer = Peer::start(Script::ping_only().ping(Ping::Ignore)).unwrap();
    let error = chain(&soon(raw(&keepalive(&peer))).await.unwrap_err());
    assert!(error.contains("keep-alive timed out"), "{error}");
}

#[tokio::test]
async fn head_stop_gives_headers_and_messages_then_nothing() {
    let peer = Peer::start(Script::head_stop(2)).unwrap();
    let mut client = client(peer.addr());
    let mut stream = soon(client.server_stream(EchoRequest::default()))
        .await
        .unwrap()
        .into_inner();
    for _ in 0..2 {
        assert_eq!(
            soon(stream.message()).await.unwrap().unwrap().payload,
            b"abc"
        );
    }
    pending(stream.message()).await;
    drop(stream);
    peer.wait_until(HANG, |state| {
        state.resets.len() == 1 && state.open_streams() == 0
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn fin_and_tcp_reset_break_the_call_before_headers() {
    for at in [At::Accept, At::Request, At::MidHeaders] {
        for script in [Script::fin(at), Script::tcp_reset(at)] {
            let error = call_error(script.clone()).await;
            assert!(
                error.contains("io(") || error.contains("canceled"),
                "{at:?} {script:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn fin_and_tcp_reset_break_the_body_after_headers() {
    for (at, bytes) in [
        (At::Headers, 0),
        (At::Messages(1), 10),
        (At::Messages(3), 30),
    ] {
        for script in [Script::fin(at), Script::tcp_reset(at)] {
            let read = body(script).await;
            assert!(
                read.error
                    .as_ref()
                    .is_some_and(|error| error.contains("h2[io")),
                "{at:?}: {read:?}"
            );
            assert_eq!(read.bytes, bytes, "{at:?}");
        }
    }
}

#[tokio::test]
async fn a_goaway_that_excludes_the_call_fails_it() {
    for then in [Then::KeepOpen, Then::Fin] {
        for (code, name) in [(0, "NO_ERROR"), (INTERNAL_ERROR, "INTERNAL_ERROR")] {
            let error = call_error(Script::goaway(code, Last::Zero, then)).await;
            assert!(
                error.contains(&format!("h2[go_away remote Some({name})]")),
                "{then:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_goaway_that_includes_the_call_lets_it_finish() {
    let peer = Peer::start(Script::goaway(0, Last::This, Then::Finish)).unwrap();
    let client = client(peer.addr());
    unary(&client).await.unwrap();
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    unary(&client).await.unwrap();
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_goaway_with_an_error_that_includes_the_call_says_nothing_until_the_close() {
    let peer = Peer::start(Script::goaway(1, Last::This, Then::KeepOpen)).unwrap();
    pending(raw(&channel(peer.addr()))).await;
    let error = call_error(Script::goaway(0, Last::Max, Then::Fin)).await;
    assert!(error.contains("io("), "{error}");
}

#[tokio::test]
async fn rst_shows_its_reason_before_and_after_headers() {
    for (code, name) in [
        (INTERNAL_ERROR, "INTERNAL_ERROR"),
        (REFUSED_STREAM, "REFUSED_STREAM"),
        (8, "CANCEL"),
    ] {
        let expected = format!("h2[reset remote Some({name})]");
        let error = call_error(Script::rst(code)).await;
        assert!(error.contains(&expected), "{error}");
        let read = body(Script::rst_after_headers(code)).await;
        assert!(
            read.error
                .as_ref()
                .is_some_and(|error| error.contains(&expected)),
            "{read:?}"
        );
        assert_eq!(read.bytes, 10);
    }
}

#[tokio::test]
async fn max_streams_holds_its_streams_until_they_are_released() {
    let peer = Peer::start(Script::max_streams(2)).unwrap();
    let client = client(peer.addr());
    // The first call opens the connection, so that the client knows the limit before the others come.
    let mut calls = tokio::task::JoinSet::new();
    let start = |calls: &mut tokio::task::JoinSet<_>| {
        let client = client.clone();
        calls.spawn(async move { unary(&client).await.map(drop) });
    };
    start(&mut calls);
    peer.wait_until(HANG, |state| {
        state.held == 1 && state.connections[0].settings_acknowledged
    })
    .await
    .unwrap();
    for _ in 0..4 {
        start(&mut calls);
    }
    peer.wait_until(HANG, |state| state.held == 2)
        .await
        .unwrap();
    pending(peer.wait_until(HANG, |state| state.requests.len() > 2)).await;
    peer.release(1);
    soon(calls.join_next()).await.unwrap().unwrap().unwrap();
    peer.wait_until(HANG, |state| state.requests.len() == 3 && state.held == 2)
        .await
        .unwrap();
    peer.release_all();
    while let Some(call) = soon(calls.join_next()).await {
        call.unwrap().unwrap();
    }
    assert_eq!((peer.requests().len(), peer.connections()), (5, 1));
}

#[tokio::test]
async fn flow_stops_at_the_clients_windows() {
    let peer = Peer::start(Script::flow()).unwrap();
    let channel = channel(peer.addr());
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(soon(raw(&channel)).await.unwrap().into_body());
    }
    // tonic's default connection window.
    let window = 5 << 20;
    peer.wait_until(HANG, |state| state.connections[0].data_sent == window)
        .await
        .unwrap();
    let body = soon(raw(&channel)).await.unwrap().into_body();
    pending(read(body)).await;
    assert_eq!(peer.inspect(|state| state.connections[0].data_sent), window);
    let message = (3 << 20) + 5 + 5;
    for body in unread {
        let read = read(body).await;
        assert_eq!((read.bytes, read.status.as_deref()), (message, Some("0")));
    }
}

#[tokio::test]
async fn flow_keeps_to_a_small_stream_window() {
    let peer = Peer::start(Script::flow()).unwrap();
    let channel = Endpoint::from_shared(peer.uri())
        .unwrap()
        .initial_stream_window_size(Some(256 << 10))
        .connect_lazy();
    let unread = soon(raw(&channel)).await.unwrap();
    peer.wait_until(HANG, |state| state.connections[0].data_sent == 256 << 10)
        .await
        .unwrap();
    pending(peer.wait_until(HANG, |state| state.connections[0].data_sent > 256 << 10)).await;
    assert_eq!(read(unread.into_body()).await.status.as_deref(), Some("0"));
}

#[tokio::test]
async fn late_frames_on_many_dropped_streams_make_the_client_give_up() {
    const CALLS: usize = 1_500;
    let peer = Peer::start(Script::late(Duration::ZERO)).unwrap();
    let channel = channel(peer.addr());
    let neighbour = tokio::spawn({
        let channel = channel.clone();
        async move { raw(&channel).await }
    });
    peer.wait_until(HANG, |state| {
        state.requests.len() == 1 && state.connections[0].settings_acknowledged
    })
    .await
    .unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let channel = channel.clone();
        calls.spawn(async move { raw(&channel).await.map(drop) });
    }
    peer.wait_until(HANG, |state| state.requests.len() == CALLS + 1)
        .await
        .unwrap();
    soon(calls.shutdown()).await;
    peer.wait_until(HANG, |state| !state.goaways.is_empty())
        .await
        .unwrap();
    let goaway = &peer.goaways()[0];
    assert_eq!(
        (goaway.code, &goaway.debug[..]),
        (ENHANCE_YOUR_CALM, &b"too_many_internal_resets"[..])
    );
    let error = chain(&soon(neighbour).await.unwrap().unwrap_err());
    assert!(
        error.contains("h2[go_away library Some(ENHANCE_YOUR_CALM)]"),
        "{error}"
    );
}

#[tokio::test]
async fn late_frames_on_a_few_dropped_streams_do_no_harm() {
    let peer = Peer::start(Script::late(Duration::from_millis(20))).unwrap();
    let channel = channel(peer.addr());
    for calls in 1..=20 {
        let call = tokio::spawn({
            let channel = channel.clone();
            async move { raw(&channel).await.map(drop) }
        });
        peer.wait_until(HANG, |state| state.requests.len() == calls)
            .await
            .unwrap();
        call.abort();
    }
    peer.wait_until(HANG, |state| {
        state.resets.len() >= 20 && state.connections[0].data_sent == 200
    })
    .await
    .unwrap();
    assert!(peer.goaways().is_empty());
    assert_eq!(peer.open_connections(), 1);
}

#[tokio::test]
async fn strict_ping_punishes_pings_that_come_too_often() {
    let peer = Peer::start(Script::strict_ping(Duration::from_secs(10), true)).unwrap();
    let channel = keepalive(&peer);
    raw(&channel).await.unwrap();
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    assert_eq!(peer.pings(), 2);

    let script = Script::ping_only().ping(Ping::Strict {
        min_gap: Duration::from_secs(10),
        without_streams: true,
    });
    let peer = Peer::start(script).unwrap();
    let error = chain(&soon(raw(&keepalive(&peer))).await.unwrap_err());
    assert!(
        error.contains("io("),
        "the GOAWAY includes the call, so the close ends it: {error}"
    );
}

#[tokio::test]
async fn strict_ping_punishes_pings_without_a_stream() {
    let peer = Peer::start(Script::strict_ping(Duration::ZERO, false)).unwrap();
    let channel = keepalive(&peer);
    read(raw(&channel).await.unwrap().into_body()).await;
    peer.wait_until(HANG, |state| {
        state.open_connections() == 0 && state.pings() == 1
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn http_answers_are_not_grpc() {
    let error = status(Script::http(503, None)).await;
    assert_eq!(error.code(), Code::Unavailable);
    assert!(
        error.message().contains("mapped from HTTP status code 503"),
        "{error}"
    );
    let error = status(Script::http(503, Some("upstream connect error"))).await;
    assert!(
        error.message().contains("invalid compression flag: 117"),
        "{error}"
    );
}

#[tokio::test]
async fn an_http_1_server_is_not_understood() {
    let error = call_error(Script::http1()).await;
    assert!(
        error.contains("FRAME_SIZE_ERROR") || error.contains("canceled") || error.contains("io("),
        "{error}"
    );
}

#[tokio::test]
async fn trailers_come_in_all_shapes() {
    assert_eq!(
        status(Script::trail(Trail::Only(14))).await.code(),
        Code::Unavailable
    );
    let missing = status(Script::trail(Trail::None)).await;
    assert!(
        missing.message().contains("missing grpc-status trailer"),
        "{missing}"
    );
    let missing = status(Script::trail(Trail::NoStatus)).await;
    assert!(
        missing.message().contains("missing grpc-status trailer"),
        "{missing}"
    );
    assert_eq!(
        status(Script::trail(Trail::Status(99))).await.code(),
        Code::Unknown
    );
    assert_eq!(
        status(Script::trail(Trail::OpenHeaders(14))).await.code(),
        Code::Unavailable
    );
    let peer = Peer::start(Script::trail(Trail::BadDetails)).unwrap();
    let response = soon(raw(&channel(peer.addr()))).await.unwrap();
    assert_eq!(response.headers()["grpc-status-details-bin"], "%%%");
}

#[tokio::test]
async fn half_a_message_ends_as_told() {
    let read = body(Script::truncated(Truncated::EndStream)).await;
    assert_eq!((read.bytes, read.status, read.error), (6, None, None));
    let read = body(Script::truncated(Truncated::StatusZero)).await;
    assert_eq!(
        (read.bytes, read.status.as_deref(), read.error),
        (6, Some("0"), None)
    );
    assert_eq!(
        status(Script::truncated(Truncated::EndStream))
            .await
            .message(),
        "Unexpected EOF decoding stream."
    );
}

#[tokio::test]
async fn gaps_are_kept_between_messages() {
    let gap = Duration::from_millis(30);
    let peer = Peer::start(Script::gap(gap, 3)).unwrap();
    let start = now();
    let mut client = client(peer.addr());
    let mut stream = soon(client.server_stream(EchoRequest::default()))
        .await
        .unwrap()
        .into_inner();
    let mut messages = 0;
    while soon(stream.message()).await.unwrap().is_some() {
        messages += 1;
    }
    assert_eq!(messages, 3);
    assert!(now() - start >= gap * 3);
}

#[tokio::test]
async fn dead_addresses_refuse_and_dead_connectors_hang() {
    let port = ClosedPort::new().unwrap();
    let error = chain(&soon(raw(&channel(port.addr()))).await.unwrap_err());
    assert!(error.contains("io(ConnectionRefused)"), "{error}");
    assert!(port.uri().ends_with(&port.addr().port().to_string()));

    type Stream = hyper_util::rt::TokioIo<tokio::net::TcpStream>;
    let connector = tower::service_fn(never::<Stream>);
    pending(raw(
        &Endpoint::from_static("http://never").connect_with_connector_lazy(connector)
    ))
    .await;
}

#[tokio::test]
async fn a_mute_peer_seems_ready_and_says_nothing() {
    let peer = Peer::start(Script::good().accept(steadfast_testkit::peer::Accept::Mute)).unwrap();
    pending(raw(&channel(peer.addr()))).await;
    assert_eq!((peer.connections(), peer.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_tls_mute_peer_leaves_the_handshake_open() {
    let peer = Peer::start(Script::tls_mute()).unwrap();
    // What a TLS client says first: the head of a handshake record, and nobody answers it.
    let mut socket = tokio::net::TcpStream::connect(peer.addr()).await.unwrap();
    let hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03";
    tokio::io::AsyncWriteExt::write_all(&mut socket, hello)
        .await
        .unwrap();
    pending(tokio::io::AsyncReadExt::read_u8(&mut socket)).await;
    assert_eq!(peer.open_connections(), 1);
}

#[tokio::test]
async fn big_messages_are_refused_by_their_announced_length() {
    let peer = Peer::start(Script::big(5 << 20)).unwrap();
    let error = unary(&client(peer.addr())).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    let mut patient = client(peer.addr()).max_decoding_message_size(6 << 20);
    let reply = soon(patient.unary(EchoRequest::default())).await.unwrap();
    assert_eq!(reply.into_inner().payload.len(), 5 << 20);
}

#[tokio::test]
async fn a_zip_bomb_is_small_until_it_is_unpacked() {
    const HUGE: usize = 16 << 20;
    let peer = Peer::start(Script::zip_bomb(HUGE)).unwrap();
    let packed = read(soon(raw(&channel(peer.addr()))).await.unwrap().into_body()).await;
    assert!(packed.bytes < HUGE / 150, "{packed:?}");
    let gzip = |limit| {
        client(peer.addr())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(limit)
    };
    let error = soon(gzip(4 << 20).unary(EchoRequest::default())).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");

    for bytes in [0, 1, 257, 258, 259, 100_000] {
        let peer = Peer::start(Script::zip_bomb(bytes)).unwrap();
        let mut client = client(peer.addr()).accept_compressed(CompressionEncoding::Gzip);
        let reply = soon(client.unary(EchoRequest::default())).await.unwrap();
        assert_eq!(reply.into_inner().payload, vec![0; bytes]);
    }
}

#[tokio::test]
async fn a_forgotten_connection_is_reset_at_the_next_packet() {
    let peer = Peer::start(Script::forgotten(Duration::from_millis(50))).unwrap();
    let channel = channel(peer.addr());
    let read = read(soon(raw(&channel)).await.unwrap().into_body()).await;
    assert_eq!(read.status.as_deref(), Some("0"));
    peer.wait_until(HANG, |state| state.connections[0].forgotten)
        .await
        .unwrap();
    assert_eq!(peer.open_connections(), 1, "the client can't know");
    let error = chain(&soon(raw(&channel)).await.unwrap_err());
    assert!(error.contains("io("), "{error}");
    soon(raw(&channel)).await.expect("a new connection is good");
    assert_eq!((peer.connections(), peer.requests().len()), (2, 2));
}

#[tokio::test]
async fn a_connection_can_be_forgotten_by_order() {
    let peer = Peer::start(Script::ping_only()).unwrap();
    let call = tokio::spawn({
        let channel = keepalive(&peer);
        async move { raw(&channel).await }
    });
    peer.wait_until(HANG, |state| state.requests.len() == 1)
        .await
        .unwrap();
    assert!(peer.inject(0, [Step::Forget]).await);
    // The client's next PING is the packet.
    let error = chain(&soon(call).await.unwrap().unwrap_err());
    assert!(error.contains("io(ConnectionReset)"), "{error}");
}

#[tokio::test]
async fn a_dropped_syn_hangs_the_connect() {
    let port = SynDrop::new().unwrap();
    pending(tokio::net::TcpStream::connect(port.addr())).await;
    let endpoint = Endpoint::from_shared(port.uri()).unwrap();
    let short = endpoint.connect_timeout(Duration::from_millis(100));
    let error = chain(&soon(raw(&short.connect_lazy())).await.unwrap_err());
    assert!(error.contains("io(TimedOut)"), "{error}");
}
