//! BigTable's probe.

#![cfg(feature = "bigtable")]

use http_body_util::BodyExt;
use steadfast_core::{Place, Probe};
use steadfast_rules::bigtable::PingAndWarm;

/// B6: the message is BigTable's PingAndWarmRequest with the instance's name, framed, and the call is routed to that
/// instance.
#[tokio::test]
async fn the_message_has_the_instances_name() {
    use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::PingAndWarmRequest;
    let instance = format!("projects/p/instances/{}", "i".repeat(200));
    let probe = PingAndWarm::new(&instance).unwrap();
    let request = probe.prepare(&Place::default()).await.unwrap();
    assert_eq!(
        request.uri().path(),
        "/google.bigtable.v2.Bigtable/PingAndWarm"
    );
    let routing = request.headers()["x-goog-request-params"].to_str().unwrap();
    assert!(routing.starts_with("name=projects%2Fp%2Finstances%2Fi"));
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body[0], 0, "not compressed");
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!(length as usize, body.len() - 5);
    let message: PingAndWarmRequest = prost::Message::decode(&body[5..]).unwrap();
    assert_eq!(message.name, instance);
}

/// An instance's name has its form, or is an error that shows it.
#[test]
fn names_of_instances() {
    for bad in [
        "",
        "i",
        "projects/p",
        "projects//instances/i",
        "projects/p/instances/",
        "projects/p/instances/i/tables/t",
        "projects/p/instances/i\n",
    ] {
        let error = PingAndWarm::new(bad).unwrap_err();
        assert_eq!(
            (error.field(), error.value()),
            ("instance", &*format!("{bad:?}"))
        );
    }
}
