//! The body of a reply: kept whole, passed on as it comes, or guarded until its first message.

use std::{
    fmt, mem,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use steadfast_classify::{Tried, Unfinished, details, last_error};
use steadfast_core::{BoxError, End, Outcome};

use crate::{
    Progress,
    failure::{Again, Failure, Next},
    frames::Frames,
    guard::Guard,
};

/// The body of a reply that came through a [`Retry`](crate::Retry).
///
/// A stream whose method was named [`Kind::Streaming`](crate::Kind) is repeated in here until its first
/// message was handed up. Dropping the body gives up what is open, whatever it does.
pub struct RetryBody<B> {
    frames: Frames,
    rest: Rest<B>,
    guard: Option<Box<dyn Guard<B>>>,
    again: Option<Box<Repeat<B>>>,
    tried: Tried,
    progress: Option<Progress>,
}

/// What comes after the frames that are kept.
enum Rest<B> {
    /// More of them, from below.
    Body(B),
    Trailers(HeaderMap),
    /// Nothing. Also once it failed: the stream below is given up at once.
    Nothing,
}

/// Another attempt of a stream whose head the caller has already.
struct Repeat<B> {
    again: Again<B>,
    /// The compression that the caller was told of.
    told: Option<HeaderValue>,
}

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl<B> RetryBody<B> {
    const fn new(frames: Frames, rest: Rest<B>) -> Self {
        Self {
            frames,
            rest,
            guard: None,
            again: None,
            tried: Tried::new(),
            progress: None,
        }
    }

    /// A reply that was read: what is kept, then its trailers, or the body that goes on.
    pub(crate) fn kept(frames: Frames, trailers: Option<HeaderMap>, inner: Option<B>) -> Self {
        let trailers = || trailers.map(Rest::Trailers);
        let rest = inner.map(Rest::Body).or_else(trailers);
        Self::new(frames, rest.unwrap_or(Rest::Nothing))
    }

    pub(crate) fn through(inner: B) -> Self {
        Self::new(Frames::default(), Rest::Body(inner))
    }

    /// For the text of an error that is still to come.
    pub(crate) fn told(mut self, tried: Tried, progress: Option<Progress>) -> Self {
        (self.tried, self.progress) = (tried, progress);
        self
    }

    pub(crate) fn guarded(mut self, guard: Box<dyn Guard<B>>, progress: Option<Progress>) -> Self {
        (self.guard, self.progress) = (Some(guard), progress);
        self
    }

    fn fail(&mut self, error: BoxError) -> BoxError {
        (self.rest, self.guard) = (Rest::Nothing, None);
        last_error(error, &mut self.tried)
    }

    /// Goes on with another attempt's reply. The caller has the first one's head: what this head says of the
    /// end is said by trailers instead.
    fn go_on(
        &mut self,
        response: Response<Self>,
        told: Option<HeaderValue>,
    ) -> Result<(), BoxError> {
        let (parts, body) = response.into_parts();
        *self = body;
        if parts.headers.contains_key("grpc-status") {
            *self = Self::new(Frames::default(), Rest::Trailers(parts.headers));
            return Ok(());
        }
        if parts.status != StatusCode::OK {
            let outcome = Outcome::Http(parts.status.as_u16());
            return Err(self.fail(Box::new(Unfinished(outcome))));
        }
        let now = encoding(&parts.headers);
        if now.is_some() && now != told {
            let text = "the repeated stream is compressed in another way than the caller was told";
            return Err(self.fail(text.into()));
        }
        if let Some(guard) = &mut self.guard {
            *guard.encoding() = told;
        }
        Ok(())
    }

    fn take_trailers(&mut self) -> Option<HeaderMap> {
        match mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Trailers(trailers) => Some(trailers),
            _ => None,
        }
    }

    fn pass_data(&self, data: Bytes) -> Polled {
        if let Some(progress) = &self.progress {
            progress.data(&data);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl<B> RetryBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn pass(&mut self, polled: Poll<Option<Result<Frame<Bytes>, B::Error>>>) -> Polled {
        // Pending: the inner body holds the waker.
        let frame = match ready!(polled) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(self.fail(error.into())))),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => self.pass_data(data),
            Err(frame) => Poll::Ready(Some(Ok(cleaned(frame)))),
        }
    }

    /// Before the first message: goes on with another attempt, or breaks with what is for the caller.
    fn watch(
        &mut self,
        mut guard: Box<dyn Guard<B>>,
        polled: Poll<Option<Result<Frame<Bytes>, B::Error>>>,
        cx: &mut Context<'_>,
    ) -> ControlFlow<Polled> {
        let failure = match polled {
            // Pending: the inner body holds the waker, and the guard's timer, if it has one.
            Poll::Pending => match guard.poll_late(cx) {
                Poll::Ready(failure) => failure,
                Poll::Pending => {
                    self.guard = Some(guard);
                    return ControlFlow::Break(Poll::Pending);
                }
            },
            Poll::Ready(None) => {
                let outcome = guard.exchange().end(&End::Eos);
                if outcome.is_ok() {
                    return ControlFlow::Break(Poll::Ready(None));
                }
                Failure::unfinished(outcome)
            }
            Poll::Ready(Some(Err(error))) => {
                let error = error.into();
                let outcome = guard.exchange().end(&End::Failed(&*error));
                Failure::error(outcome, error)
            }
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    if data.is_empty() {
                        self.guard = Some(guard);
                    } else {
                        self.tried = guard.into_tried();
                    }
                    return ControlFlow::Break(self.pass_data(data));
                }
                Err(frame) => {
                    let Ok(trailers) = cleaned(frame).into_trailers() else {
                        return ControlFlow::Continue(());
                    };
                    let outcome = guard.exchange().end(&End::Trailers(&trailers));
                    Failure::trailers(outcome, trailers)
                }
            },
        };
        self.rest = Rest::Nothing;
        let told = guard.encoding().take();
        match guard.failed(failure) {
            Next::Again(again) => self.again = Some(Box::new(Repeat { again, told })),
            Next::Up(Ok(response)) => *self = response.into_body(),
            Next::Up(Err(error)) => return ControlFlow::Break(Poll::Ready(Some(Err(error)))),
        }
        ControlFlow::Continue(())
    }
}

