//! A rule at work on one call. It is the user's code: a panic in it ends its own stream only.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use steadfast_core::BoxError;
use tonic::body::Body;

use crate::{
    Conversation, MessageError, MessageReader, Progress, Rest, messages::framed, upload::Upload,
};

/// What the rule keeps of one call, and what is sent for it.
pub(crate) enum Talk {
    /// Of a server-streaming method.
    Stream(Box<dyn Progress>),
    /// Of a bidirectional one.
    Conversation(Arc<dyn Conversation>, Upload),
}

impl Talk {
    /// A frame of the response came.
    pub(crate) fn frame(
        &mut self,
        reader: &mut MessageReader,
        frame: Bytes,
    ) -> Result<bool, MessageError> {
        let mut seen = false;
        let pushed = guarded(|| match self {
            Self::Stream(progress) => reader.push(frame, &mut |message| {
                seen = true;
                progress.message(message)
            }),
            Self::Conversation(conversation, _) => reader.push(frame, &mut |message| {
                seen = true;
                conversation.received(message)
            }),
        });
        pushed
            .unwrap_or_else(|panic| Err(MessageError::Rule(panic)))
            .map(|()| seen)
    }

    /// Ready when nothing more is sent on the attempt that failed: the upload is quiet. Says why, if the
    /// upload is what failed.
    pub(crate) fn poll_quiet(&mut self, cx: &Context<'_>) -> Poll<Option<BoxError>> {
        match self {
            Self::Stream(_) => Poll::Ready(None),
            // Pending: the upload holds the waker.
            Self::Conversation(_, upload) => upload.poll_quiet(cx),
        }
    }

    /// The stream ended with OK.
    pub(crate) fn end(&mut self) -> Result<(), BoxError> {
        match self {
            Self::Stream(progress) => guarded(|| progress.end()).unwrap_or_else(Err),
            Self::Conversation(..) => Ok(()),
        }
    }

    /// The conversation, if it is one.
    pub(crate) fn conversation(&self) -> Option<Arc<dyn Conversation>> {
        match self {
            Self::Stream(_) => None,
            Self::Conversation(conversation, _) => Some(Arc::clone(conversation)),
        }
    }

    /// How the stream goes on.
    pub(crate) fn rest(&mut self) -> Result<Rest, BoxError> {
        let rest = guarded(|| match self {
            Self::Stream(progress) => progress.rest(),
            Self::Conversation(conversation, _) => conversation.rest(),
        });
        match rest.unwrap_or_else(Err)? {
            Rest::Send { requests, .. } if requests.len() != 1 && self.is_stream() => Err(format!(
                "it gave {} requests for a server-streaming method, which takes one",
                requests.len()
            )
            .into()),
            rest => Ok(rest),
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// The body of the next attempt's request, that begins with these messages.
    pub(crate) fn body(&mut self, requests: &[Bytes]) -> Body {
        let framed = requests.iter().map(|message| framed(message));
        match self {
            Self::Stream(_) => Body::new(crate::request::Once::new(framed.collect())),
            Self::Conversation(_, upload) => upload.body(framed.collect()),
        }
    }
}

/// Runs the rule's code. What it leaves behind after a panic isn't used again: the stream ends.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|panic| format!("it panicked: {}", said(&*panic)).into())
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("without a text")
}
