//! Reads gRPC's length-prefixed messages out of frames, which go on as they came.

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use steadfast_core::BoxError;

use crate::{MessageError, Pass, compression::Compression};

/// A flag and four bytes of length.
pub(crate) const PREFIX: usize = 5;

/// Bytes that go on in one piece, unless a message is larger. tonic's decoder begins with a buffer of this size, and
/// whenever that has to grow it copies all that is in it: in pieces of whole frames, which end inside a message, it did
/// so again and again.
const PIECE: usize = 8 << 10;

/// A buffer that grew beyond this for one large message is given back after it.
const KEPT: usize = 64 << 10;

/// Reads messages out of frames of data.
///
/// A frame's whole messages go on without a copy, in pieces of up to 8 KiB. Of a message that hasn't come whole the
/// frames are held back, and only of that one: a copy of it is made, in a buffer that is used again, when it
/// lies in more than one frame.
#[derive(Debug)]
pub struct MessageReader {
    compression: Compression,
    limit: usize,
    /// Whether compressed messages go on unpacked.
    unpacks: bool,
    /// The frames of the message that hasn't come whole, from its prefix on.
    held: VecDeque<Bytes>,
    held_bytes: usize,
    prefix: [u8; PREFIX],
    ready: VecDeque<Bytes>,
    joined: Vec<u8>,
    unpacked: Vec<u8>,
}

impl MessageReader {
    /// A reader for a stream with this head, that takes messages up to `limit` bytes.
    #[must_use]
    pub fn new(head: &HeaderMap, limit: usize) -> Self {
        Self {
            compression: Compression::of(head),
            limit,
            unpacks: false,
            held: VecDeque::new(),
            held_bytes: 0,
            prefix: [0; PREFIX],
            ready: VecDeque::new(),
            joined: Vec::new(),
            unpacked: Vec::new(),
        }
    }

    /// The stream goes on with this head: what was held back is dropped. If it is compressed in another way
    /// than the first head told, its messages go on unpacked.
    pub(crate) fn begin(&mut self, told: &Compression, head: &HeaderMap) {
        self.compression = Compression::of(head);
        self.unpacks = self.compression != *told;
        self.held.clear();
        self.held_bytes = 0;
    }

    pub(crate) fn compression(&self) -> &Compression {
        &self.compression
    }

    /// What goes on next.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Whether nothing waits to go on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Forgets what waits to go on.
    pub(crate) fn forget(&mut self) {
        self.ready.clear();
    }

