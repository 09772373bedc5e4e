//! Counts the HEADERS frames that a client sends, from the bytes as they pass.

/// The client's preface, which is not a frame.
const PREFACE: usize = 24;

/// The frame type of HEADERS.
const HEADERS: u8 = 1;

/// Follows frame headers only; what it counts on bytes that are not HTTP/2 means nothing.
#[derive(Debug)]
pub(super) struct HeadersCounter {
    skip: usize,
    head: [u8; 9],
    filled: usize,
}

impl HeadersCounter {
    pub(super) fn new() -> Self {
        Self {
            skip: PREFACE,
            head: [0; 9],
            filled: 0,
        }
    }

    /// How many HEADERS frames began with these bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut seen = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let (part, rest) = bytes.split_at(bytes.len().min(self.head.len() - self.filled));
            self.head[self.filled..][..part.len()].copy_from_slice(part);
            self.filled += part.len();
            bytes = rest;
            if self.filled == self.head.len() {
                let [l0, l1, l2, kind, ..] = self.head;
                self.skip = u32::from_be_bytes([0, l0, l1, l2]) as usize;
                self.filled = 0;
                seen += u64::from(kind == HEADERS);
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::HeadersCounter;

    #[test]
    fn headers_are_counted_wherever_the_bytes_break() {
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        wire.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0"); // SETTINGS
        wire.extend_from_slice(
            b"\0\0\x0a\x01\x05\0\0\0\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
        ); // HEADERS
        wire.extend_from_slice(b"\0\0\x02\0\0\0\0\0\x01\x01\x01"); // DATA
        wire.extend_from_slice(b"\0\0\x00\x01\x05\0\0\0\x03"); // HEADERS
        for size in 1..wire.len() {
            let mut counter = HeadersCounter::new();
            assert_eq!(
                wire.chunks(size)
                    .map(|part| counter.feed(part))
                    .sum::<u64>(),
                2,
                "chunks of {size}"
            );
        }
    }
}
