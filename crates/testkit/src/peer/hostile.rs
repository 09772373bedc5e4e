//! Scripts of peers that mean harm, or look as if they did.

use super::{Accept, Answer, Script, Step};
use bytes::Bytes;
use std::time::Duration;

impl Script {
    /// Answers with one message whose payload, an `EchoReply`, has this many zero bytes.
    pub fn big(bytes: usize) -> Self {
        Self::always(Answer::message(zeros(bytes)))
    }

    /// Answers with the same message, compressed with gzip to about 1/158 of its size: a limit that is checked before unpacking
    /// lets it through. The gzip is made by hand: one deflate block with the fixed code, in which each 13 bits repeat the byte
    /// before 258 times.
    pub fn zip_bomb(bytes: usize) -> Self {
        let packed = gzip_zeros(bytes);
        let length = u32::try_from(packed.len()).unwrap_or(u32::MAX);
        let framed = [&[1], &length.to_be_bytes()[..], &packed].concat();
        Self::always(Answer::steps([
            Step::AwaitRequest,
            Step::Headers {
                status: 200,
                fields: vec![("grpc-encoding".to_owned(), "gzip".to_owned())],
                end: false,
            },
            Step::Data {
                bytes: framed.into(),
                end: false,
            },
            Step::status(0, ""),
        ]))
    }

    /// Answers well; but when a connection was idle for this long after an answer, it is forgotten, and the client's next packet
    /// is answered with a TCP reset, as cloud load balancers do after some minutes.
    /// [`Connection::forgotten`](super::Connection::forgotten) tells when.
    pub fn forgotten(idle: Duration) -> Self {
        Self::good().forget_after(idle)
    }

    /// Accepts TCP, and never answers the TLS ClientHello, nor anything else.
    pub fn tls_mute() -> Self {
        Self::good().accept(Accept::Mute)
    }
}

/// The start of a message with `bytes` bytes in field 1.
fn head(bytes: usize) -> Vec<u8> {
    let mut message = vec![0x0a];
    let mut length = bytes;
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message
}

/// A message with `bytes` zero bytes in field 1, as an `EchoReply` has it.
pub(super) fn zeros(bytes: usize) -> Bytes {
    let mut message = head(bytes);
    message.resize(message.len() + bytes, 0);
    message.into()
}

/// The same message in gzip.
fn gzip_zeros(bytes: usize) -> Vec<u8> {
    const LONGEST: usize = 258;
    let head = head(bytes);
    let mut bits = Bits::default();
    // The last block, fixed code.
    bits.low_first(0b011, 3);
    head.iter().for_each(|byte| bits.literal(*byte));
    let mut left = bytes;
    if left > 0 {
        bits.literal(0);
        left -= 1;
    }
    while left >= LONGEST {
        // Length code 285, which means 258, and distance code 0, which means the byte before.
        bits.high_first(0b1100_0101, 8);
        bits.high_first(0, 5);
        left -= LONGEST;
    }
    (0..left).for_each(|_| bits.literal(0));
    // Code 256: the end of the block.
    bits.high_first(0, 7);

    let mut out = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    out.extend(bits.finish());
    let table = crc_table();
    let step = |crc: u32, byte: u8| table[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    let crc = head.iter().fold(u32::MAX, |crc, byte| step(crc, *byte));
    let crc = !(0..bytes).fold(crc, |crc, _| step(crc, 0));
    out.extend(crc.to_le_bytes());
    out.extend(((head.len() + bytes) as u32).to_le_bytes());
    out
}

fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    for (byte, entry) in (0_u32..).zip(&mut table) {
        *entry = (0..8).fold(byte, |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        });
    }
    table
}

/// Deflate's bit order: from the lowest bit of each byte.
#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    pending: u32,
    count: u32,
}

impl Bits {
    fn low_first(&mut self, value: u32, count: u32) {
        self.pending |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.pending as u8);
            self.pending >>= 8;
            self.count -= 8;
        }
    }

    /// Huffman codes come with their highest bit first.
    fn high_first(&mut self, code: u32, count: u32) {
        self.low_first(code.reverse_bits() >> (32 - count), count);
    }

    fn literal(&mut self, byte: u8) {
        let byte = u32::from(byte);
        if byte < 144 {
            self.high_first(0x30 + byte, 8);
        } else {
            self.high_first(0x190 + byte - 144, 9);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.out.push(self.pending as u8);
        }
        self.out
    }
}
