//! Frames of data that are kept: of a request to be sent again, of a reply until its trailers come.

use std::collections::VecDeque;

use bytes::Bytes;

/// Frames in order. One costs nothing to keep: it is what a unary message is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    first: Option<Bytes>,
    // Made when a second one comes: most calls have one.
    #[expect(
        clippy::box_collection,
        reason = "an empty list that is dropped costs every call more"
    )]
    more: Option<Box<VecDeque<Bytes>>>,
    bytes: usize,
}

impl Frames {
    /// The bytes in all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.as_ref().is_none_or(|more| more.is_empty())
    }

    pub(crate) fn push(&mut self, frame: Bytes) {
        self.bytes = self.bytes.saturating_add(frame.len());
        if self.is_empty() {
            self.first = Some(frame);
        } else {
            self.more.get_or_insert_default().push_back(frame);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let next = || self.more.as_mut()?.pop_front();
        let frame = self.first.take().or_else(next)?;
        self.bytes -= frame.len();
        Some(frame)
    }
}
