//! A deadline for every call: the caller's own, or the default of its method.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use steadfast_classify::{call_error, deadline, local_error};
use steadfast_core::{Attempt, BoxError, ConfigError, LocalKind, Methods, Outcome, now};
use tokio::time::{Instant, Sleep};
use tower_layer::Layer;
use tower_service::Service;

use crate::{DeadlineBody, deadline_body::poll_due};

/// The resolution of tokio's timers: a transport's own time-out may be so much ahead of ours.
const INSTANT: Duration = Duration::from_millis(1);

/// The deadlines of callers that set none.
///
/// Write `..DeadlineConfig::default()` behind what you set: fields are added with new features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlineConfig {
    /// The deadline of calls whose method has none of its own. Default none: such a call may take for ever,
    /// as in gRPC. From 1 ms to a year.
    pub default: Option<Duration>,
}

/// Ends calls at their deadline, exactly: while they wait for a channel, between attempts, in their reply.
///
/// It goes above all layers that wait or try again. A call's deadline is what its `grpc-timeout` says (a
/// generated client's `Request::set_timeout`); a call without one gets the default of its method, if there is
/// one, and it is sent on as `grpc-timeout`. What is over ends with DEADLINE_EXCEEDED, marked as
/// made locally, and says in which phase the call was. Clones are one layer.
///
/// ```
/// use std::time::Duration;
/// use steadfast_retry::{DeadlineConfig, DeadlineLayer};
///
/// let every_call = DeadlineConfig { default: Some(Duration::from_secs(30)) };
/// let layer = DeadlineLayer::new(every_call)?.method("/shop.Orders/List", Duration::from_secs(5))?;
/// assert!(layer.method("List", Duration::from_secs(5)).is_err(), "no path of a method");
/// # Ok::<(), steadfast_retry::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeadlineLayer {
    defaults: Arc<Defaults>,
}

/// What callers get that set no deadline.
#[derive(Clone, Debug, Default)]
struct Defaults {
    all: Option<Time>,
    methods: Methods<Time>,
}

/// A deadline, and the header that says so.
#[derive(Clone, Debug)]
struct Time {
    whole: Duration,
    header: HeaderValue,
}

impl Time {
    fn new(field: &'static str, whole: Duration) -> Result<Self, ConfigError> {
        let year = Duration::from_secs(31_557_600);
        ConfigError::check(field, whole, INSTANT..=year)?;
        let header = deadline::value(whole);
        Ok(Self { whole, header })
    }
}

impl DeadlineLayer {
    /// A layer with these settings, and no method with a deadline of its own.
    ///
    /// # Errors
    /// A default that is out of its range.
    pub fn new(config: DeadlineConfig) -> Result<Self, ConfigError> {
        let default = |whole| Time::new("deadline.default", whole);
        let defaults = Defaults {
            all: config.default.map(default).transpose()?,
            methods: Methods::default(),
        };
        Ok(Self {
            defaults: Arc::new(defaults),
        })
    }

    /// The deadline of calls of a method that set none, from 1 ms to a year. The method's name is its
    /// path, `/package.Service/Method`.
    ///
    /// # Errors
    /// A name of another form, or a deadline out of its range.
    pub fn method(mut self, method: &str, deadline: Duration) -> Result<Self, ConfigError> {
        let field = "deadline.method";
        let time = Time::new(field, deadline)?;
        let methods = &mut Arc::make_mut(&mut self.defaults).methods;
        methods.set(field, method, time)?;
        Ok(self)
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadlined<S>;

    fn layer(&self, inner: S) -> Deadlined<S> {
        Deadlined {
            inner,
            defaults: Arc::clone(&self.defaults),
        }
    }
}

/// The service of [`DeadlineLayer`]. Its readiness is the inner service's own: what waits there waits
/// without a deadline.
#[derive(Clone, Debug)]
pub struct Deadlined<S> {
    inner: S,
    defaults: Arc<Defaults>,
}

impl<S, Q, B> Service<Request<Q>> for Deadlined<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<DeadlineBody<B>>;
    type Error = BoxError;
    type Future = DeadlineFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Pending: the inner service holds the waker.
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let due = self.defaults.due(&mut request);
        DeadlineFuture {
            inner: Some(self.inner.call(request)),
            due,
            timer: None,
        }
    }
}

