//! The body of a stream that can go on: what its attempts bring, one after another.

use std::{
    future::Future,
    mem,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, response::Parts};
use http_body::{Body as HttpBody, Frame};
use steadfast_classify::{Unfinished, details, last_error};
use steadfast_core::{BoxError, End, Outcome};
use tonic::body::Body;
use tower_service::Service;

use crate::{
    attempt::{Begin, Incoming, Opened, open},
    body::{Polled, Streaming},
    call::Call,
    failure::{Came, Failure},
};

/// How many frames of a message that isn't whole are read in one poll, so that a server that sends small
/// ones without end doesn't keep the task.
const FRAMES: usize = 64;

/// A stream from its first head to its end.
pub(crate) struct Stream<S, B> {
    phase: Phase<S, B>,
}

enum Phase<S, B> {
    Reading(Reading<S, B>),
    /// Another attempt is on its way.
    Opening(Pin<Box<dyn Future<Output = Opened<S, B>> + Send>>),
    /// What was read goes up, then this.
    Ending(Option<Box<Call<S>>>, Last),
}

struct Reading<S, B> {
    call: Box<Call<S>>,
    incoming: Incoming<B>,
}

enum Last {
    Nothing,
    Trailers(HeaderMap),
    Error(BoxError),
}

impl<S, B> Stream<S, B> {
    pub(crate) fn new(call: Box<Call<S>>, incoming: Incoming<B>) -> Self {
        Self {
            phase: Phase::Reading(Reading { call, incoming }),
        }
    }
}

/// What polling the inner body came to.
enum Step<B> {
    /// Something to hand up may be there.
    More,
    Ended(Last),
    Failed(Failure<B>),
}

impl<S, B> Reading<S, B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step<B>> {
        let frame = match Pin::new(&mut self.incoming.body).poll_frame(cx) {
            // Pending: the inner body holds the waker, and the gap's timer.
            Poll::Pending => {
                let ended = self.incoming.gap.poll(cx);
                return ended.map(|(outcome, error)| Step::Failed(Failure::error(outcome, error)));
            }
            Poll::Ready(frame) => frame,
        };
        self.incoming.gap.stop();
        Poll::Ready(match frame {
            None => {
                let outcome = self.incoming.exchange.end(&End::Eos);
                if outcome.is_ok() {
                    Step::Ended(self.ended(Last::Nothing))
                } else {
                    Step::Failed(Failure::unfinished(outcome))
                }
            }
            Some(Err(error)) => {
                let error = error.into();
                let outcome = self.incoming.exchange.end(&End::Failed(&*error));
                Step::Failed(Failure::error(outcome, error))
            }
            Some(Ok(frame)) => self.frame(frame),
        })
    }

    fn ended(&mut self, last: Last) -> Last {
        self.call.end().map_or_else(Last::Error, |()| last)
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> Step<B> {
        let frame = match frame.into_data() {
            Ok(data) => {
                self.incoming.exchange.data(&data);
                return match self.call.frame(data) {
                    Ok(seen) => {
                        if seen {
                            self.incoming.gap.limit = self.call.gap_limit();
                        }
                        Step::More
                    }
                    Err(error) => Step::Ended(Last::Error(error)),
                };
            }
            Err(frame) => frame,
        };
        let Ok(mut trailers) = frame.into_trailers() else {
            return Step::More;
        };
        details::clean(&mut trailers);
        let outcome = self.incoming.exchange.end(&End::Trailers(&trailers));
        if outcome.is_ok() {
            Step::Ended(self.ended(Last::Trailers(trailers)))
        } else {
            Step::Failed(Failure::trailers(outcome, trailers))
        }
    }
}

