//! The body of a reply that must be over at a time.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use steadfast_core::{BoxError, now};
use tokio::time::{Sleep, sleep_until};

use crate::deadline::Due;

pin_project! {
    /// The body of a reply that must be over at a time. After it nothing more is read, even if it is
    /// there. It holds a timer in place, so it isn't `Unpin`.
    #[derive(Debug)]
    pub struct DeadlineBody<B> {
        // None once it was ended here: the stream below is given up at once.
        #[pin]
        inner: Option<B>,
        due: Option<Due>,
        #[pin]
        timer: Option<Sleep>,
    }
}

impl<B> DeadlineBody<B> {
    pub(crate) fn new(inner: B, due: Option<Due>) -> Self {
        Self {
            inner: Some(inner),
            due,
            timer: None,
        }
    }
}

impl<B> HttpBody for DeadlineBody<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        // The clock is asked first: a server that always has more to say must not outlast the deadline.
        let passed = this.due.as_ref().is_some_and(|due| due.at <= now());
        if !passed {
            match inner.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(end) => {
                    *this.due = None;
                    this.timer.set(None);
                    if matches!(end, Some(Err(_))) {
                        this.inner.set(None);
                    }
                    return Poll::Ready(end.map(|frame| frame.map_err(Into::into)));
                }
                // Pending: the inner body and the timer hold the waker.
                Poll::Pending => ready!(poll_due(this.due, this.timer.as_mut(), cx)),
            }
        }
        this.inner.set(None);
        this.timer.set(None);
        let due = this.due.take();
        Poll::Ready(due.map(|due| Err(due.error(true, None))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.as_ref();
        inner.map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

/// Ready when the deadline has passed. The timer is set at the first wait: many calls never do.
pub(crate) fn poll_due(
    due: &Option<Due>,
    mut timer: Pin<&mut Option<Sleep>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    // Pending: there is no deadline, and nothing to be waited for here.
    let Some(due) = due else { return Poll::Pending };
    if timer.is_none() {
        timer.set(Some(sleep_until(due.at)));
    }
    match timer.as_pin_mut() {
        // Pending: the timer holds the waker.
        Some(timer) => timer.poll(cx),
        None => Poll::Pending,
    }
}
