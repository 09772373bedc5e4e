//! What is left of a RowSet behind a key. Keys and ranges that stay are taken over as they were encoded.

use std::{cmp::Ordering, ops::Bound};

use crate::wire::{Fields, Unreadable, put_bytes, without};

/// Field numbers of RowSet.
const KEY: u32 = 1;
const RANGE: u32 = 2;
/// Field numbers of RowRange.
const START: [u32; 2] = [1, 2];
const START_OPEN: u32 = 2;
const END: [u32; 2] = [3, 4];
const END_OPEN: u32 = 3;

/// The part of a RowSet that a scan comes to after `last`. None when that is nothing.
///
/// A set without keys and ranges is the whole table, so what is left is never such a set.
pub(super) fn behind(
    rows: &[u8],
    last: &[u8],
    reversed: bool,
) -> Result<Option<Vec<u8>>, Unreadable> {
    let mut left = Vec::with_capacity(rows.len() + last.len() + 8);
    let (mut named, mut some) = (false, false);
    let ahead = if reversed {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    for field in Fields::of(rows) {
        let field = field?;
        match field.number {
            KEY => {
                named = true;
                if field.bytes()?.cmp(last) == ahead {
                    some = true;
                    left.extend_from_slice(field.raw);
                }
            }
            RANGE => {
                named = true;
                if let Some(range) = cut(field.bytes()?, last, reversed)? {
                    some = true;
                    put_bytes(&mut left, RANGE, &range);
                }
            }
            _ => left.extend_from_slice(field.raw),
        }
    }
    if !named && let Some(range) = cut(&[], last, reversed)? {
        some = true;
        put_bytes(&mut left, RANGE, &range);
    }
    Ok(some.then_some(left))
}

/// The part of a RowRange that a scan comes to after `last`. None when no key is in it.
fn cut(range: &[u8], last: &[u8], reversed: bool) -> Result<Option<Vec<u8>>, Unreadable> {
    let (mut start, mut end) = bounds(range)?;
    let (fields, bound, begun) = if reversed {
        let begun = match end {
            Bound::Unbounded => true,
            Bound::Included(end) => end >= last,
            Bound::Excluded(end) => end > last,
        };
        (END, END_OPEN, begun)
    } else {
        let begun = compare_first(start, last) != Ordering::Greater;
        (START, START_OPEN, begun)
    };
    if begun {
        *(if reversed { &mut end } else { &mut start }) = Bound::Excluded(last);
    }
    if !has_keys(start, end) {
        return Ok(None);
    }
    if !begun {
        return Ok(Some(range.to_vec()));
    }
    let mut range = without(range, &fields)?;
    put_bytes(&mut range, bound, last);
    Ok(Some(range))
}

/// A start and an end.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The bounds of a RowRange. An empty key is none, open or closed.
fn bounds(range: &[u8]) -> Result<Bounds<'_>, Unreadable> {
    let (mut start, mut end) = (Bound::Unbounded, Bound::Unbounded);
    for field in Fields::of(range) {
        let field = field?;
        match field.number {
            1 => start = Bound::Included(field.bytes()?),
            2 => start = Bound::Excluded(field.bytes()?),
            3 => end = Bound::Excluded(field.bytes()?),
            4 => end = Bound::Included(field.bytes()?),
            _ => {}
        }
    }
    for bound in [&mut start, &mut end] {
        if matches!(bound, Bound::Included([]) | Bound::Excluded([])) {
            *bound = Bound::Unbounded;
        }
    }
    Ok((start, end))
}

/// Whether a row can have a key between these.
fn has_keys(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match end {
        Bound::Unbounded => true,
        Bound::Included(end) => compare_first(start, end) != Ordering::Greater,
        Bound::Excluded(end) => compare_first(start, end) == Ordering::Less,
    }
}

/// Compares the first key that a start allows. After a key comes the same with a zero byte; the first of all
/// is a zero byte, since no row has an empty key.
fn compare_first(start: Bound<&[u8]>, key: &[u8]) -> Ordering {
    let (start, zero) = match start {
        Bound::Unbounded => (&[][..], Some(&0)),
        Bound::Included(start) => (start, None),
        Bound::Excluded(start) => (start, Some(&0)),
    };
    start.iter().chain(zero).cmp(key)
}
