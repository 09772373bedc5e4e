//! Reading a reply that is kept until its trailers come.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, Response, response::Parts};
use http_body::Body as HttpBody;
use steadfast_classify::{Exchange, details};
use steadfast_core::{BoxError, End, Outcome};

use crate::{Progress, RetryBody, failure::Failure, frames::Frames};

/// A reply whose body is being read.
#[derive(Debug)]
pub(crate) struct Reading<B> {
    parts: Parts,
    // None once it ended: the stream is given up at once.
    body: Option<B>,
    frames: Frames,
    trailers: Option<HeaderMap>,
    exchange: Exchange,
}

/// How the reading ended.
pub(crate) enum Read {
    /// With this outcome, and the error if it was one.
    Ended(Outcome, Option<BoxError>),
    /// Over the limit.
    TooLarge,
}

impl<B> Reading<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// `exchange` has seen the head.
    pub(crate) fn new(response: Response<B>, exchange: Exchange) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            parts,
            body: Some(body),
            frames: Frames::default(),
            trailers: None,
            exchange,
        }
    }

    /// Cancel safe: what was read is kept.
    pub(crate) fn poll(
        &mut self,
        limit: usize,
        progress: Option<&Progress>,
        cx: &mut Context<'_>,
    ) -> Poll<Read> {
        loop {
            let Some(body) = &mut self.body else {
                return Poll::Ready(Read::Ended(Outcome::Other, None));
            };
            // Pending: the transport's body holds the waker.
            let frame = match ready!(Pin::new(body).poll_frame(cx)) {
                None => return Poll::Ready(self.end(&End::Eos, None)),
                Some(Err(error)) => {
                    let error = error.into();
                    let outcome = self.exchange.end(&End::Failed(&*error));
                    self.body = None;
                    return Poll::Ready(Read::Ended(outcome, Some(error)));
                }
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(data) => {
                    self.exchange.data(&data);
                    if let Some(progress) = progress {
                        progress.data(&data);
                    }
                    self.frames.push(data);
                    if self.frames.bytes() > limit {
                        return Poll::Ready(Read::TooLarge);
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(self.end(&End::Eos, Some(trailers)));
                    }
                }
            }
        }
    }

    fn end(&mut self, end: &End<'_>, trailers: Option<HeaderMap>) -> Read {
        self.body = None;
        self.trailers = trailers;
        let outcome = match &mut self.trailers {
            Some(trailers) => {
                details::clean(trailers);
                self.exchange.end(&End::Trailers(trailers))
            }
            None => self.exchange.end(end),
        };
        Read::Ended(outcome, None)
    }

    /// The reply for the caller: what was read, and what there is still to come.
    pub(crate) fn into_response(self) -> Response<RetryBody<B>> {
        let body = RetryBody::kept(self.frames, self.trailers, self.body);
        Response::from_parts(self.parts, body)
    }

    /// The failure that the reading ended with.
    pub(crate) fn into_failure(self, outcome: Outcome, error: Option<BoxError>) -> Failure<B> {
        match (error, outcome) {
            (Some(error), _) => Failure::error(outcome, error),
            (None, Outcome::Status(_)) => {
                let pushback = self.trailers.as_ref().and_then(details::pushback);
                Failure::status(outcome, pushback, self.into_response())
            }
            (None, _) => Failure::unfinished(outcome),
        }
    }
}
