//! X3: bad settings are errors that name field, value and range.

use std::time::Duration;

use http::Request;
use steadfast_core::{BoxError, ConfigError, Place, Probe};
use steadfast_stall::{HealthProbe, StallConfig, StallDetectLayer};

fn refused(change: impl FnOnce(&mut StallConfig)) -> ConfigError {
    let mut config = StallConfig::default();
    change(&mut config);
    let probe = |_: &Place| Ok::<_, BoxError>(Request::new(()));
    StallDetectLayer::new(config, probe).unwrap_err()
}

#[test]
fn the_defaults_are_in_range() {
    StallConfig::default().validate().unwrap();
    StallConfig::alone().validate().unwrap();
    assert!(StallConfig::alone().alone);
    let layer = StallDetectLayer::default();
    assert_eq!(*layer.config(), StallConfig::default());
}

#[test]
fn each_setting_is_named_when_it_is_out_of_range() {
    let (zero, day) = (Duration::ZERO, Duration::from_secs(25 * 3_600));
    let refusals = [
        ("stall.silence", refused(|it| it.silence = it.tick)),
        ("stall.silence", refused(|it| it.silence = day)),
        ("stall.answer", refused(|it| it.answer = zero)),
        ("stall.prepare", refused(|it| it.prepare = zero)),
        ("stall.reprobe", refused(|it| it.reprobe = zero)),
        (
            "stall.reprobe_most",
            refused(|it| it.reprobe_most = it.reprobe / 2),
        ),
        ("stall.most_percent", refused(|it| it.most_percent = 101)),
        ("stall.strikes", refused(|it| it.strikes = 0)),
        ("stall.strike_window", refused(|it| it.strike_window = day)),
        ("stall.dead_after", refused(|it| it.dead_after = zero)),
        ("stall.replace_every", refused(|it| it.replace_every = zero)),
        ("stall.tick", refused(|it| it.tick = zero)),
        ("stall.tolerance", refused(|it| it.tolerance = it.tick / 2)),
        ("stall.ring", refused(|it| it.ring = 1)),
    ];
    for (field, error) in refusals {
        assert_eq!(error.field(), field);
        let text = error.to_string();
        assert!(
            text.contains(error.value()) && text.contains(" to "),
            "{text}"
        );
    }
}

/// S2: the health check as it goes over the wire: the empty message, or one with the service's name.
#[tokio::test]
async fn the_health_check_is_encoded() {
    use http_body_util::BodyExt;
    let long = "a".repeat(300);
    let long_message = [&[0, 0, 0, 1, 47, 0x0a, 0xac, 0x02][..], long.as_bytes()].concat();
    for (name, message) in [
        ("", &b"\0\0\0\0\0"[..]),
        ("a.B", b"\0\0\0\0\x05\x0a\x03a.B"),
        (&long, &long_message),
    ] {
        let probe = HealthProbe::for_service(name);
        let request = probe.prepare(&Place::default()).await.unwrap();
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.method(), http::Method::POST);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, message);
    }
    let probe = HealthProbe::default();
    let request = probe.prepare(&Place::default()).await.unwrap();
    assert_eq!(
        request
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .len(),
        5
    );
}
