//! PingAndWarm, as a probe.

use std::future::ready;

use bytes::Bytes;
use http::{
    HeaderValue, Request,
    header::{CONTENT_TYPE, TE},
};
use http_body_util::Full;
use prost::encoding;
use steadfast_core::{ConfigError, Place, Prepared, Probe};
use tonic::body::Body;

const METHOD: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";

/// Google's routing header: which instance a call is for, percent-encoded.
const ROUTING: &str = "x-goog-request-params";

/// Asks BigTable's `PingAndWarm` about one instance: to warm a new channel, and to see whether a silent one answers.
///
/// It carries no credentials: put a layer that adds them below the one that asks.
#[derive(Clone, Debug)]
pub struct PingAndWarm {
    message: Bytes,
    routing: HeaderValue,
}

impl PingAndWarm {
    /// About the instance with this full name, `projects/{project}/instances/{instance}`.
    ///
    /// # Errors
    /// A name of another form.
    pub fn new(instance: &str) -> Result<Self, ConfigError> {
        let parts: Vec<_> = instance.split('/').collect();
        let named = |part: &str| !part.is_empty();
        let routing = HeaderValue::try_from(format!("name={}", instance.replace('/', "%2F")));
        match (&*parts, routing) {
            (["projects", project, "instances", name], Ok(routing))
                if named(project) && named(name) =>
            {
                Ok(Self {
                    message: framed(instance),
                    routing,
                })
            }
            _ => {
                let form = "projects/{project}/instances/{instance}";
                Err(ConfigError::new("instance", instance, form))
            }
        }
    }
}

/// A `PingAndWarmRequest` as gRPC sends it: the name is field 1.
fn framed(instance: &str) -> Bytes {
    let mut message = Vec::new();
    encoding::string::encode(1, &instance.to_owned(), &mut message);
    // A header value, as which the name was tried, is shorter than 4 GiB.
    let length = message.len() as u32;
    [&[0], &length.to_be_bytes()[..], &message].concat().into()
}

impl Probe for PingAndWarm {
    type Body = Body;

    fn prepare(&self, _place: &Place) -> Prepared<Body> {
        let mut request = Request::new(Body::new(Full::new(self.message.clone())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(METHOD);
        *request.version_mut() = http::Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(ROUTING, self.routing.clone());
        Box::pin(ready(Ok(request)))
    }
}
