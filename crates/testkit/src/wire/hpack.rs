//! Header blocks (RFC 7541): a whole decoder, and an encoder that uses neither table nor Huffman code.

use super::hpack_tables::{CODE_LENGTHS, STATIC_TABLE};
use bytes::{BufMut, Bytes, BytesMut};
use std::{collections::VecDeque, sync::LazyLock};

/// The dynamic table size that holds while we announce no other.
const MAX_TABLE: usize = 4096;

/// What RFC 7541 counts for an entry besides its text.
const ENTRY_COST: usize = 32;

/// The end-of-string symbol; it must not occur inside a string.
const END_OF_STRING: u16 = 256;

/// A header field: name and value.
pub(crate) type Field = (Bytes, Bytes);

/// The header block broke the rules; the connection's table is lost with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadBlock;

/// Decodes the header blocks of one connection, in order.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: VecDeque<Field>,
    size: usize,
    limit: usize,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            limit: MAX_TABLE,
        }
    }

    /// The fields of one complete block.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, BadBlock> {
        let mut input = Input(block);
        let mut fields = Vec::new();
        while let Some(&first) = input.0.first() {
            if first & 0x80 != 0 {
                let index = input.number(7)?;
                fields.push(self.entry(index)?);
            } else if first & 0x40 != 0 {
                let field = self.literal(&mut input, 6)?;
                self.remember(field.clone());
                fields.push(field);
            } else if first & 0x20 != 0 {
                let limit = input.number(5)?;
                if limit > MAX_TABLE {
                    return Err(BadBlock);
                }
                self.limit = limit;
                self.evict(0);
            } else {
                fields.push(self.literal(&mut input, 4)?);
            }
        }
        Ok(fields)
    }

    fn literal(&self, input: &mut Input<'_>, prefix: u32) -> Result<Field, BadBlock> {
        let name = match input.number(prefix)? {
            0 => input.string()?,
            index => self.entry(index)?.0,
        };
        Ok((name, input.string()?))
    }

    fn entry(&self, index: usize) -> Result<Field, BadBlock> {
        let index = index.checked_sub(1).ok_or(BadBlock)?;
        match STATIC_TABLE.get(index) {
            Some((name, value)) => Ok((
                Bytes::from_static(name.as_bytes()),
                Bytes::from_static(value.as_bytes()),
            )),
            None => self
                .table
                .get(index - STATIC_TABLE.len())
                .cloned()
                .ok_or(BadBlock),
        }
    }

    fn remember(&mut self, field: Field) {
        let cost = field.0.len() + field.1.len() + ENTRY_COST;
        self.evict(cost);
        if cost <= self.limit {
            self.size += cost;
            self.table.push_front(field);
        }
    }

    fn evict(&mut self, coming: usize) {
        while self.size + coming > self.limit {
            let Some((name, value)) = self.table.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + ENTRY_COST;
        }
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, BadBlock> {
        let (first, rest) = self.0.split_first().ok_or(BadBlock)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self, prefix: u32) -> Result<usize, BadBlock> {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        // Four more bytes hold any number that a block can mean; more is an attempt to overflow.
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            value += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadBlock)
    }

    fn string(&mut self) -> Result<Bytes, BadBlock> {
        let huffman = self.0.first().ok_or(BadBlock)? & 0x80 != 0;
        let length = self.number(7)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(BadBlock)?;
        self.0 = rest;
        if huffman {
            unpack(text)
        } else {
            Ok(Bytes::copy_from_slice(text))
        }
    }
}

/// The canonical code: for each length the first code and where its symbols start in `symbols`.
struct Code {
    symbols: Vec<u16>,
    first: [u32; 31],
    start: [usize; 31],
    count: [usize; 31],
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut code = Code {
        symbols: Vec::with_capacity(257),
        first: [0; 31],
        start: [0; 31],
        count: [0; 31],
    };
    let mut next = 0;
    for length in 1..=30_u8 {
        next <<= 1;
        let at = usize::from(length);
        code.first[at] = next;
        code.start[at] = code.symbols.len();
        code.symbols.extend(
            (0..=END_OF_STRING).filter(|symbol| CODE_LENGTHS[usize::from(*symbol)] == length),
        );
        code.count[at] = code.symbols.len() - code.start[at];
        next += code.count[at] as u32;
    }
    code
});

fn unpack(packed: &[u8]) -> Result<Bytes, BadBlock> {
    let code = &*CODE;
    let mut out = BytesMut::with_capacity(packed.len() * 2);
    let (mut bits, mut length) = (0_u32, 0_usize);
    for byte in packed {
        for shift in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> shift & 1);
            length += 1;
            if length > 30 {
                return Err(BadBlock);
            }
            // Below the first code of this length the bits are the start of a longer code.
            let Some(offset) = bits.checked_sub(code.first[length]) else {
                continue;
            };
            if (offset as usize) < code.count[length] {
                let symbol = code.symbols[code.start[length] + offset as usize];
                out.put_u8(u8::try_from(symbol).map_err(|_| BadBlock)?);
                (bits, length) = (0, 0);
            }
        }
    }
    // What is left over must be padding: fewer than eight bits, all ones.
    if length < 8 && bits == (1 << length) - 1 {
        Ok(out.freeze())
    } else {
        Err(BadBlock)
    }
}

/// A block of literal fields that a decoder need not remember.
pub(crate) fn encode<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Bytes {
    let mut out = BytesMut::new();
    for (name, value) in fields {
        out.put_u8(0);
        for text in [name, value] {
            put_length(&mut out, text.len());
            out.put_slice(text);
        }
    }
    out.freeze()
}

fn put_length(out: &mut BytesMut, length: usize) {
    if length < 127 {
        out.put_u8(length as u8);
        return;
    }
    out.put_u8(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: &[Field]) -> Vec<(String, String)> {
        let owned = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        fields
            .iter()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_examples_of_rfc_7541_c4_decode() {
        let mut decoder = Decoder::new();
        let first = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let base = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ];
        assert_eq!(text(&decoder.decode(first).unwrap()), pairs(&base));
        let second = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
        let mut expected = base.to_vec();
        expected.push(("cache-control", "no-cache"));
        assert_eq!(text(&decoder.decode(second).unwrap()), pairs(&expected));
    }

    #[test]
    fn what_encode_writes_decode_reads() {
        let long = "v".repeat(70_000);
        let fields = [("a", "b"), ("x-long", long.as_str()), ("empty", "")];
        let block = encode(
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        assert_eq!(
            text(&Decoder::new().decode(&block).unwrap()),
            pairs(&fields)
        );
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            let block: Vec<u8> = std::iter::repeat_with(|| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .take(24)
            .collect();
            let _ = Decoder::new().decode(&block);
        }
    }

    #[test]
    fn wrong_indices_lengths_and_padding_are_refused() {
        for block in [
            &b"\x80"[..],
            b"\xff\xff\xff\xff\xff\xff",
            b"\x00\x05ab",
            b"\x3f\xe2\x1f",
            b"\x00\x81\x00\x00",
        ] {
            assert_eq!(Decoder::new().decode(block), Err(BadBlock), "{block:x?}");
        }
    }
}
