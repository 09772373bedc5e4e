//! BigTable's PingAndWarm, as the probe of a pool.

use http::{HeaderName, HeaderValue};
use steadfast_stall::UnaryProbe;

/// Google's routing header: which instance a call is for, percent-encoded.
const ROUTING: HeaderName = HeaderName::from_static("x-goog-request-params");

/// Asks `google.bigtable.v2.Bigtable/PingAndWarm` about one instance, by its full name.
pub(crate) fn ping_and_warm(instance: &str) -> UnaryProbe {
    // PingAndWarmRequest.name: field 1, a string.
    let mut message = Vec::new();
    prost::encoding::string::encode(1, &instance.to_owned(), &mut message);
    let probe = UnaryProbe::new("/google.bigtable.v2.Bigtable/PingAndWarm", &message);
    match HeaderValue::try_from(format!("name={}", instance.replace('/', "%2F"))) {
        Ok(routing) => probe.with_header(ROUTING, routing),
        // A name that fits into no header goes without; the server says what it makes of that.
        Err(_) => probe,
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use steadfast_core::{Place, Probe};

    use super::*;

    /// B6: the message is BigTable's PingAndWarmRequest with the instance's name, framed, and the call is
    /// routed to that instance.
    #[tokio::test]
    async fn the_message_has_the_instances_name() {
        #[derive(Clone, PartialEq, prost::Message)]
        struct PingAndWarmRequest {
            #[prost(string, tag = "1")]
            name: String,
        }
        let instance = format!("projects/p/instances/{}", "i".repeat(200));
        let probe = ping_and_warm(&instance);
        let request = probe.prepare(&Place::default()).await.unwrap();
        let routing = request.headers()[ROUTING].to_str().unwrap();
        assert!(routing.starts_with("name=projects%2Fp%2Finstances%2Fi"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body[0], 0, "not compressed");
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
        assert_eq!(length as usize, body.len() - 5);
        let message: PingAndWarmRequest = prost::Message::decode(&body[5..]).unwrap();
        assert_eq!(message.name, instance);
    }
}
