//! What the clients do: callers that call again as soon as they have their answer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use clap::ValueEnum;
use http::{Request, Response};
use serde::Serialize;
use steadfast::BoxError;
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use tokio::task::JoinSet;
use tonic::{Status, body::Body};
use tower::Service;

use crate::error::{Error, Result};

/// The kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Call {
    /// One message each way.
    Unary,
    /// One message to the server, and a stream of messages back.
    Stream,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
        })
    }
}

/// What one caller does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) call: Call,
    /// Messages of a stream.
    pub(super) frames: u32,
    /// Bytes of each message, both ways.
    pub(super) bytes: usize,
    pub(super) callers: usize,
    /// Calls of each caller; it calls until it is stopped if there are none.
    pub(super) calls: Option<u32>,
}

/// How far the callers are, and whether they are to stop.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) calls: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// Callers at work; they end with it.
pub(super) struct Load {
    pub(super) progress: Arc<Progress>,
    callers: JoinSet<Result<(), Status>>,
}

impl Load {
    /// Waits until all have done their calls.
    pub(super) async fn done(mut self) -> Result<()> {
        while let Some(ended) = self.callers.join_next().await {
            let failed =
                |error: BoxError| Error::because("a call to the echo server failed", error);
            let answered = ended.map_err(|error| failed(error.into()))?;
            answered.map_err(|status| failed(status.into()))?;
        }
        Ok(())
    }

    /// Tells the callers to end with their present call, and waits for it.
    pub(super) async fn end(self) -> Result<()> {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.done().await
    }
}

/// A connected client, whatever it calls through.
pub(super) trait Client {
    /// Sets callers to work, each with a clone of the client.
    fn begin(&self, work: Work) -> Load;
}

/// A client over any service.
pub(super) struct Over<S>(pub(super) S);

impl<S, B> Client for Over<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    fn begin(&self, work: Work) -> Load {
        let progress = Arc::new(Progress::default());
        let mut callers = JoinSet::new();
        for _ in 0..work.callers {
            let mut client = EchoClient::new(self.0.clone());
            let progress = Arc::clone(&progress);
            callers.spawn(async move {
                let mut left = work.calls;
                while left != Some(0) && !progress.stop.load(Ordering::Relaxed) {
                    call(&mut client, work).await?;
                    progress.calls.fetch_add(1, Ordering::Relaxed);
                    left = left.map(|left| left - 1);
                }
                Ok(())
            });
        }
        Load { progress, callers }
    }
}

async fn call<S, B>(client: &mut EchoClient<S>, work: Work) -> Result<(), Status>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    let request = EchoRequest {
        payload: vec![7; work.bytes],
        count: work.frames,
        ..EchoRequest::default()
    };
    if work.call == Call::Unary {
        client.unary(request).await?;
        return Ok(());
    }
    let mut replies = client.server_stream(request).await?.into_inner();
    let mut messages = 0;
    while replies.message().await?.is_some() {
        messages += 1;
    }
    if messages == work.frames {
        Ok(())
    } else {
        Err(Status::data_loss(format!("{messages} messages came")))
    }
}