impl<S, B> Stream<S, B>
where
    S: Service<Request, Response = http::Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    /// One step. Breaks with what goes up.
    fn step(&mut self, cx: &mut Context<'_>) -> ControlFlow<Polled> {
        match &mut self.phase {
            Phase::Reading(reading) => {
                if let Some(data) = reading.call.pop() {
                    return ControlFlow::Break(Poll::Ready(Some(Ok(Frame::data(data)))));
                }
                match reading.poll(cx) {
                    Poll::Pending => return ControlFlow::Break(Poll::Pending),
                    Poll::Ready(Step::More) => {}
                    Poll::Ready(Step::Ended(last)) => self.end(last),
                    Poll::Ready(Step::Failed(failure)) => self.reopen(failure),
                }
            }
            Phase::Opening(opening) => {
                // Pending: the attempt, or the wait before it, holds the waker.
                let Poll::Ready(opened) = opening.as_mut().poll(cx) else {
                    return ControlFlow::Break(Poll::Pending);
                };
                self.opened(opened);
            }
            Phase::Ending(call, last) => {
                if let Some(data) = call.as_mut().and_then(|call| call.pop()) {
                    return ControlFlow::Break(Poll::Ready(Some(Ok(Frame::data(data)))));
                }
                *call = None;
                let last = mem::replace(last, Last::Nothing);
                return ControlFlow::Break(Poll::Ready(last.into_frame()));
            }
        }
        ControlFlow::Continue(())
    }

    /// The transport's stream is given up at once; what was read of it goes up.
    fn end(&mut self, last: Last) {
        let ending = Phase::Ending(None, last);
        if let Phase::Reading(reading) = mem::replace(&mut self.phase, ending)
            && let Phase::Ending(call, _) = &mut self.phase
        {
            *call = Some(reading.call);
        }
    }

    /// An attempt failed. What it left is dropped before the next one is sent.
    fn reopen(&mut self, failure: Failure<B>) {
        let nothing = Phase::Ending(None, Last::Nothing);
        if let Phase::Reading(reading) = mem::replace(&mut self.phase, nothing) {
            let Reading { call, incoming } = reading;
            drop(incoming);
            self.phase = Phase::Opening(Box::pin(open(call, Begin::Failed(failure))));
        }
    }

    fn opened(&mut self, opened: Opened<S, B>) {
        self.phase = match opened {
            Opened::Stream(call, parts, incoming) if is_stream(&parts) => {
                Phase::Reading(Reading { call, incoming })
            }
            // OK in the head: there is nothing more.
            Opened::Stream(_, parts, _) => {
                Phase::Ending(None, Last::Trailers(status_of(parts.headers)))
            }
            Opened::Complete => Phase::Ending(None, Last::Trailers(ok())),
            Opened::Up(came) => Phase::Ending(None, came.into()),
        };
    }
}

type Request = http::Request<Body>;

impl<S, B> Streaming for Stream<S, B>
where
    S: Service<Request, Response = http::Response<B>> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled {
        for _ in 0..FRAMES {
            if let ControlFlow::Break(polled) = self.step(cx) {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.phase, Phase::Ending(None, Last::Nothing))
    }
}

impl Last {
    fn into_frame(self) -> Option<Result<Frame<Bytes>, BoxError>> {
        match self {
            Self::Nothing => None,
            Self::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            Self::Error(error) => Some(Err(error)),
        }
    }
}

/// The end of a stream whose head the caller has already.
impl<B> From<Came<B>> for Last {
    fn from(came: Came<B>) -> Self {
        match came {
            Came::Error(error) => Self::Error(error),
            Came::Trailers(trailers) => Self::Trailers(trailers),
            Came::Head(response) => {
                let (parts, _) = response.into_parts();
                if parts.headers.contains_key("grpc-status") {
                    return Self::Trailers(status_of(parts.headers));
                }
                let outcome = Outcome::Http(parts.status.as_u16());
                let error: BoxError = Box::new(Unfinished(outcome));
                Self::Error(last_error(error, &mut steadfast_classify::Tried::new()))
            }
        }
    }
}

/// Whether the status is to come behind the messages.
fn is_stream(parts: &Parts) -> bool {
    parts.status == StatusCode::OK && !parts.headers.contains_key("grpc-status")
}

/// A head that tells the status, as trailers.
fn status_of(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(http::header::CONTENT_TYPE);
    headers
}

/// The trailers of a stream of which nothing was left to be sent.
pub(crate) fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    trailers
}
