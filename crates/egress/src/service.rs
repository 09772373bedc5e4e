//! The service of one channel: tonic's, watched for errors.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use steadfast_core::at_bottom;
use tonic::{
    body::Body,
    transport::{Channel, Error, channel::ResponseFuture as TonicFuture},
};
use tower_service::Service;

use crate::link::Link;

/// One connection, as a service: a tonic `Channel` that never dials again.
///
/// When its connection ends, its meter is condemned, and calls fail with an error that has
/// [`ChannelClosed`](steadfast_classify::ChannelClosed) among its sources: they never left. Clones share
/// the connection; it is closed when the last clone and the last open response are gone.
#[derive(Clone)]
pub struct EgressChannel {
    // A tonic Channel's clone starts un-ready by itself.
    channel: Channel,
    handle: Arc<Handle>,
}

/// Tells the connection that its last handle went.
struct Handle(Arc<Link>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.released();
    }
}

impl EgressChannel {
    pub(crate) fn new(channel: Channel, link: Arc<Link>) -> Self {
        Self {
            channel,
            handle: Arc::new(Handle(link)),
        }
    }
}

impl Service<Request<Body>> for EgressChannel {
    type Response = Response<Body>;
    type Error = Error;
    type Future = EgressFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Pending: tonic's buffer holds the waker.
        self.channel
            .poll_ready(cx)
            .map_err(|error| self.handle.0.seen(error))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        at_bottom(request.extensions_mut());
        EgressFuture {
            inner: self.channel.call(request),
            link: Arc::clone(&self.handle.0),
        }
    }
}

impl fmt::Debug for EgressChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressChannel")
            .field("link", &self.handle.0)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The response future of an [`EgressChannel`]. Dropping it cancels the request.
    #[derive(Debug)]
    pub struct EgressFuture {
        #[pin]
        inner: TonicFuture,
        link: Arc<Link>,
    }
}

impl Future for EgressFuture {
    type Output = Result<Response<Body>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Pending: tonic's future holds the waker.
        this.inner.poll(cx).map_err(|error| this.link.seen(error))
    }
}
