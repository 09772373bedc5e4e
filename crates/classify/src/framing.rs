//! Where in a gRPC message a response body stands: at a boundary, or inside.

use bytes::Bytes;

/// A flag byte and four bytes of length.
const PREFIX: u8 = 5;

/// Follows the length prefixes through the frames. Any bytes are taken; nothing is kept but a count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    /// Bytes of the present message that haven't come.
    missing: u32,
    /// Bytes of the next prefix that have come.
    prefix: u8,
    /// The length so far, read from those.
    length: u32,
}

impl Framing {
    pub(crate) fn data(&mut self, data: &Bytes) {
        let mut rest: &[u8] = data;
        loop {
            // A message may be larger than memory's addresses, a frame isn't.
            match rest.split_at_checked(self.missing as usize) {
                Some((_, after)) => rest = after,
                None => {
                    self.missing -= rest.len() as u32;
                    return;
                }
            }
            self.missing = 0;
            match rest.split_first_chunk::<{ PREFIX as usize }>() {
                // Nearly all prefixes come in one piece.
                Some(([_, length @ ..], after)) if self.prefix == 0 => {
                    self.missing = u32::from_be_bytes(*length);
                    rest = after;
                }
                _ => match self.part_of_a_prefix(rest) {
                    Some(after) => rest = after,
                    None => return,
                },
            }
        }
    }

    /// Takes what belongs to a prefix that doesn't come in one piece. None when the frame ends in it.
    fn part_of_a_prefix<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        while let Some((&byte, after)) = rest.split_first() {
            if self.prefix > 0 {
                self.length = self.length << 8 | u32::from(byte);
            }
            self.prefix += 1;
            rest = after;
            if self.prefix == PREFIX {
                *self = Self {
                    missing: self.length,
                    ..Self::default()
                };
                return Some(rest);
            }
        }
        None
    }

    pub(crate) fn inside_a_message(&self) -> bool {
        self.missing > 0 || self.prefix > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(frames: &[&[u8]]) -> bool {
        let mut framing = Framing::default();
        for frame in frames {
            framing.data(&Bytes::copy_from_slice(frame));
        }
        framing.inside_a_message()
    }

    #[test]
    fn boundaries() {
        assert!(!after(&[]));
        assert!(!after(&[b""]));
        assert!(after(&[b"\0"]), "one byte of a prefix");
        assert!(after(&[b"\0\0\0\0"]), "four bytes of a prefix");
        assert!(!after(&[b"\0\0\0\0\0"]), "an empty message");
        assert!(after(&[b"\0\0\0\0\x02a"]));
        assert!(!after(&[b"\0\0\0\0\x02a", b"b"]));
        assert!(!after(&[b"\0\0\0", b"\0\x02", b"ab\x01\0", b"\0\0\0"]));
        assert!(after(&[b"\0\xff\xff\xff\xff", b"ab"]), "4 GiB announced");
        assert!(after(&[b"\0\0\0\x01\x00", &[7; 255]]));
        assert!(
            !after(&[b"\0\0\0\x01\x00", &[7; 256]]),
            "the length is big-endian"
        );
    }

    proptest! {
        /// Whole messages, cut into frames anywhere: at a boundary at the end, and only there.
        #[test]
        fn frames_do_not_matter(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            cuts in prop::collection::vec(1usize..9, 1..100),
        ) {
            let mut stream = Vec::new();
            let mut boundaries = vec![0];
            for message in &messages {
                stream.push(0);
                stream.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
                stream.extend(message);
                boundaries.push(stream.len());
            }
            let mut framing = Framing::default();
            let mut at = 0;
            for cut in cuts.into_iter().cycle() {
                prop_assert_eq!(framing.inside_a_message(), !boundaries.contains(&at));
                let end = (at + cut).min(stream.len());
                framing.data(&Bytes::copy_from_slice(&stream[at..end]));
                at = end;
                if at == stream.len() {
                    break;
                }
            }
            prop_assert!(!framing.inside_a_message());
        }

        /// Any bytes from a server are taken without a panic.
        #[test]
        fn hostile_bytes(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..64)) {
            let mut framing = Framing::default();
            for frame in frames {
                framing.data(&Bytes::from(frame));
            }
        }
    }
}
