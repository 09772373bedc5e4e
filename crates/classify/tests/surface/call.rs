//! One call, as a layer sees it and as a generated client shows it.

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, response::Parts, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use steadfast_classify::{Exchange, call_error, deepest_cause};
use steadfast_core::{BoxError, End, Observe, Observed, Outcome, now};
use tokio::time::timeout;
use tonic::{body::Body, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceExt};

use super::{HANG, PATIENCE, chain, row::Row};

/// A future on the heap.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A channel on which a row's failure is about to happen.
pub(crate) struct Opened {
    /// The channel, or the error of an eager connect.
    pub(crate) channel: Result<Channel, tonic::transport::Error>,
    /// What has to happen while the call is under way.
    pub(crate) meanwhile: Option<Boxed<()>>,
    /// What has to live as long as the call.
    pub(crate) keep: Box<dyn Any + Send>,
}

/// What a layer saw of a call.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    /// What the classifier says.
    pub(crate) outcome: Outcome,
    /// What came: `200, 10 B, END`.
    pub(crate) line: String,
    /// The deepest cause of the error, if there was one.
    pub(crate) cause: String,
}

#[derive(Debug, Default)]
struct Log {
    early: Option<Outcome>,
    head: Option<String>,
    bytes: usize,
    sight: Option<Sight>,
}

impl Log {
    fn line(&self, end: &str) -> String {
        match &self.head {
            Some(head) => format!("{head}, {} B, {end}", self.bytes),
            None => end.to_owned(),
        }
    }
}

struct Watch {
    exchange: Exchange,
    log: Arc<Mutex<Log>>,
}

fn field(headers: &HeaderMap) -> Option<&str> {
    headers.get("grpc-status")?.to_str().ok()
}

impl Observe for Watch {
    fn head(&mut self, head: &Parts) {
        let mut log = self.log.lock().unwrap();
        log.early = self.exchange.head(head);
        let status = head.status.as_u16();
        log.head = Some(match field(&head.headers) {
            Some(code) => format!("{status} grpc-status {code}"),
            None => status.to_string(),
        });
    }

    fn data(&mut self, data: &Bytes) {
        self.exchange.data(data);
        self.log.lock().unwrap().bytes += data.len();
    }

    fn end(self, end: End<'_>) {
        let mut log = self.log.lock().unwrap();
        let mut cause = String::new();
        let text = match &end {
            End::Eos => "END".to_owned(),
            End::Trailers(trailers) => match field(trailers) {
                Some(code) => format!("trailers {code}"),
                None => "trailers".to_owned(),
            },
            End::Failed(error) => {
                cause = deepest_cause(*error);
                chain::written(*error)
            }
            End::Dropped => "PENDING".to_owned(),
        };
        log.sight = Some(Sight {
            outcome: self.exchange.end(&end),
            line: log.line(&text),
            cause,
        });
    }
}

/// The path that all calls here have.
pub(crate) const PATH: &str = "/test.Test/Get";

/// Calls as a layer does, and reads the body to its end. A row that hangs is dropped when all that it
/// brings has come and it was watched for a while.
///
/// # Panics
/// If the call hangs and shouldn't.
pub(crate) async fn observed(row: &Row) -> Sight {
    let opened = (row.open)().await;
    let Opened {
        channel,
        meanwhile,
        keep,
    } = opened;
    let mut channel = match channel {
        Ok(channel) => channel,
        Err(error) => {
            return Sight {
                outcome: call_error(&error),
                line: chain::written(&error),
                cause: deepest_cause(&error),
            };
        }
    };
    let mut request = http::Request::post(PATH)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(limit) = row.grpc_timeout {
        request = request.header("grpc-timeout", format!("{}m", limit.as_millis()));
    }
    let message = || Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\0")));
    let body = row.body.map_or_else(message, |make| make());
    let request = request.body(body).unwrap();
    let log: Arc<Mutex<Log>> = Arc::default();
    let watch = Watch {
        exchange: Exchange::new(),
        log: Arc::clone(&log),
    };
    let kept = (!row.lets_go).then(|| channel.clone());
    // An error of readiness is one of the call.
    let call = async move { channel.ready().await?.call(request).await };
    let mut work = Box::pin(async move {
        let _kept = kept;
        if let Ok(response) = Observed::new(call, watch).await {
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    });
    let meanwhile = meanwhile.map(tokio::spawn);
    let hangs_now = || row.lists(&log.lock().unwrap().line("PENDING")).is_some();
    let begun = now();
    while timeout(PATIENCE, &mut work).await.is_err() && !hangs_now() {
        let line = log.lock().unwrap().line("PENDING");
        assert!(now() - begun < HANG, "{} hangs: {line}", row.id);
    }
    drop(work);
    if let Some(task) = meanwhile {
        task.abort();
    }
    drop(keep);
    let (early, sight) = {
        let log = log.lock().unwrap();
        (log.early, log.sight.clone().expect("an exchange ends"))
    };
    assert!(
        early.is_none_or(|early| early == sight.outcome),
        "told at the head: {early:?}, {sight:?}"
    );
    sight
}

#[derive(Clone, PartialEq, prost::Message)]
struct Reply {
    #[prost(string, tag = "1")]
    payload: String,
}

/// What a generated client shows: `unary OK`, `stream Unknown transport error`.
pub(crate) async fn generated(row: &Row, streaming: bool, bound: Duration) -> String {
    let opened = (row.open)().await;
    let Opened {
        channel,
        meanwhile,
        keep,
    } = opened;
    let mut request = tonic::Request::new(Reply::default());
    if let Some(limit) = row.grpc_timeout {
        request.set_timeout(limit);
    }
    let meanwhile = meanwhile.map(tokio::spawn);
    let lets_go = row.lets_go;
    let call = tokio::spawn(async move {
        let mut grpc = Grpc::new(channel.map_err(status)?);
        grpc.ready().await.map_err(status)?;
        let path = PathAndQuery::from_static(PATH);
        let codec = ProstCodec::<Reply, Reply>::default();
        if streaming {
            let mut stream = grpc
                .server_streaming(request, path, codec)
                .await?
                .into_inner();
            let _kept = (!lets_go).then_some(grpc);
            while stream.message().await?.is_some() {}
        } else {
            grpc.unary(request, path, codec).await?;
        }
        Ok::<_, tonic::Status>(())
    });
    let stop = call.abort_handle();
    let shown = match timeout(bound, call).await {
        Ok(Ok(Ok(()))) => "OK".to_owned(),
        Ok(Ok(Err(status))) => format!("{:?} {}", status.code(), status.message()),
        Ok(Err(_panicked)) => "PANIC".to_owned(),
        Err(_) => "PENDING".to_owned(),
    };
    stop.abort();
    if let Some(task) = meanwhile {
        task.abort();
    }
    drop(keep);
    let method = if streaming { "stream" } else { "unary" };
    format!("{method} {}", shown.trim_end())
}

fn status(error: impl Into<BoxError>) -> tonic::Status {
    tonic::Status::from_error(error.into())
}
