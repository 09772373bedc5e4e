//! Turns a `RowSet` into disjoint, ascending spans of keys, so that a row named twice is read once and in key order.
//!
//! Every bound becomes "from this key on" or "below this key": a closed end at `k` is the same as "below `k` and a zero byte", because no key lies
//! between the two.

use std::ops::Bound;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{RowRange, RowSet, row_range};
use tonic::Status;

/// A span of row keys: from `start` on, below `end`; no end means to the last row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Span {
    /// The span as bounds for a `BTreeMap`.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let end = self
            .end
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(&self.start), end)
    }

    /// Whether no key can be in it. A `BTreeMap` panics on such bounds, so they are never handed to one.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The first key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The spans a row set asks for. No row set, or one without keys and ranges, is the whole table.
pub(crate) fn spans(rows: Option<&RowSet>) -> Result<Vec<Span>, Status> {
    let Some(rows) = rows.filter(|rows| !(rows.row_keys.is_empty() && rows.row_ranges.is_empty()))
    else {
        return Ok(vec![Span {
            start: Vec::new(),
            end: None,
        }]);
    };
    let mut spans = Vec::with_capacity(rows.row_keys.len() + rows.row_ranges.len());
    for key in &rows.row_keys {
        if key.is_empty() {
            return Err(Status::invalid_argument(
                "row_keys holds an empty key; row keys have at least one byte",
            ));
        }
        spans.push(Span {
            start: key.clone(),
            end: Some(successor(key)),
        });
    }
    for (index, range) in rows.row_ranges.iter().enumerate() {
        spans.push(span(index, range)?);
    }
    Ok(merged(spans))
}

fn span(index: usize, range: &RowRange) -> Result<Span, Status> {
    use row_range::{EndKey, StartKey};

    // An empty key in a range means that it has no bound on that side, open or closed.
    let start = match &range.start_key {
        Some(StartKey::StartKeyOpen(key)) if !key.is_empty() => successor(key),
        Some(StartKey::StartKeyClosed(key)) => key.clone(),
        Some(StartKey::StartKeyOpen(_)) | None => Vec::new(),
    };
    let end = match &range.end_key {
        Some(EndKey::EndKeyOpen(key)) if !key.is_empty() => Some(key.clone()),
        Some(EndKey::EndKeyClosed(key)) if !key.is_empty() => Some(successor(key)),
        _ => None,
    };
    if end.as_ref().is_some_and(|end| *end < start) {
        return Err(Status::invalid_argument(format!(
            "row_ranges[{index}] ends before it starts; swap its start and end key (reversed reads name their ranges in ascending order too)"
        )));
    }
    Ok(Span { start, end })
}

fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by(|a, b| a.start.cmp(&b.start));
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| *end >= span.start) => {
                // None is "to the last row", which is above every key; Option's own order has it below.
                last.end = match (last.end.take(), span.end) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    _ => None,
                };
            }
            _ => merged.push(span),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> RowSet {
        RowSet {
            row_keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
            row_ranges: Vec::new(),
        }
    }

    fn range(start: Option<row_range::StartKey>, end: Option<row_range::EndKey>) -> RowSet {
        RowSet {
            row_keys: Vec::new(),
            row_ranges: vec![RowRange {
                start_key: start,
                end_key: end,
            }],
        }
    }

    #[test]
    fn nothing_named_is_the_whole_table() {
        let all = vec![Span {
            start: Vec::new(),
            end: None,
        }];
        assert_eq!(spans(None).unwrap(), all);
        assert_eq!(spans(Some(&RowSet::default())).unwrap(), all);
    }

    #[test]
    fn a_key_named_twice_and_inside_a_range_is_read_once() {
        use row_range::{EndKey, StartKey};
        let mut set = keys(&["c", "a", "a"]);
        set.row_ranges = range(
            Some(StartKey::StartKeyClosed(b"b".to_vec())),
            Some(EndKey::EndKeyClosed(b"c".to_vec())),
        )
        .row_ranges;
        let spans = spans(Some(&set)).unwrap();
        assert_eq!(
            spans,
            vec![
                Span {
                    start: b"a".to_vec(),
                    end: Some(b"a\0".to_vec())
                },
                Span {
                    start: b"b".to_vec(),
                    end: Some(b"c\0".to_vec())
                }
            ]
        );
    }

    #[test]
    fn an_unbounded_range_swallows_what_follows() {
        use row_range::StartKey;
        let mut set = range(Some(StartKey::StartKeyOpen(b"b".to_vec())), None);
        set.row_keys = keys(&["z"]).row_keys;
        assert_eq!(
            spans(Some(&set)).unwrap(),
            vec![Span {
                start: b"b\0".to_vec(),
                end: None
            }]
        );
    }

    #[test]
    fn an_inverted_range_and_an_empty_key_are_refused() {
        use row_range::{EndKey, StartKey};
        let inverted = range(
            Some(StartKey::StartKeyClosed(b"b".to_vec())),
            Some(EndKey::EndKeyOpen(b"a".to_vec())),
        );
        assert_eq!(
            spans(Some(&inverted)).unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
        assert_eq!(
            spans(Some(&keys(&[""]))).unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
    }
}
