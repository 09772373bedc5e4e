//! Which rows a request asks for, and what is left of them.

use bytes::Bytes;

/// `google.bigtable.v2.RowSet`. No keys and no ranges are the whole table.
///
/// The messages are this crate's own, since those of the published crate come in four forms that exclude each
/// other, and a library can't choose for its user.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RowSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) row_keys: Vec<Bytes>,
    #[prost(message, repeated, tag = "2")]
    pub(super) row_ranges: Vec<RowRange>,
}

/// `google.bigtable.v2.RowRange`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RowRange {
    #[prost(oneof = "Start", tags = "1, 2")]
    start: Option<Start>,
    #[prost(oneof = "End", tags = "3, 4")]
    end: Option<End>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Start {
    #[prost(bytes = "bytes", tag = "1")]
    Closed(Bytes),
    #[prost(bytes = "bytes", tag = "2")]
    Open(Bytes),
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum End {
    #[prost(bytes = "bytes", tag = "3")]
    Open(Bytes),
    #[prost(bytes = "bytes", tag = "4")]
    Closed(Bytes),
}

impl RowSet {
    /// What is left when all up to this key was delivered. None if nothing is.
    pub(super) fn beyond(&self, last: &Bytes, reversed: bool) -> Option<Self> {
        let mut left = self.clone();
        if left == Self::default() {
            left.row_ranges.push(RowRange::default());
        }
        left.row_keys.retain(|key| match reversed {
            true => key < last,
            false => key > last,
        });
        for range in &mut left.row_ranges {
            match reversed {
                true => range.end_before(last),
                false => range.start_after(last),
            }
        }
        left.row_ranges.retain(|range| !range.is_empty());
        (left != Self::default()).then_some(left)
    }
}

impl RowRange {
    fn start_after(&mut self, last: &Bytes) {
        let begins_later = match &self.start {
            Some(Start::Closed(start)) => start > last,
            Some(Start::Open(start)) => start >= last,
            None => false,
        };
        if !begins_later {
            self.start = Some(Start::Open(last.clone()));
        }
    }

    fn end_before(&mut self, last: &Bytes) {
        let ends_sooner = match self.bounded_end() {
            Some(End::Closed(end)) => end < last,
            Some(End::Open(end)) => end <= last,
            None => false,
        };
        if !ends_sooner {
            self.end = Some(End::Open(last.clone()));
        }
    }

    /// An empty end is none: BigTable takes it for the end of the table.
    fn bounded_end(&self) -> Option<&End> {
        self.end.as_ref().filter(|end| {
            let (End::Open(key) | End::Closed(key)) = end;
            !key.is_empty()
        })
    }

    /// Whether no key lies in it.
    fn is_empty(&self) -> bool {
        // The smallest key in it, as far as the start tells.
        let least = match &self.start {
            Some(Start::Closed(key)) => key.clone(),
            Some(Start::Open(key)) => [key, &[0][..]].concat().into(),
            None => Bytes::new(),
        };
        match self.bounded_end() {
            Some(End::Open(end)) => least >= *end,
            Some(End::Closed(end)) => least > *end,
            None => false,
        }
    }
}
