//! The request that PingAndWarm makes.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::PingAndWarmRequest;
use http_body_util::BodyExt;
use prost::Message;
use steadfast_core::{Place, Probe};
use steadfast_rules::bigtable::PingAndWarm;

/// The routing header and the message of a probe, and all that a gRPC request needs.
async fn prepared(probe: &PingAndWarm) -> (String, PingAndWarmRequest) {
    let request = probe.prepare(&Place::default()).await.unwrap();
    assert_eq!(request.method(), http::Method::POST);
    assert_eq!(request.uri(), "/google.bigtable.v2.Bigtable/PingAndWarm");
    assert_eq!(request.version(), http::Version::HTTP_2);
    assert_eq!(request.headers()["content-type"], "application/grpc");
    assert_eq!(request.headers()["te"], "trailers");
    let routing = request.headers()["x-goog-request-params"].clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body[0], 0, "not compressed");
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!(length as usize, body.len() - 5);
    let message = PingAndWarmRequest::decode(&body[5..]).unwrap();
    (routing.to_str().unwrap().to_owned(), message)
}

/// B6: the message names the instance, and the call is routed to it.
#[tokio::test]
async fn the_request_names_the_instance() {
    let instance = format!("projects/p/instances/{}", "i".repeat(200));
    let (routing, message) = prepared(&PingAndWarm::new(&*instance)).await;
    assert_eq!(routing, format!("name={}", instance.replace('/', "%2F")));
    assert_eq!(message.name, instance);
    assert_eq!(message.app_profile_id, "");
}

/// B6: with an app profile the message and the routing name it too, and it can be changed.
#[tokio::test]
async fn the_request_names_the_app_profile() {
    let probe = PingAndWarm::new("projects/a.b:c/instances/i").with_app_profile("one");
    let (routing, message) = prepared(&probe.with_app_profile("two_2")).await;
    assert_eq!(
        routing,
        "name=projects%2Fa.b%3Ac%2Finstances%2Fi&app_profile_id=two_2"
    );
    assert_eq!(message.name, "projects/a.b:c/instances/i");
    assert_eq!(message.app_profile_id, "two_2");
}

/// B6: a name that no instance can have is sent as it is, and never breaks the header.
#[tokio::test]
async fn any_name_can_be_asked_about() {
    let (routing, message) = prepared(&PingAndWarm::new("a\r\nb&c=d é")).await;
    assert_eq!(routing, "name=a%0D%0Ab%26c%3Dd%20%C3%A9");
    assert_eq!(message.name, "a\r\nb&c=d é");
}
