//! Stacks of layers in every order: what is put between them, and how one is tried.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::HeaderName};
use steadfast::{BoxError, TonicBodyLayer};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use tonic::body::Body;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_http::set_header::SetRequestHeaderLayer;

use crate::soon;

/// Twenty calls of a generated client, at once and one after another.
///
/// # Panics
/// When one isn't answered as an echo server answers.
pub async fn serves<S, B>(what: &str, service: S)
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..20_u8 {
        let mut client = EchoClient::new(service.clone());
        calls.spawn(async move {
            let request = EchoRequest {
                payload: vec![n],
                ..EchoRequest::default()
            };
            let reply = client.unary(request).await.expect("an answer");
            assert_eq!(reply.into_inner().payload, [n]);
        });
    }
    while let Some(done) = soon(what, calls.join_next()).await {
        done.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Somebody else's layer.
#[must_use]
pub fn header() -> SetRequestHeaderLayer<HeaderValue> {
    let name = HeaderName::from_static("x-test");
    SetRequestHeaderLayer::overriding(name, HeaderValue::from_static("1"))
}

/// A channel's service without its type.
pub type Boxed = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// Boxes a channel's service: what is behind it is no longer known by its type.
#[derive(Clone, Copy, Debug)]
pub struct BoxLayer;

impl<S> Layer<S> for BoxLayer
where
    S: Service<Request<Body>, Error: Into<BoxError>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    TonicBodyLayer: Layer<
            S,
            Service: Service<
                Request<Body>,
                Response = Response<Body>,
                Error = S::Error,
                Future: Send + 'static,
            > + Clone
                         + Send
                         + Sync
                         + 'static,
        >,
{
    type Service = Boxed;

    fn layer(&self, inner: S) -> Boxed {
        BoxCloneSyncService::new(TonicBodyLayer.layer(inner).map_err(Into::into))
    }
}
