//! The caller's side of a bidirectional call: one body after another is made of it, for one attempt each.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use steadfast_core::BoxError;
use tonic::{Status, body::Body};

use crate::{Conversation, MessageError, MessageReader, talk::guarded};

/// What the caller sends. The attempt's body takes it out while it reads, so that neither the caller's code
/// nor the rule's runs under the lock.
#[derive(Clone)]
pub(crate) struct Upload(Arc<Mutex<Slot>>);

struct Slot {
    /// None while it is read, and when it is over.
    source: Option<Source>,
    /// Whether it is being read just now.
    out: bool,
    /// Which attempt may read it.
    attempt: u64,
    /// Who waits until it is put back.
    waiting: Option<Waker>,
    /// Why it broke.
    failed: Option<BoxError>,
}

struct Source {
    body: Body,
    reader: MessageReader,
    conversation: Arc<dyn Conversation>,
}

impl Upload {
    pub(crate) fn new(
        head: &HeaderMap,
        body: Body,
        limit: usize,
        conversation: Arc<dyn Conversation>,
    ) -> Self {
        Self(Arc::new(Mutex::new(Slot {
            source: Some(Source {
                body,
                reader: MessageReader::new(head, limit),
                conversation,
            }),
            out: false,
            attempt: 0,
            waiting: None,
            failed: None,
        })))
    }

    /// The body of the next attempt: these messages, then the caller's further ones. The body before it ends.
    pub(crate) fn body(&self, first: VecDeque<Bytes>) -> Body {
        let mut slot = self.slot();
        slot.attempt += 1;
        Body::new(UploadBody {
            upload: self.clone(),
            attempt: slot.attempt,
            first,
        })
    }

    /// Stops the attempt's body, and is ready when it reads no more. What it read was seen by the rule, so
    /// what of it wasn't sent is forgotten here. Says why, if the upload broke.
    pub(crate) fn poll_quiet(&self, cx: &Context<'_>) -> Poll<Option<BoxError>> {
        let mut slot = self.slot();
        slot.attempt += 1;
        if slot.out {
            slot.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(source) = &mut slot.source {
            source.reader.forget();
        }
        Poll::Ready(slot.failed.take())
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the source, for this attempt.
    fn take(&self, attempt: u64, cx: &Context<'_>) -> Poll<Option<Source>> {
        let mut slot = self.slot();
        if slot.attempt != attempt {
            return Poll::Ready(None);
        }
        if slot.out {
            slot.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let source = slot.source.take();
        slot.out = source.is_some();
        Poll::Ready(source)
    }
}

/// A source that is being read. It is put back in the end, though the caller's code panics.
struct Reading<'a> {
    upload: &'a Upload,
    source: Option<Source>,
    failed: Option<BoxError>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut slot = self.upload.slot();
            slot.out = false;
            slot.source = self.source.take();
            slot.failed = self.failed.take();
            slot.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BoxError>> {
        loop {
            if let Some(data) = self.reader.pop() {
                return Poll::Ready(Ok(Some(data)));
            }
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                // Pending: the caller's body holds the waker.
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Box::new(error))),
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            // A request has no trailers in gRPC.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let Self {
                reader,
                conversation,
                ..
            } = self;
            let pushed = guarded(|| reader.push(data, &mut |message| conversation.sent(message)));
            if let Err(error) = pushed.unwrap_or_else(|panic| Err(MessageError::Rule(panic))) {
                return Poll::Ready(Err(Box::new(error)));
            }
        }
    }
}

/// The request body of one attempt.
struct UploadBody {
    upload: Upload,
    attempt: u64,
    first: VecDeque<Bytes>,
}

impl HttpBody for UploadBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(data) = self.first.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        // Pending: the slot holds the waker.
        let Some(mut source) = ready!(self.upload.take(self.attempt, cx)) else {
            return Poll::Ready(None);
        };
        let mut reading = Reading {
            upload: &self.upload,
            source: None,
            failed: None,
        };
        // Pending: the caller's body holds the waker.
        let polled = source.poll(cx);
        Poll::Ready(match polled {
            Poll::Pending => {
                reading.source = Some(source);
                return Poll::Pending;
            }
            Poll::Ready(Ok(Some(data))) => {
                reading.source = Some(source);
                Some(Ok(Frame::data(data)))
            }
            Poll::Ready(Ok(None)) => None,
            Poll::Ready(Err(error)) => {
                let status = Status::internal(error.to_string());
                reading.failed = Some(error);
                Some(Err(status))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

impl fmt::Debug for UploadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadBody")
            .field("attempt", &self.attempt)
            .field("first", &self.first.len())
            .finish_non_exhaustive()
    }
}