    /// Bytes of the message that hasn't come whole.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held_bytes
    }

    /// Another message goes on, in its turn.
    pub(crate) fn insert(&mut self, message: &[u8]) {
        self.ready.push_back(framed(message));
    }

    /// A frame came. `see` gets each message that it completes, without its prefix, unpacked.
    ///
    /// # Errors
    /// Bytes that are no messages, and what `see` says. The messages before it go on; there is nothing to be
    /// read after it.
    pub fn push(
        &mut self,
        mut frame: Bytes,
        see: &mut dyn FnMut(&[u8]) -> Result<Pass, BoxError>,
    ) -> Result<(), MessageError> {
        if self.held_bytes > 0 {
            let more = self.missing(&frame)?;
            self.hold(frame.split_to(more));
            if !self.is_whole() {
                return Ok(());
            }
            self.finish(see)?;
        }
        let mut passed = 0;
        let ended = loop {
            let length = match self.whole(&frame[passed..]) {
                Ok(Some(length)) => length,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let end = passed + PREFIX + length;
            match self.show(frame[passed], &frame[passed + PREFIX..end], see) {
                Ok(Pass::AsIs) if end > PIECE && passed > 0 => {
                    self.pass(frame.split_to(passed));
                    passed = end - passed;
                }
                Ok(Pass::AsIs) => passed = end,
                Ok(other) => {
                    self.pass(frame.split_to(passed));
                    frame.advance(end - passed);
                    self.instead(other);
                    passed = 0;
                }
                Err(error) => break Err(error),
            }
        };
        self.pass(frame.split_to(passed));
        if ended.is_ok() && !frame.is_empty() {
            let begun = frame.len().min(PREFIX);
            self.prefix[..begun].copy_from_slice(&frame[..begun]);
            self.hold(frame);
        }
        ended
    }

    /// The length of the first message, if all of it is there.
    fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, MessageError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = self.length(*prefix)?;
        Ok((rest.len() >= length).then_some(length))
    }

    fn length(&self, prefix: [u8; PREFIX]) -> Result<usize, MessageError> {
        let [flag, a, b, c, d] = prefix;
        if flag > 1 {
            return Err(MessageError::Flag(flag));
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        self.bounded(length)
    }

    fn bounded(&self, length: usize) -> Result<usize, MessageError> {
        let limit = self.limit;
        if length > limit {
            return Err(MessageError::TooLarge { length, limit });
        }
        Ok(length)
    }

    /// How many bytes of the frame belong to the message that is held.
    fn missing(&mut self, frame: &Bytes) -> Result<usize, MessageError> {
        let begun = self.held_bytes.min(PREFIX);
        let of_prefix = frame.len().min(PREFIX - begun);
        self.prefix[begun..begun + of_prefix].copy_from_slice(&frame[..of_prefix]);
        if begun + of_prefix < PREFIX {
            return Ok(of_prefix);
        }
        let missing = PREFIX + self.length(self.prefix)? - self.held_bytes;
        Ok(missing.min(frame.len()))
    }

    fn hold(&mut self, piece: Bytes) {
        self.held_bytes += piece.len();
        self.held.push_back(piece);
    }

    fn is_whole(&self) -> bool {
        let [_, a, b, c, d] = self.prefix;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        self.held_bytes >= PREFIX && self.held_bytes == PREFIX + length
    }

    /// The message that was held is whole.
    fn finish(
        &mut self,
        see: &mut dyn FnMut(&[u8]) -> Result<Pass, BoxError>,
    ) -> Result<(), MessageError> {
        let mut joined = std::mem::take(&mut self.joined);
        let mut skip = PREFIX;
        for piece in &self.held {
            let from = skip.min(piece.len());
            skip -= from;
            joined.extend_from_slice(&piece[from..]);
        }
        let pass = self.show(self.prefix[0], &joined, see);
        joined.clear();
        self.joined = kept(joined);
        self.held_bytes = 0;
        match pass? {
            Pass::AsIs => self.ready.append(&mut self.held),
            other => {
                self.held.clear();
                self.instead(other);
            }
        }
        Ok(())
    }

    fn show(
        &mut self,
        flag: u8,
        bytes: &[u8],
        see: &mut dyn FnMut(&[u8]) -> Result<Pass, BoxError>,
    ) -> Result<Pass, MessageError> {
        if flag == 0 {
            return see(bytes).map_err(MessageError::Rule);
        }
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let done = self.compression.unpack(bytes, self.limit, &mut unpacked);
        done.map_err(MessageError::Unpack)?;
        self.bounded(unpacked.len())?;
        let mut pass = see(&unpacked).map_err(MessageError::Rule)?;
        if self.unpacks && pass == Pass::AsIs {
            pass = Pass::Instead(Bytes::copy_from_slice(&unpacked));
        }
        self.unpacked = kept(unpacked);
        Ok(pass)
    }

    fn pass(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.ready.push_back(piece);
        }
    }

    fn instead(&mut self, pass: Pass) {
        if let Pass::Instead(message) = pass {
            self.insert(&message);
        }
    }
}

/// A message with its prefix, uncompressed.
///
/// # Panics
/// A message of 4 GiB or more.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a message is smaller than 4 GiB");
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put_slice(message);
    framed.freeze()
}

fn kept(buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > KEPT {
        Vec::new()
    } else {
        buffer
    }
}
