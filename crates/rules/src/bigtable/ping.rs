//! PingAndWarm, as a probe.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use http_body_util::Full;
use steadfast_core::{BoxError, Place, Prepared, Probe};
use tonic::body::Body;

use crate::wire::put_bytes;

const PATH: &str = "/google.bigtable.v2.Bigtable/PingAndWarm";

/// Google's routing header: which instance a call is for.
const ROUTING: HeaderName = HeaderName::from_static("x-goog-request-params");

/// Asks `google.bigtable.v2.Bigtable/PingAndWarm` about one instance: a probe for silent channels and a warm-up
/// for new ones.
///
/// It sends no credentials. Put a layer that adds them below, or wrap it in a [`Probe`] of your own.
///
/// ```
/// use steadfast_rules::bigtable::PingAndWarm;
///
/// let probe = PingAndWarm::new("projects/p/instances/i").with_app_profile("reports");
/// ```
#[derive(Clone, Debug)]
pub struct PingAndWarm {
    instance: String,
    /// The gRPC message with its prefix.
    message: Bytes,
    routing: HeaderValue,
}

impl PingAndWarm {
    /// Asks about the instance with this full name, `projects/{project}/instances/{instance}`, and its default
    /// app profile. A name of another form is the server's to refuse; that is an answer too.
    #[must_use]
    pub fn new(instance: impl Into<String>) -> Self {
        Self::of(instance.into(), "")
    }

    /// The same through this app profile, by its id.
    #[must_use]
    pub fn with_app_profile(self, id: &str) -> Self {
        Self::of(self.instance, id)
    }

    /// An empty app profile is the default one.
    fn of(instance: String, app_profile: &str) -> Self {
        let mut message = Vec::new();
        let mut routing = format!("name={}", escaped(&instance));
        put_bytes(&mut message, 1, instance.as_bytes());
        if !app_profile.is_empty() {
            put_bytes(&mut message, 2, app_profile.as_bytes());
            routing += &format!("&app_profile_id={}", escaped(app_profile));
        }
        let mut framed = BytesMut::with_capacity(5 + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put_slice(&message);
        Self {
            instance,
            message: framed.freeze(),
            routing: HeaderValue::try_from(routing).expect("escaped text fits into a header"),
        }
    }
}

/// Percent-encoded: all but what never needs it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

impl Probe for PingAndWarm {
    type Body = Body;

    fn prepare(&self, _place: &Place) -> Prepared<Body> {
        let mut request = Request::new(Body::new(Full::new(self.message.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(PATH);
        *request.version_mut() = Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let grpc = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, grpc);
        headers.insert(ROUTING, self.routing.clone());
        Box::pin(std::future::ready(Ok::<_, BoxError>(request)))
    }
}
