//! The request of a server-streaming call: one message, that its rule reads.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use crate::{MessageReader, Pass, messages::PREFIX};

/// What reading a request came to.
pub(crate) enum Taken {
    /// It is one message, this, and it is sent by this body.
    Message(Vec<u8>, Body),
    /// It isn't: it is too large, or more than one message, or none. It goes through.
    Other(Body),
}

/// Reads a request to its end, or to the limit. Cancel safe: the request is given up with the call.
///
/// # Errors
/// The body's own.
pub(crate) async fn take(head: &HeaderMap, body: Body, limit: usize) -> Result<Taken, Status> {
    let mut once = Once {
        frames: VecDeque::new(),
        rest: Some(body),
    };
    let mut bytes = 0_usize;
    while let Some(frame) = std::future::poll_fn(|cx| once.poll_rest(cx)).await {
        match frame?.into_data() {
            Ok(data) => {
                bytes = bytes.saturating_add(data.len());
                once.frames.push_back(Frame::data(data));
            }
            Err(odd) => {
                once.frames.push_back(odd);
                return Ok(Taken::Other(Body::new(once)));
            }
        }
        if bytes > limit.saturating_add(PREFIX) {
            return Ok(Taken::Other(Body::new(once)));
        }
    }
    once.rest = None;
    let message = only_message(head, &once.frames, limit);
    let body = Body::new(once);
    Ok(match message {
        Some(message) => Taken::Message(message, body),
        None => Taken::Other(body),
    })
}

/// The one message in these frames.
fn only_message(
    head: &HeaderMap,
    frames: &VecDeque<Frame<Bytes>>,
    limit: usize,
) -> Option<Vec<u8>> {
    let mut reader = MessageReader::new(head, limit);
    let mut messages = Vec::new();
    for data in frames.iter().filter_map(Frame::data_ref) {
        let mut see = |message: &[u8]| {
            messages.push(message.to_vec());
            Ok(Pass::Withhold)
        };
        reader.push(data.clone(), &mut see).ok()?;
    }
    let only = messages.len() == 1 && reader.held() == 0;
    messages.pop().filter(|_| only)
}

/// A request body that was read: what was read of it, then the rest.
#[derive(Debug)]
pub(crate) struct Once {
    frames: VecDeque<Frame<Bytes>>,
    rest: Option<Body>,
}

impl Once {
    pub(crate) fn new(frames: VecDeque<Bytes>) -> Self {
        Self {
            frames: frames.into_iter().map(Frame::data).collect(),
            rest: None,
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut self.rest {
            // Pending: the caller's body holds the waker.
            Some(rest) if !rest.is_end_stream() => Pin::new(rest).poll_frame(cx),
            _ => Poll::Ready(None),
        }
    }
}

impl HttpBody for Once {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => self.poll_rest(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    /// Never exact: from an exact one hyper makes a content-length, which gRPC doesn't send.
    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}
