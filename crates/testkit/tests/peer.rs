//! The peer against a real client: serving, recording, holding.

mod common;

use bytes::Bytes;
use common::*;
use std::time::Duration;
use steadfast_proto::EchoRequest;
use steadfast_testkit::peer::{Accept, Answer, Last, Peer, Script, Settings, Step};

#[tokio::test]
async fn a_good_peer_answers_a_generated_client() {
    let peer = Peer::start(Script::good()).unwrap();
    let client = client(peer.addr());
    for _ in 0..3 {
        assert_eq!(unary(&client).await.unwrap().payload, b"abc");
    }
    let requests = peer.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests
            .iter()
            .all(|request| request.path == "/steadfast.test.Echo/Unary" && !request.refused)
    );
    assert_eq!(
        requests
            .iter()
            .map(|request| (request.stream, request.index))
            .collect::<Vec<_>>(),
        [(1, 0), (3, 1), (5, 2)]
    );
    peer.wait_until(HANG, |state| {
        state.open_streams() == 0 && state.connections[0].settings_acknowledged
    })
    .await
    .unwrap();
    assert_eq!((peer.connections(), peer.open_connections()), (1, 1));
    drop(client);
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn ids_and_headers_are_recorded_whatever_the_compression() {
    let peer = Peer::start(Script::good()).unwrap();
    let channel = channel(peer.addr());
    for id in ["a", "a", "long-".repeat(500).as_str(), "\u{7e}{}|<>", ""] {
        raw_with_id(&channel, id).await.unwrap();
    }
    let ids: Vec<_> = peer
        .requests()
        .iter()
        .map(|request| request.id().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["a", "a", &"long-".repeat(500), "~{}|<>", ""]);
    let requests = peer.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("te") == Some("trailers"))
    );
    assert_eq!(
        requests
            .iter()
            .map(|request| request.order)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
}

#[tokio::test]
async fn the_window_of_request_bodies_is_returned_or_kept() {
    let peer = Peer::start(Script::good()).unwrap();
    let mut client_ = client(peer.addr());
    let big = EchoRequest {
        payload: vec![7; 1 << 20],
        ..EchoRequest::default()
    };
    soon(client_.unary(big.clone())).await.unwrap();
    assert!(peer.inspect(|state| state.connections[0].data_received) > 1 << 20);

    let peer = Peer::start(Script::good().window_updates(false)).unwrap();
    let mut client_ = client(peer.addr());
    let call = tokio::spawn(async move { client_.unary(big).await });
    peer.wait_until(HANG, |state| {
        state
            .connections
            .first()
            .is_some_and(|c| c.data_received == 65_535)
    })
    .await
    .unwrap();
    pending(call).await;
    assert_eq!(
        peer.inspect(|state| state.connections[0].data_received),
        65_535
    );
}

#[tokio::test]
async fn each_connection_has_its_script_and_scripts_can_be_changed() {
    let peer = Peer::scripted(|number| {
        if number == 0 {
            Script::rst(8)
        } else {
            Script::good()
        }
    })
    .unwrap();
    let (first, second) = (client(peer.addr()), client(peer.addr()));
    unary(&first).await.unwrap_err();
    unary(&second).await.unwrap();
    peer.set_script(Script::always(Answer::status(5, "gone")));
    unary(&second).await.unwrap();
    let status = unary(&client(peer.addr())).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::NotFound, "gone")
    );
    assert_eq!(peer.open_streams_per_connection().len(), 3);
}