/// The compression that a head tells of, if there is one.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get("grpc-encoding")?;
    (value.as_bytes() != b"identity").then(|| value.clone())
}

fn cleaned(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            details::clean(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

impl<B> HttpBody for RetryBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        loop {
            if let Some(data) = this.frames.pop() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(repeat) = &mut this.again {
                // Pending: the other attempt holds the waker.
                let result = ready!(repeat.again.as_mut().poll(cx));
                let told = repeat.told.take();
                this.again = None;
                if let Err(error) = result.and_then(|response| this.go_on(response, told)) {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            let Rest::Body(inner) = &mut this.rest else {
                return Poll::Ready(this.take_trailers().map(|t| Ok(Frame::trailers(t))));
            };
            let polled = Pin::new(inner).poll_frame(cx);
            let Some(guard) = this.guard.take() else {
                return this.pass(polled);
            };
            if let ControlFlow::Break(polled) = this.watch(guard, polled, cx) {
                return polled;
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let open = self.again.is_some() || self.guard.is_some();
        let ended = match &self.rest {
            Rest::Body(inner) => inner.is_end_stream(),
            Rest::Trailers(_) => false,
            Rest::Nothing => true,
        };
        !open && self.frames.is_empty() && ended
    }

    fn size_hint(&self) -> SizeHint {
        // Of a stream that may be another one's yet, nothing is known.
        if self.guard.is_some() || self.again.is_some() {
            return SizeHint::new();
        }
        let kept = self.frames.bytes() as u64;
        let rest = match &self.rest {
            Rest::Body(inner) => inner.size_hint(),
            _ => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(kept));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint
    }
}

impl<B> fmt::Debug for RetryBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBody")
            .field("kept", &self.frames.bytes())
            .field("tried", &self.tried)
            .finish_non_exhaustive()
    }
}