impl Defaults {
    /// When a call must be over. A default is written into the request.
    fn due<Q>(&self, request: &mut Request<Q>) -> Option<Due> {
        let whole = if request.headers().contains_key(deadline::GRPC_TIMEOUT) {
            // What can't be read is no deadline, here as on the server.
            deadline::read(request.headers())?
        } else {
            let own = self.methods.get(request.uri().path());
            let time = own.or(self.all.as_ref())?;
            let header = time.header.clone();
            request.headers_mut().insert(deadline::GRPC_TIMEOUT, header);
            time.whole
        };
        Some(Due {
            at: now().checked_add(whole)?,
            whole,
            attempt: Attempt::of(request.extensions_mut()),
        })
    }
}

/// When a call must be over, and who tells how far it came.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) at: Instant,
    whole: Duration,
    attempt: Attempt,
}

impl Due {
    /// The error of a call that is over. The phase is told as far as the layers below let it be known.
    pub(crate) fn error(&self, in_body: bool, cause: Option<BoxError>) -> BoxError {
        let on = self
            .attempt
            .channel()
            .map(|channel| format!(" of channel {channel}"));
        let on = on.unwrap_or_default();
        let phase = match self.attempt.outcome() {
            _ if in_body => format!("it was reading the reply{on} (phase: body)"),
            Some(outcome) => format!("it was between attempts, after: {outcome} (phase: retry)"),
            None if on.is_empty() => "it waited for a channel (phase: channel)".to_owned(),
            None => format!("it waited for the reply{on} (phase: headers)"),
        };
        let message = format!("the deadline of {:?} passed while {phase}", self.whole);
        local_error(LocalKind::Deadline, message, cause)
    }

    /// Whether an error of the transport is this deadline, which it knows as well.
    fn is_meant_by(&self, error: &BoxError) -> bool {
        call_error(&**error) == Outcome::Timeout && self.at <= now() + INSTANT
    }
}

pin_project! {
    /// The future of one call through a [`Deadlined`]. Dropping it gives up the call.
    #[derive(Debug)]
    pub struct DeadlineFuture<F> {
        // None once it resolved: a future that its caller keeps holds nothing.
        #[pin]
        inner: Option<F>,
        due: Option<Due>,
        #[pin]
        timer: Option<Sleep>,
    }
}

/// Whether the head tells that the call failed.
fn has_failed<B>(response: &Response<B>) -> bool {
    let status = response.headers().get("grpc-status");
    status.is_some_and(|status| status != "0")
}

impl<F, B, E> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<DeadlineBody<B>>, BoxError>;

    /// # Panics
    /// When it is polled after it resolved.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let inner = this.inner.as_mut().as_pin_mut();
        let result = match inner.expect("polled after it resolved").poll(cx) {
            Poll::Ready(result) => result.map_err(Into::into),
            Poll::Pending => {
                // Pending: the inner future and the timer hold the waker.
                ready!(poll_due(this.due, this.timer.as_mut(), cx));
                let due = this.due.as_ref();
                Err(due.map_or_else(|| "no deadline".into(), |due| due.error(false, None)))
            }
        };
        this.inner.set(None);
        this.timer.set(None);
        let due = this.due.take();
        Poll::Ready(match (result, due) {
            // What a server that knows the deadline too says of it, to a caller that looks late.
            (Ok(response), Some(due)) if due.at <= now() && has_failed(&response) => {
                Err(due.error(false, None))
            }
            (Ok(response), due) => Ok(response.map(|inner| DeadlineBody::new(inner, due))),
            (Err(error), Some(due)) if due.is_meant_by(&error) => {
                Err(due.error(false, Some(error)))
            }
            (Err(error), _) => Err(error),
        })
    }
}