#[tokio::test]
async fn a_stopped_peer_refuses_and_another_takes_its_port() {
    let peer = Peer::start(Script::good()).unwrap();
    let addr = peer.addr();
    let client = client(addr);
    unary(&client).await.unwrap();
    soon(peer.stop()).await;
    unary(&client).await.unwrap_err();
    let peer = Peer::bind(addr, |_| Script::good()).unwrap();
    unary(&client).await.unwrap();
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn dropping_a_peer_closes_its_connections() {
    let peer = Peer::start(Script::ping_only()).unwrap();
    let client = client(peer.addr());
    let call = tokio::spawn(async move { unary(&client).await });
    peer.wait_until(HANG, |state| state.requests.len() == 1)
        .await
        .unwrap();
    drop(peer);
    assert!(chain(&soon(call).await.unwrap().unwrap_err()).contains("io("));
}

#[tokio::test]
async fn injected_steps_reach_a_live_connection() {
    let peer = Peer::start(Script::always(Answer::good().held())).unwrap();
    let client_ = client(peer.addr());
    let call = tokio::spawn({
        let client = client_.clone();
        async move { unary(&client).await }
    });
    peer.wait_until(HANG, |state| state.held == 1)
        .await
        .unwrap();
    assert!(peer.inject(0, [Step::goaway(0, Last::Highest)]).await);
    peer.release(1);
    soon(call).await.unwrap().unwrap();
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    assert!(!peer.inject(0, [Step::Fin]).await, "the connection is gone");
    assert!(!peer.inject(7, [Step::Fin]).await, "there never was one");
}

#[tokio::test]
async fn a_request_after_a_goaway_is_recorded_as_refused() {
    let answer = Answer::steps([Step::goaway(0, Last::Zero), Step::Hold]);
    let peer = Peer::start(Script::always(answer)).unwrap();
    // Raw bytes, as a client that ignores the GOAWAY: preface, SETTINGS, and two HEADERS with the same field.
    let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    wire.extend_from_slice(b"\0\0\x01\x01\x05\0\0\0\x01\x84");
    let mut socket = tokio::net::TcpStream::connect(peer.addr()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, &wire)
        .await
        .unwrap();
    peer.wait_until(HANG, |state| state.held == 1)
        .await
        .unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, b"\0\0\x01\x01\x05\0\0\0\x03\x84")
        .await
        .unwrap();
    peer.wait_until(HANG, |state| state.requests.len() == 2)
        .await
        .unwrap();
    assert_eq!(
        peer.requests()
            .iter()
            .map(|request| request.refused)
            .collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!(peer.open_streams_per_connection(), [0]);
}

#[tokio::test]
async fn late_settings_hold_everything_back() {
    let delay = Duration::from_millis(100);
    let peer = Peer::start(Script::good().settings(Settings {
        delay,
        ..Settings::default()
    }))
    .unwrap();
    let client = client(peer.addr());
    let start = now();
    unary(&client).await.unwrap();
    assert!(now() - start >= delay);
}

#[tokio::test]
async fn nonsense_from_a_client_closes_the_connection_and_nothing_else() {
    let peer = Peer::start(Script::good()).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let cases: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc",
        b"\0\0\x01\x01\x05\0\0\0\x01\xff",
        b"\0\0\x01\x01\x0d\0\0\0\x01\xff",
        b"\xff\xff\xff\x00\x00\0\0\0\x01",
        b"\0\0\x01\x09\x04\0\0\0\x01\x82",
        b"\0\0\x01\x01\x00\0\0\0\x01\x82\0\0\x00\x06\x00\0\0\0\0",
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let mut socket = tokio::net::TcpStream::connect(peer.addr()).await.unwrap();
        let start: &[u8] = if index == 0 { b"" } else { preface };
        tokio::io::AsyncWriteExt::write_all(&mut socket, &[start, case].concat())
            .await
            .unwrap();
        let mut answer = Vec::new();
        soon(tokio::io::AsyncReadExt::read_to_end(
            &mut socket,
            &mut answer,
        ))
        .await
        .unwrap();
        assert_eq!(peer.open_connections(), 0, "case {index}");
    }
    unary(&client(peer.addr())).await.unwrap();
}

#[tokio::test]
async fn a_hang_is_reported_with_the_state() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let hang = peer
        .wait_until(Duration::from_millis(10), |state| state.requests.len() == 1)
        .await
        .unwrap_err();
    assert!(hang.to_string().contains("0 requests"), "{hang}");
}

#[tokio::test]
async fn any_frame_and_any_bytes_can_be_sent() {
    let headers = steadfast_testkit::peer::header_block(&[("content-type", "application/grpc")]);
    let answer = Answer::steps([Step::Frame {
        kind: 1,
        flags: 4,
        stream: None,
        payload: headers,
    }]);
    let peer = Peer::start(Script::always(answer)).unwrap();
    let error = soon(raw(&channel(peer.addr()))).await.unwrap_err();
    assert!(
        chain(&error).contains("h2[reset library Some(PROTOCOL_ERROR)]"),
        "HEADERS without :status: {}",
        chain(&error)
    );

    let answer = Answer::steps([
        Step::Headers {
            status: 103,
            fields: vec![],
            end: false,
        },
        Step::headers(),
        Step::Data {
            bytes: Bytes::from_static(b"\0\0\0\0\0"),
            end: false,
        },
        Step::status(0, ""),
    ]);
    let peer = Peer::start(Script::always(answer)).unwrap();
    let response = soon(raw(&channel(peer.addr()))).await.unwrap();
    assert_eq!(
        read(response.into_body()).await.status.as_deref(),
        Some("0")
    );

    let big = vec![
        ("x-big".to_owned(), "v".repeat(10_000)),
        ("x-big".to_owned(), "v".repeat(10_000)),
    ];
    let peer = Peer::start(Script::always(Answer::steps([Step::Headers {
        status: 200,
        fields: big,
        end: true,
    }])))
    .unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(peer.uri())
        .unwrap()
        .http2_max_header_list_size(100_000);
    let response = soon(raw(&endpoint.connect_lazy())).await.unwrap();
    assert_eq!(
        response.headers().get_all("x-big").iter().count(),
        2,
        "a CONTINUATION frame was needed"
    );
}

/// An answer can depend on what was asked, across frames.
#[tokio::test]
async fn an_answer_can_depend_on_the_request() {
    let echo = Answer::steps([
        Step::headers(),
        Step::respond(|body| {
            let bytes = Bytes::copy_from_slice(body);
            vec![Step::Data { bytes, end: false }, Step::status(0, "")]
        }),
    ]);
    let peer = Peer::start(Script::always(echo)).unwrap();
    let mut client = client(peer.addr());
    for size in [0, 1, 50_000] {
        let payload = vec![7; size];
        let request = EchoRequest {
            payload: payload.clone(),
            ..EchoRequest::default()
        };
        let reply = client.unary(request).await.unwrap().into_inner();
        assert!(reply.payload == payload, "{size}");
    }
}
