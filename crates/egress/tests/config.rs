//! What can't be used is refused when the factory is built, and what can be is what the server sees.

mod common;

use std::time::Duration;

use common::{in_time, short};
use steadfast_core::{ChannelId, NewChannel, Place};
use steadfast_egress::{Egress, EgressConfig, Keepalive};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};
use tonic::transport::Endpoint;

const URI: &str = "http://127.0.0.1:1";

fn refused(change: impl FnOnce(&mut EgressConfig), field: &str, value: &str, range: &str) {
    let mut config = EgressConfig::default();
    change(&mut config);
    let error = Egress::new(URI, config.clone()).expect_err(field);
    assert_eq!(
        (error.field(), error.value(), error.range()),
        (field, value, range)
    );
    let error = Egress::per_place(config, |_| Ok(Endpoint::from_static(URI))).expect_err(field);
    assert_eq!(error.field(), field);
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    const WINDOW: &str = "1..=2147483647";
    for (window, shown) in [(0, "0"), (1 << 31, "2147483648"), (u32::MAX, "4294967295")] {
        refused(
            |c| c.stream_window = window,
            "egress.stream_window",
            shown,
            WINDOW,
        );
        refused(
            |c| c.connection_window = window,
            "egress.connection_window",
            shown,
            WINDOW,
        );
        let list = "egress.max_header_list_size";
        refused(
            |c| c.max_header_list_size = Some(window),
            list,
            shown,
            WINDOW,
        );
    }
    for (size, shown) in [(0, "0"), (16_383, "16383"), (1 << 24, "16777216")] {
        let frame = "egress.max_frame_size";
        refused(
            |c| c.max_frame_size = Some(size),
            frame,
            shown,
            "16384..=16777215",
        );
    }
    refused(
        |c| c.reset_streams = usize::MAX,
        "egress.reset_streams",
        &usize::MAX.to_string(),
        "0..=1048576",
    );
    let zero = Duration::ZERO;
    let long = Duration::from_secs(3_601);
    let one = Duration::from_secs(1);
    let hour = "1ms..=3600s";
    for (time, shown) in [(zero, "0ns"), (long, "3601s")] {
        let interval = |c: &mut EgressConfig| c.keepalive = Some(Keepalive::new(time, one));
        refused(interval, "egress.keepalive.interval", shown, hour);
        let limit = |c: &mut EgressConfig| c.keepalive = Some(Keepalive::new(one, time));
        refused(limit, "egress.keepalive.timeout", shown, hour);
        refused(
            |c| c.connect_budget = time,
            "egress.connect_budget",
            shown,
            "1ms..=600s",
        );
    }
    let remembered = "egress.reset_stream_duration";
    refused(
        |c| c.reset_stream_duration = long,
        remembered,
        "3601s",
        "0ns..=3600s",
    );
}

#[test]
fn the_ends_of_the_ranges_are_allowed_outside_a_runtime() {
    let least = EgressConfig {
        stream_window: 1,
        connection_window: 1,
        max_frame_size: Some(16_384),
        max_header_list_size: Some(1),
        keepalive: None,
        reset_streams: 0,
        reset_stream_duration: Duration::ZERO,
        connect_budget: Duration::from_millis(1),
    };
    Egress::new(URI, least).expect("the least");
    let most = EgressConfig {
        stream_window: (1 << 31) - 1,
        connection_window: (1 << 31) - 1,
        max_frame_size: Some(16_777_215),
        max_header_list_size: Some((1 << 31) - 1),
        reset_streams: 1 << 20,
        ..EgressConfig::default()
    };
    Egress::new(URI, most).expect("the most");
}

#[test]
fn a_connection_window_under_four_stream_windows_is_warned_of() {
    let mut config = EgressConfig::default();
    assert!(config.warnings().is_empty());
    config.connection_window = 4 * config.stream_window;
    assert!(config.warnings().is_empty());
    config.connection_window -= 1;
    assert_eq!(config.warnings().len(), 1);
    assert!(config.warnings()[0].starts_with("egress.connection_window is 1048575,"));
    let fast = Keepalive::new(Duration::from_secs(9), Duration::from_secs(1));
    let config = EgressConfig::default().with_keepalive(fast);
    assert!(config.warnings()[0].starts_with("egress.keepalive.interval is 9s,"));
    assert_eq!(EgressConfig::default().with_keepalive(None).keepalive, None);
}

