//! BigTable's PingAndWarm, as the probe of a pool.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Full;
use steadfast_core::{BoxError, Place, Prepared, Probe};
use tonic::body::Body;

const PATH: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";
/// Google's routing header: which instance a call is for, percent-encoded.
const ROUTING: &str = "x-goog-request-params";

/// Asks `google.bigtable.v2.Bigtable/PingAndWarm` about one instance.
#[derive(Clone, Debug)]
pub(crate) struct PingAndWarm {
    message: Bytes,
    routing: Option<HeaderValue>,
}

impl PingAndWarm {
    /// `instance` is the instance's full name.
    pub(crate) fn new(instance: &str) -> Self {
        // PingAndWarmRequest.name: field 1, a string.
        let name = prost::encoding::encoded_len_varint(instance.len() as u64) + 1 + instance.len();
        let mut message = BytesMut::with_capacity(5 + name);
        message.put_u8(0);
        message.put_u32(u32::try_from(name).unwrap_or(u32::MAX));
        prost::encoding::string::encode(1, &instance.to_owned(), &mut message);
        let routing = format!("name={}", instance.replace('/', "%2F"));
        Self {
            message: message.freeze(),
            // A name that fits into no header goes without; the server says what it makes of that.
            routing: HeaderValue::try_from(routing).ok(),
        }
    }
}

impl Probe for PingAndWarm {
    type Body = Body;

    fn prepare(&self, _place: &Place) -> Prepared<Body> {
        let mut request = Request::new(Body::new(Full::new(self.message.clone())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = Uri::from_static(PATH);
        *request.version_mut() = http::Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let grpc = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, grpc);
        if let Some(routing) = &self.routing {
            headers.insert(ROUTING, routing.clone());
        }
        Box::pin(std::future::ready(Ok::<_, BoxError>(request)))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

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
        let probe = PingAndWarm::new(&instance);
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
