//! Frames of data that are kept: of a request to be sent again, of a reply until its trailers come.

use std::collections::VecDeque;

use bytes::Bytes;

/// Frames in order. One costs nothing to keep: it is what a unary message is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    first: Option<Bytes>,
    // Filled only while there is a first one.
    more: VecDeque<Bytes>,
    bytes: usize,
}

impl Frames {
    /// The bytes in all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    pub(crate) fn push(&mut self, frame: Bytes) {
        self.bytes = self.bytes.saturating_add(frame.len());
        if self.is_empty() {
            self.first = Some(frame);
        } else {
            self.more.push_back(frame);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let frame = self.first.take().or_else(|| self.more.pop_front())?;
        self.bytes -= frame.len();
        Some(frame)
    }
}