#[test]
fn presets_and_memory() {
    let (interactive, bulk) = (EgressConfig::interactive(), EgressConfig::bulk());
    assert_eq!(interactive, EgressConfig::default());
    assert_eq!(
        (interactive.stream_window, interactive.connection_window),
        (262_144, 268_435_456)
    );
    assert_eq!(
        (bulk.stream_window, bulk.connection_window),
        (2 << 20, 256 << 20)
    );
    assert_eq!(Keepalive::google().interval, Duration::from_secs(30));
    assert_eq!(interactive.worst_case_memory(200, 25), 1_310_720_000);
    assert_eq!(interactive.worst_case_memory(10, 25), 65_536_000);
    assert_eq!(bulk.worst_case_memory(4, 100), 4 * 100 * (2 << 20));
    assert_eq!(bulk.worst_case_memory(200, 25), 200 * 25 * (2 << 20));
    assert_eq!(interactive.worst_case_memory(0, 100), 0);
    assert_eq!(interactive.worst_case_memory(1, u32::MAX), 268_435_456);
    let most = u64::from(u32::MAX) * 268_435_456;
    assert_eq!(interactive.worst_case_memory(u32::MAX, u32::MAX), most);
}

#[test]
fn endpoints_that_cannot_be_dialled_are_refused() {
    for uri in [
        "",
        "127.0.0.1:80",
        "/path",
        "ftp://a:1",
        "http://",
        "unix:/tmp/socket",
        "a b",
    ] {
        let error = Egress::new(uri, EgressConfig::default()).expect_err(uri);
        assert_eq!(error.field(), "egress.endpoint", "{error}");
        assert!(error.range().contains("http"), "{error}");
    }
    Egress::new("http://tonic:80", EgressConfig::default()).expect("a host named tonic");
}

#[test]
fn places_are_the_endpoint_or_those_that_were_set() {
    let one = Egress::new("http://localhost:1234/", EgressConfig::default()).unwrap();
    assert_eq!(one.places(), [Place::new("http://localhost:1234")]);
    let many = Egress::per_place(EgressConfig::default(), |place| {
        Ok(Endpoint::from_shared(place.to_string())?)
    });
    let many = many.unwrap().with_places(["http://a:1", "http://b:1"]);
    assert_eq!(
        many.places(),
        [Place::new("http://a:1"), Place::new("http://b:1")]
    );
}

/// The settings and the connection's window update that a client sends first, as (id, value), with 0 for
/// the window update.
async fn announced(mut socket: TcpStream) -> Vec<(u16, u32)> {
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await.unwrap();
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(id, _)| *id != 0) {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        socket.read_exact(&mut payload).await.unwrap();
        match head[3] {
            4 => seen.extend(payload.chunks(6).map(|setting| {
                let (id, value) = setting.split_at(2);
                (
                    u16::from_be_bytes(id.try_into().unwrap()),
                    u32::from_be_bytes(value.try_into().unwrap()),
                )
            })),
            8 => seen.push((0, u32::from_be_bytes(payload.try_into().unwrap()))),
            other => panic!("frame {other}"),
        }
    }
    seen
}

async fn announced_by(config: EgressConfig, adaptive: bool) -> Vec<(u16, u32)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = Endpoint::from_shared(uri)
        .unwrap()
        .http2_adaptive_window(adaptive);
    let egress = Egress::new(endpoint, config).unwrap();
    let dial = tokio::spawn(egress.new_channel(ChannelId::next(), &egress.places()[0]));
    let (socket, _) = in_time(listener.accept()).await.unwrap();
    let seen = in_time(announced(socket)).await;
    in_time(dial)
        .await
        .unwrap()
        .expect_err("the peer said nothing");
    seen
}

#[tokio::test]
async fn the_server_sees_the_windows() {
    const INITIAL_WINDOW: u16 = 4;
    const MAX_FRAME: u16 = 5;
    const MAX_LIST: u16 = 6;
    // HTTP/2 starts each connection's window at 65,535 bytes.
    let update = (0, (256 << 20) - 65_535);
    for adaptive in [false, true] {
        let seen = announced_by(short(10_000), adaptive).await;
        assert!(seen.contains(&(INITIAL_WINDOW, 262_144)), "{seen:?}");
        assert!(seen.contains(&update), "{seen:?}");
    }
    let mut config = EgressConfig::bulk();
    config.max_frame_size = Some(1 << 20);
    config.max_header_list_size = Some(77_777);
    let seen = announced_by(config, false).await;
    for setting in [
        (INITIAL_WINDOW, 2 << 20),
        (MAX_FRAME, 1 << 20),
        (MAX_LIST, 77_777),
        update,
    ] {
        assert!(seen.contains(&setting), "{seen:?}");
    }
}
