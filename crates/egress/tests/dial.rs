//! Dials that fail: each within the budget, with an error that names what was tried and the deepest cause.

mod common;

use std::{error::Error, io, time::Duration};

use common::{HANG, dial, echo, fails, in_time, short};
use steadfast_core::{ChannelId, NewChannel, Place};
use steadfast_egress::{DialError, DialStage, Egress, EgressConfig};
use steadfast_testkit::peer::{Accept, ClosedPort, Peer, Script, Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tonic::transport::Endpoint;

const MUTE: Duration = Duration::from_millis(200);

fn deepest(error: &DialError) -> String {
    let mut deepest: &dyn Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn egress(uri: String, budget_ms: u64) -> Egress {
    Egress::new(uri, short(budget_ms)).unwrap()
}

#[tokio::test]
async fn a_good_peer_is_called_with_a_generated_client() {
    let peer = Peer::start(Script::good()).unwrap();
    let egress = egress(peer.uri(), 10_000);
    let id = ChannelId::next();
    let channel = in_time(egress.new_channel(id, &egress.places()[0]))
        .await
        .unwrap();
    assert_eq!((channel.id(), channel.place()), (id, &egress.places()[0]));
    for _ in 0..3 {
        assert_eq!(echo(&channel).await.unwrap().into_inner().payload, b"abc");
    }
    assert_eq!(peer.connections(), 1);
    assert!(channel.meter().condemned_for().is_none());
    fn is<T: Clone + Send + Sync + 'static>(_: &T) {}
    is(channel.service());
    is(&egress);
}

#[tokio::test]
async fn settings_that_come_late_are_waited_for() {
    let delay = Duration::from_millis(300);
    let script = Script::good().settings(Settings {
        delay,
        ..Settings::default()
    });
    let peer = Peer::start(script).unwrap();
    dial(&egress(peer.uri(), 10_000)).await;
    let error = fails(&egress(peer.uri(), 100)).await;
    assert!(
        error.to_string().contains("no SETTINGS within 100ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_port() {
    let port = ClosedPort::new().unwrap();
    let uri = format!("http://{}", port.addr());
    let error = fails(&egress(uri.clone(), 10_000)).await;
    assert_eq!(
        (error.stage(), error.place().as_str()),
        (DialStage::Connect, &*uri)
    );
    assert!(deepest(&error).contains("refused"), "{error}");
    let text = format!(
        "dial of {uri} failed (connect): no connection: {}",
        deepest(&error)
    );
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn a_name_that_does_not_resolve() {
    let error = fails(&egress("http://name.invalid:4".into(), 10_000)).await;
    assert_eq!(error.stage(), DialStage::Resolve, "{error}");
    assert!(error.to_string().contains("name.invalid:4"), "{error}");
    assert_eq!(error.budget(), Duration::from_secs(10));
    assert!(error.addresses().is_empty());
}

#[tokio::test]
async fn a_name_is_resolved_and_its_addresses_are_named() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let error = fails(&egress(
        format!("http://localhost:{}", peer.addr().port()),
        200,
    ))
    .await;
    assert_eq!(error.stage(), DialStage::Settings, "{error}");
    assert_eq!(error.addresses(), [peer.addr()]);
}

#[tokio::test]
async fn a_peer_that_says_nothing() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let egress = egress(peer.uri(), 200);
    let start = steadfast_core::now();
    let error = fails(&egress).await;
    let took = steadfast_core::now() - start;
    assert!(took >= MUTE && took < HANG, "{took:?}");
    assert_eq!(error.stage(), DialStage::Settings);
    let text = error.to_string();
    let end =
        "failed (settings): no SETTINGS within 200ms: accepted the connection and said nothing";
    assert!(text.ends_with(end), "{text}");
    assert!(text.contains(&peer.addr().to_string()), "{text}");
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

/// A peer that says this and then reads on, or closes.
async fn says(bytes: &'static [u8], close: bool) -> DialError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let peer = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 24]).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        if close {
            socket.shutdown().await.unwrap();
        }
        drop(socket.read_to_end(&mut Vec::new()).await);
    });
    let error = fails(&egress(uri, 200)).await;
    in_time(peer).await.unwrap();
    assert_eq!(error.stage(), DialStage::Settings);
    error
}

#[tokio::test]
async fn a_peer_that_says_too_little() {
    let error = says(b"\0\0\x06\x04", false).await;
    assert!(
        error
            .to_string()
            .ends_with("and said only \"\\x00\\x00\\x06\\x04\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_peer_that_speaks_something_else() {
    let no_settings: [(&[u8], &str); 4] = [
        (b"SSH-2.0", "SSH-2.0"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "HTTP/1.1 400 Bad Request",
        ),
        (b"\0\0\0\x04\x01\0\0\0\0", "\\x00\\x00\\x00\\x04\\x01"),
        (&[0xff; 64], "\\xff\\xff"),
    ];
    for (bytes, shown) in no_settings {
        for close in [false, true] {
            let error = says(bytes, close).await;
            let text = error.to_string();
            let start = format!("the peer answered with no HTTP/2 SETTINGS but with \"{shown}");
            assert!(text.contains(&start), "{text}");
        }
    }
}

#[tokio::test]
async fn a_peer_that_speaks_http_1() {
    let peer = Peer::start(Script::http1()).unwrap();
    let error = fails(&egress(peer.uri(), 10_000)).await;
    assert_eq!(error.stage(), DialStage::Settings);
    let text = error.to_string();
    assert!(
        text.contains("the peer answered with no HTTP/2 SETTINGS but with \"HTTP/1.1 "),
        "{text}"
    );
}

#[tokio::test]
async fn a_peer_that_closes_at_once() {
    for accept in [Accept::Fin, Accept::TcpReset] {
        let peer = Peer::start(Script::good().accept(accept.clone())).unwrap();
        let error = fails(&egress(peer.uri(), 10_000)).await;
        let text = error.to_string();
        // A reset may come as early as in `connect` itself.
        assert!(
            text.contains("accepted the connection, said nothing and closed it")
                || (accept == Accept::TcpReset && error.stage() == DialStage::Connect),
            "{accept:?}: {text}"
        );
        assert!(error.source().is_some(), "{text}");
    }
}

#[tokio::test]
async fn many_dials_at_once_end_together() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let egress = egress(peer.uri(), 200);
    let dials: Vec<_> = (0..20)
        .map(|_| tokio::spawn(egress.new_channel(ChannelId::next(), &egress.places()[0])))
        .collect();
    peer.wait_until(HANG, |state| state.connections.len() == 20)
        .await
        .unwrap();
    for dial in dials {
        in_time(dial).await.unwrap().unwrap_err();
    }
}

#[tokio::test]
async fn a_dropped_dial_closes_its_socket() {
    let peer = Peer::start(Script::good().accept(Accept::Mute)).unwrap();
    let egress = egress(peer.uri(), 60_000);
    let dial = tokio::spawn(egress.new_channel(ChannelId::next(), &egress.places()[0]));
    peer.wait_until(HANG, |state| state.open_connections() == 1)
        .await
        .unwrap();
    dial.abort();
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
}

#[tokio::test]
async fn https_is_refused_or_encrypted_but_never_clear_text() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("https://{}", listener.local_addr().unwrap());
    let built = Egress::new(uri.clone(), short(200));
    let per_place = Egress::per_place(short(200), |place| {
        Ok(Endpoint::from_shared(place.to_string())?)
    });
    let per_place = per_place.unwrap().with_places([uri]);
    match built {
        // Built without TLS.
        Err(error) => {
            assert_eq!(error.field(), "egress.endpoint");
            assert!(
                error.range().contains("enable the feature `tls-ring`"),
                "{error}"
            );
            let error = fails(&per_place).await;
            assert_eq!(error.stage(), DialStage::Endpoint);
            assert!(
                error.to_string().contains("enable the feature `tls-ring`"),
                "{error}"
            );
        }
        // With TLS, the peer that doesn't finish the handshake takes no longer than the budget.
        Ok(egress) => {
            for egress in [egress, per_place] {
                let error = fails(&egress).await;
                assert_eq!(error.stage(), DialStage::Tls);
                assert!(
                    error.to_string().contains("no TLS connection within 200ms"),
                    "{error}"
                );
                let (mut socket, _) = in_time(listener.accept()).await.unwrap();
                let mut first = [0];
                socket.read_exact(&mut first).await.unwrap();
                assert_eq!(first, [0x16], "a TLS handshake record");
            }
        }
    }
}

#[tokio::test]
async fn each_place_has_its_endpoint_and_an_error_of_its_own() {
    let (a, b) = (
        Peer::start(Script::good()).unwrap(),
        Peer::start(Script::good()).unwrap(),
    );
    let (to_a, to_b) = (a.uri(), b.uri());
    let egress = Egress::per_place(EgressConfig::default(), move |place| match place.as_str() {
        "a" => Ok(Endpoint::from_shared(to_a.clone())?),
        "b" => Ok(Endpoint::from_shared(to_b.clone())?),
        _ => Err(io::Error::other("no certificate today").into()),
    });
    let egress = egress.unwrap().with_places(["a", "b"]);
    for (place, peer) in [("a", &a), ("b", &b)] {
        let channel = in_time(egress.new_channel(ChannelId::next(), &place.into()))
            .await
            .unwrap();
        echo(&channel).await.unwrap();
        assert_eq!(peer.requests().len(), 1);
    }
    let error = egress.new_channel(ChannelId::next(), &"c".into());
    let error = in_time(error).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "dial of c failed (endpoint): no endpoint for this place: no certificate today"
    );

    let one = Egress::new(a.uri(), EgressConfig::default()).unwrap();
    in_time(one.new_channel(ChannelId::next(), &Place::default()))
        .await
        .unwrap();
    let error = in_time(one.new_channel(ChannelId::next(), &"c".into()))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("this factory's only place is http://"),
        "{error}"
    );
}

/// B8: on plaintext the peer's stream limit stands on the meter when the dial ends, and follows the peer.
#[tokio::test]
async fn the_stream_limit_stands_on_the_meter() {
    for (script, limit) in [(Script::max_streams(10), 10), (Script::good(), 65_534)] {
        let peer = Peer::start(script).unwrap();
        let channel = dial(&Egress::new(peer.uri(), short(2_000)).unwrap()).await;
        assert_eq!(channel.meter().read().stream_limit(), Some(limit));
        let bell = std::sync::Arc::new(tokio::sync::Notify::new());
        channel.meter().ring_on_change(std::sync::Arc::clone(&bell));
        let rung = bell.notified();
        let settings = steadfast_testkit::peer::Step::Frame {
            kind: 4,
            flags: 0,
            stream: Some(0),
            payload: vec![0, 3, 0, 0, 0, 5].into(),
        };
        assert!(peer.inject(0, [settings]).await);
        in_time(rung).await;
        assert_eq!(channel.meter().read().stream_limit(), Some(5));
    }
}
