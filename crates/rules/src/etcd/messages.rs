//! The messages of etcd's `Watch`, as far as the rule needs them: all else in them stays as it is.

use bytes::Bytes;
use prost::encoding;
use steadfast_core::BoxError;

use crate::wire::{Field, Fields};

/// A `WatchRequest`.
#[derive(Debug, PartialEq)]
pub(super) enum Asked<'a> {
    /// Its `WatchCreateRequest`.
    Create(&'a [u8]),
    /// The id of the watch.
    Cancel(i64),
    Progress,
    /// One that this version doesn't know.
    Other,
}

impl<'a> Asked<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, BoxError> {
        let mut asked = Self::Other;
        // Of a oneof the last one holds.
        for field in Fields::of(message) {
            let field = field?;
            asked = match field.number {
                1 => Self::Create(field.bytes()?),
                2 => Self::Cancel(number(field.bytes()?, 1)?),
                3 => Self::Progress,
                _ => continue,
            };
        }
        Ok(asked)
    }
}

/// The number in a field, 0 if it isn't there.
pub(super) fn number(message: &[u8], field: u32) -> Result<i64, BoxError> {
    let mut found = 0;
    for it in Fields::of(message) {
        let it = it?;
        if it.number == field {
            found = it.varint()? as i64;
        }
    }
    Ok(found)
}

/// A `WatchCreateRequest`: where it begins, and its id, if the caller chose one.
pub(super) const START_REVISION: u32 = 3;
pub(super) const CREATE_ID: u32 = 7;

/// The `WatchRequest` of this `WatchCreateRequest`, from this revision and with this id, those that are 0 as they were.
pub(super) fn create(request: &[u8], start: i64, id: i64) -> Result<Bytes, BoxError> {
    let set = [(START_REVISION, start), (CREATE_ID, id)];
    let request = with_numbers(
        request,
        &set.map(|(field, value)| (field, (value != 0).then_some(value))),
    )?;
    Ok(wrapped(1, &request))
}

/// The `WatchRequest` that cancels this watch.
pub(super) fn cancel(id: i64) -> Bytes {
    let mut request = Vec::new();
    encoding::int64::encode(1, &id, &mut request);
    wrapped(2, &request)
}

/// The `WatchRequest` that asks for progress.
pub(super) fn progress() -> Bytes {
    wrapped(3, &[])
}

fn wrapped(field: u32, message: &[u8]) -> Bytes {
    let mut request = Vec::new();
    encoding::bytes::encode(field, &message.to_vec(), &mut request);
    request.into()
}

/// The message with these numbers in place of its own, where there is one.
fn with_numbers(message: &[u8], set: &[(u32, Option<i64>)]) -> Result<Vec<u8>, BoxError> {
    let mut made = Vec::with_capacity(message.len() + 20);
    let is_set = |number| {
        set.iter()
            .any(|(field, value)| *field == number && value.is_some())
    };
    for field in Fields::of(message) {
        let field = field?;
        if !is_set(field.number) {
            made.extend_from_slice(field.raw);
        }
    }
    for (field, value) in set {
        if let Some(value) = value {
            encoding::int64::encode(*field, value, &mut made);
        }
    }
    Ok(made)
}

/// A `WatchResponse`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Told {
    /// The store's revision.
    pub(super) revision: i64,
    pub(super) id: i64,
    pub(super) created: bool,
    pub(super) canceled: bool,
    /// Whether more events of it follow in another message.
    pub(super) fragment: bool,
    /// The revisions of its events, in order.
    pub(super) events: Vec<i64>,
}

const ID: u32 = 2;
const CREATED: u32 = 3;
const EVENTS: u32 = 11;

impl Told {
    pub(super) fn read(message: &[u8]) -> Result<Self, BoxError> {
        let mut told = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => told.revision = number(field.bytes()?, 3)?,
                ID => told.id = field.varint()? as i64,
                CREATED => told.created = field.varint()? != 0,
                4 => told.canceled = field.varint()? != 0,
                7 => told.fragment = field.varint()? != 0,
                EVENTS => told.events.push(event_revision(&field)?),
                _ => {}
            }
        }
        Ok(told)
    }
}

/// `Event.kv.mod_revision`.
fn event_revision(event: &Field<'_>) -> Result<i64, BoxError> {
    for field in Fields::of(event.bytes()?) {
        let field = field?;
        if field.number == 2 {
            return number(field.bytes()?, 3);
        }
    }
    Err("an event without a key".into())
}

/// The response with another id, without its first events, and without the word that a watch was created, if it isn't
/// to be told again.
pub(super) fn told_again(
    message: &[u8],
    id: i64,
    without: usize,
    created: bool,
) -> Result<Bytes, BoxError> {
    let mut made = Vec::with_capacity(message.len() + 10);
    let mut events = 0;
    for field in Fields::of(message) {
        let field = field?;
        match field.number {
            ID => continue,
            CREATED if !created => continue,
            EVENTS => {
                events += 1;
                if events <= without {
                    continue;
                }
            }
            _ => {}
        }
        made.extend_from_slice(field.raw);
    }
    encoding::int64::encode(ID, &id, &mut made);
    Ok(made.into())
}

/// The response that a watch is cancelled.
pub(super) fn canceled(id: i64) -> Bytes {
    let mut made = Vec::new();
    encoding::int64::encode(ID, &id, &mut made);
    encoding::bool::encode(4, &true, &mut made);
    made.into()
}
