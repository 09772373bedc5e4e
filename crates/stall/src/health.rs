//! The probe for any gRPC server.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use steadfast_core::{BoxError, Place, Prepared, Probe};
use tonic::body::Body;

const PATH: &str = "/grpc.health.v1.Health/Check";

/// Asks `grpc.health.v1.Health/Check`, the health check that gRPC servers have in common.
///
/// Any status is an answer, so that a server without that service, or one that isn't allowed to tell,
/// answers too: with UNIMPLEMENTED or PERMISSION_DENIED. What the health check says isn't looked at: a
/// server that isn't well but answers isn't silent.
///
/// It sends no credentials. Put a layer that adds them below, or bring a [`Probe`] of your own.
#[derive(Clone, Debug)]
pub struct HealthProbe {
    message: Bytes,
}

impl HealthProbe {
    /// Asks for the server as a whole.
    #[must_use]
    pub fn new() -> Self {
        Self::for_service("")
    }

    /// Asks for one service, by its full name such as `google.bigtable.v2.Bigtable`.
    #[must_use]
    pub fn for_service(name: &str) -> Self {
        let mut request = BytesMut::new();
        if !name.is_empty() {
            // HealthCheckRequest has one field, number 1, a string.
            request.put_u8(1 << 3 | 2);
            put_varint(&mut request, name.len() as u64);
            request.put_slice(name.as_bytes());
        }
        let mut message = BytesMut::with_capacity(5 + request.len());
        message.put_u8(0);
        message.put_u32(u32::try_from(request.len()).unwrap_or(u32::MAX));
        message.put(request);
        Self {
            message: message.freeze(),
        }
    }
}

impl Default for HealthProbe {
    fn default() -> Self {
        Self::new()
    }
}

fn put_varint(buffer: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        buffer.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.put_u8(value as u8);
}

impl Probe for HealthProbe {
    type Body = Body;

    fn prepare(&self, _place: &Place) -> Prepared<Body> {
        let mut request = Request::new(Body::new(Full::new(self.message.clone())));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static(PATH);
        *request.version_mut() = http::Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let grpc = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, grpc);
        Box::pin(std::future::ready(Ok::<_, BoxError>(request)))
    }
}
