//! The fields of a protobuf message, without making anything of them.

use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use steadfast_core::BoxError;

/// What stands in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed numbers and groups, which no message here has.
    Other,
}

/// One field: its number, what is in it, and all of its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    pub(crate) raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// # Errors
    /// It holds no bytes.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], BoxError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.other("bytes")),
        }
    }

    /// # Errors
    /// It holds no number.
    pub(crate) fn varint(&self) -> Result<u64, BoxError> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.other("a number")),
        }
    }

    /// # Errors
    /// It holds no boolean.
    pub(crate) fn bool(&self) -> Result<bool, BoxError> {
        self.varint().map(|number| number != 0)
    }

    fn other(&self, wanted: &str) -> BoxError {
        format!("field {} isn't {wanted}", self.number).into()
    }
}

/// The fields of a message, in its order. After an error nothing follows.
pub(crate) fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, BoxError>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = next(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn next<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, BoxError> {
    let whole = *rest;
    let (number, wire_type) = decode_key(rest)?;
    let value = match wire_type {
        WireType::Varint => Value::Number(decode_varint(rest)?),
        WireType::LengthDelimited => {
            let length = decode_varint(rest)?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (bytes, after) = rest
                .split_at_checked(length)
                .ok_or_else(|| format!("field {number} is cut off"))?;
            *rest = after;
            Value::Bytes(bytes)
        }
        other => {
            skip_field(other, number, rest, Default::default())?;
            Value::Other
        }
    };
    let raw = &whole[..whole.len() - rest.len()];
    Ok(Field { number, value, raw })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_field_with_its_bytes() {
        // Field 1: 300. Field 2: "ab". Field 3: four bytes. Field 4: eight.
        let message = b"\x08\xac\x02\x12\x02ab\x1d\0\0\0\0\x21\0\0\0\0\0\0\0\0";
        let found: Vec<_> = fields(message).map(Result::unwrap).collect();
        let values: Vec<_> = found.iter().map(|it| (it.number, it.value)).collect();
        let bytes = Value::Bytes(b"ab");
        let (third, fourth) = ((3, Value::Other), (4, Value::Other));
        assert_eq!(values, [(1, Value::Number(300)), (2, bytes), third, fourth]);
        let raw: Vec<u8> = found.iter().flat_map(|it| it.raw).copied().collect();
        assert_eq!(raw, message);
        assert!(found[0].bytes().is_err() && found[1].varint().is_err());
        for cut in [1, 2, 5, 6, 9] {
            assert!(fields(&message[..cut]).any(|it| it.is_err()), "{cut}");
        }
    }

    proptest! {
        /// R8: any bytes are fields, or an error, and come to an end.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let found: Vec<_> = fields(&bytes).collect();
            prop_assert!(found.len() <= bytes.len());
            if let Ok(all) = found.into_iter().collect::<Result<Vec<_>, _>>() {
                prop_assert_eq!(all.iter().map(|it| it.raw.len()).sum::<usize>(), bytes.len());
            }
        }
    }
}
