//! Frames: the nine-byte header and the few payloads that the peer writes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// What a client sends first.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest payload that either side may send unless told otherwise.
const MAX_PAYLOAD: usize = 16_384;

/// Frame types.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Settings identifiers.
pub(crate) mod setting {
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// One frame as it was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Bytes,
}

impl Frame {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding and priority fields; `None` if the lengths in it are wrong.
    pub(crate) fn content(&self) -> Option<Bytes> {
        let mut rest = self.payload.clone();
        let mut padding = 0;
        if self.has(flag::PADDED) {
            padding = usize::from(rest.try_get_u8().ok()?);
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            if rest.len() < 5 {
                return None;
            }
            rest.advance(5);
        }
        rest.truncate(rest.len().checked_sub(padding)?);
        Some(rest)
    }

    /// The big-endian number at the start of the payload.
    pub(crate) fn number(&self) -> Option<u32> {
        self.payload.clone().try_get_u32().ok()
    }
}

/// A client that cannot be understood any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// Cuts frames out of the bytes that came in.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    pub(crate) bytes: BytesMut,
    greeted: bool,
}

impl FrameReader {
    /// The next whole frame, or `None` until more bytes have come.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Nonsense> {
        if !self.greeted {
            let seen = self.bytes.len().min(PREFACE.len());
            if self.bytes[..seen] != PREFACE[..seen] {
                return Err(Nonsense);
            }
            if seen < PREFACE.len() {
                return Ok(None);
            }
            self.bytes.advance(PREFACE.len());
            self.greeted = true;
        }
        let Some(head) = self.bytes.first_chunk::<9>() else {
            return Ok(None);
        };
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        if length > MAX_PAYLOAD {
            return Err(Nonsense);
        }
        if self.bytes.len() < 9 + length {
            return Ok(None);
        }
        self.bytes.advance(9);
        let payload = self.bytes.split_to(length).freeze();
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        Ok(Some(Frame {
            kind,
            flags,
            stream,
            payload,
        }))
    }
}

/// Any frame. A payload longer than 2^24 - 1 bytes would lie about its length, so it is cut there.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Bytes {
    let payload = &payload[..payload.len().min(0x00ff_ffff)];
    let mut out = BytesMut::with_capacity(9 + payload.len());
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
    out.freeze()
}

/// A DATA frame.
pub(crate) fn data(stream: u32, payload: &[u8], end: bool) -> Bytes {
    frame(
        kind::DATA,
        if end { flag::END_STREAM } else { 0 },
        stream,
        payload,
    )
}

/// HEADERS with as many CONTINUATION frames as the block needs.
pub(crate) fn header_frames(stream: u32, block: &[u8], end: bool) -> Bytes {
    let mut out = BytesMut::new();
    let mut rest = block;
    let mut frame_kind = kind::HEADERS;
    let mut flags = if end { flag::END_STREAM } else { 0 };
    loop {
        let (part, left) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        if left.is_empty() {
            flags |= flag::END_HEADERS;
        }
        out.put_slice(&frame(frame_kind, flags, stream, part));
        if left.is_empty() {
            return out.freeze();
        }
        (rest, frame_kind, flags) = (left, kind::CONTINUATION, 0);
    }
}

/// A SETTINGS frame.
pub(crate) fn settings(values: &[(u16, u32)]) -> Bytes {
    let mut payload = BytesMut::new();
    for (name, value) in values {
        payload.put_u16(*name);
        payload.put_u32(*value);
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// A RST_STREAM frame.
pub(crate) fn rst(stream: u32, code: u32) -> Bytes {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// A WINDOW_UPDATE frame.
pub(crate) fn window_update(stream: u32, bytes: u32) -> Bytes {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A GOAWAY frame.
pub(crate) fn goaway(last: u32, code: u32, debug: &[u8]) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u32(last);
    payload.put_u32(code);
    payload.put_slice(debug);
    frame(kind::GOAWAY, 0, 0, &payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_the_bytes_break() {
        let mut wire = PREFACE.to_vec();
        wire.extend_from_slice(&data(7, b"hello", true));
        wire.extend_from_slice(&rst(9, 8));
        let mut reader = FrameReader::default();
        let mut seen = Vec::new();
        for byte in wire {
            reader.bytes.put_u8(byte);
            while let Some(frame) = reader.next().expect("valid frames") {
                seen.push((frame.kind, frame.stream, frame.payload));
            }
        }
        assert_eq!(
            seen,
            [
                (kind::DATA, 7, Bytes::from_static(b"hello")),
                (kind::RST_STREAM, 9, Bytes::from_static(&[0, 0, 0, 8])),
            ]
        );
    }

    #[test]
    fn a_wrong_preface_and_an_oversized_frame_are_nonsense() {
        let mut reader = FrameReader::default();
        reader.bytes.put_slice(b"GET / HTTP/1.1\r\n");
        assert_eq!(reader.next().unwrap_err(), Nonsense);
        let mut reader = FrameReader::default();
        reader.bytes.put_slice(PREFACE);
        reader
            .bytes
            .put_slice(&frame(kind::DATA, 0, 1, &vec![0; MAX_PAYLOAD + 1]));
        assert_eq!(reader.next().unwrap_err(), Nonsense);
    }

    #[test]
    fn content_refuses_padding_longer_than_the_frame() {
        let padded = |payload: &'static [u8]| Frame {
            kind: kind::DATA,
            flags: flag::PADDED,
            stream: 1,
            payload: Bytes::from_static(payload),
        };
        assert_eq!(padded(&[2, b'a', 0, 0]).content().unwrap(), "a");
        assert_eq!(padded(&[9, b'a']).content(), None);
        assert_eq!(padded(&[]).content(), None);
    }

    #[test]
    fn a_long_header_block_continues() {
        let out = header_frames(1, &vec![0; MAX_PAYLOAD + 1], true);
        assert_eq!(out.len(), 9 + MAX_PAYLOAD + 9 + 1);
        assert_eq!(out[3..5], [kind::HEADERS, flag::END_STREAM]);
        assert_eq!(
            out[9 + MAX_PAYLOAD + 3..][..2],
            [kind::CONTINUATION, flag::END_HEADERS]
        );
    }
}
