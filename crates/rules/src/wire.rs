//! Protobuf fields, read where they lie: nothing is copied, and fields that a rule doesn't know stay as they
//! are in what it writes.

use std::{error::Error, fmt};

use prost::{
    DecodeError,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

/// Bytes that can't be what they should be.
#[derive(Debug)]
pub(crate) struct Unreadable {
    what: &'static str,
    source: Option<DecodeError>,
}

impl Unreadable {
    fn new(what: &'static str) -> Self {
        Self { what, source: None }
    }
}

impl From<DecodeError> for Unreadable {
    fn from(source: DecodeError) -> Self {
        Self {
            what: "not a protobuf message",
            source: Some(source),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl Error for Unreadable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A number of fixed width or a group: no field that a rule knows.
    Other,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    value: Value<'a>,
    /// The whole field, with its key.
    pub(crate) raw: &'a [u8],
}

impl<'a> Field<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Unreadable> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Other => Err(Unreadable::new("a field isn't of its type")),
        }
    }

    pub(crate) fn varint(self) -> Result<u64, Unreadable> {
        match self.value {
            Value::Varint(number) => Ok(number),
            Value::Bytes(_) | Value::Other => Err(Unreadable::new("a field isn't of its type")),
        }
    }
}

/// The fields of a message in their order. Ends after an error.
pub(crate) struct Fields<'a> {
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { left: message }
    }

    fn read(&mut self) -> Result<Field<'a>, Unreadable> {
        let begin = self.left;
        let (number, wire_type) = decode_key(&mut self.left)?;
        let value = match wire_type {
            WireType::Varint => Value::Varint(decode_varint(&mut self.left)?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.left)?;
                let split = usize::try_from(length).ok();
                let split = split.and_then(|length| self.left.split_at_checked(length));
                let (bytes, left) = split.ok_or_else(|| Unreadable::new("a field is cut off"))?;
                self.left = left;
                Value::Bytes(bytes)
            }
            other => {
                skip_field(other, number, &mut self.left, DecodeContext::default())?;
                Value::Other
            }
        };
        let raw = &begin[..begin.len() - self.left.len()];
        Ok(Field { number, value, raw })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.left = &[];
        }
        Some(field)
    }
}

/// The message without the fields of these numbers.
#[cfg(any(feature = "bigtable", feature = "spanner"))]
pub(crate) fn without(message: &[u8], numbers: &[u32]) -> Result<Vec<u8>, Unreadable> {
    let mut kept = Vec::with_capacity(message.len());
    for field in Fields::of(message) {
        let field = field?;
        if !numbers.contains(&field.number) {
            kept.extend_from_slice(field.raw);
        }
    }
    Ok(kept)
}

/// Appends a field of bytes, a string or a message.
#[cfg(any(feature = "bigtable", feature = "spanner"))]
pub(crate) fn put_bytes(message: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, message);
    prost::encoding::encode_varint(bytes.len() as u64, message);
    message.extend_from_slice(bytes);
}

/// Appends a field of an integer.
#[cfg(feature = "bigtable")]
pub(crate) fn put_varint(message: &mut Vec<u8>, number: u32, value: u64) {
    prost::encoding::encode_varint(u64::from(number) << 3, message);
    prost::encoding::encode_varint(value, message);
}
