//! Probes that are a unary call: any one, and the health check for any gRPC server.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::Full;
use steadfast_core::{BoxError, Place, Prepared, Probe};
use tonic::body::Body;

/// Asks a unary method with a message that is known beforehand: a cheap one of the server's own.
///
/// ```
/// use steadfast_stall::UnaryProbe;
///
/// // An empty message is a good request for many methods.
/// let probe = UnaryProbe::new("/shop.Orders/Ping", b"");
/// ```
#[derive(Clone, Debug)]
pub struct UnaryProbe {
    path: &'static str,
    message: Bytes,
    headers: HeaderMap,
}

impl UnaryProbe {
    /// Asks the method with this path, `/package.Service/Method`, with this message, encoded and without its
    /// gRPC prefix.
    #[must_use]
    pub fn new(path: &'static str, message: &[u8]) -> Self {
        let mut framed = BytesMut::with_capacity(5 + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put_slice(message);
        let grpc = HeaderValue::from_static("application/grpc");
        let headers = [
            (header::TE, HeaderValue::from_static("trailers")),
            (header::CONTENT_TYPE, grpc),
        ];
        Self {
            path,
            message: framed.freeze(),
            headers: headers.into_iter().collect(),
        }
    }

    /// The same with one more header, such as one that routes the call.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

impl Probe for UnaryProbe {
    type Body = Body;

    fn prepare(&self, _place: &Place) -> Prepared<Body> {
        let mut request = Request::new(Body::new(Full::new(self.message.clone())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(self.path);
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.headers.clone();
        Box::pin(std::future::ready(Ok::<_, BoxError>(request)))
    }
}

/// Asks `grpc.health.v1.Health/Check`, the health check that gRPC servers have in common.
///
/// Any status is an answer, so that a server without that service, or one that isn't allowed to tell,
/// answers too: with UNIMPLEMENTED or PERMISSION_DENIED. What the health check says isn't looked at: a
/// server that isn't well but answers isn't silent.
///
/// It sends no credentials. Put a layer that adds them below, or bring a [`Probe`] of your own.
#[derive(Clone, Debug)]
pub struct HealthProbe(UnaryProbe);

impl HealthProbe {
    /// Asks for the server as a whole.
    #[must_use]
    pub fn new() -> Self {
        Self::for_service("")
    }

    /// Asks for one service, by its full name such as `google.bigtable.v2.Bigtable`.
    #[must_use]
    pub fn for_service(name: &str) -> Self {
        let mut request = Vec::new();
        if !name.is_empty() {
            // HealthCheckRequest has one field, number 1, a string.
            request.push(1 << 3 | 2);
            put_varint(&mut request, name.len() as u64);
            request.extend(name.as_bytes());
        }
        Self(UnaryProbe::new("/grpc.health.v1.Health/Check", &request))
    }
}

impl Default for HealthProbe {
    fn default() -> Self {
        Self::new()
    }
}

fn put_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

impl Probe for HealthProbe {
    type Body = Body;

    fn prepare(&self, place: &Place) -> Prepared<Body> {
        self.0.prepare(place)
    }
}
