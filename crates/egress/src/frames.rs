//! Reads the heads of the frames that a peer sends, as they pass by.
//!
//! Decides whether the peer's first answer is HTTP/2's SETTINGS, and sees the stream limit and a GOAWAY,
//! which tonic keeps to itself. It never changes, delays or keeps the bytes, and after anything that isn't HTTP/2 it stops.
//!
//! ```text
//!            9 bytes            not SETTINGS
//!  ┌── Head ─────────▶ judge ──────────────────▶ Stopped
//!  │                     │
//!  └── Payload(left) ◀───┘   SETTINGS and GOAWAY: their first bytes are kept
//! ```

const HEAD: usize = 9;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// The largest frame that may come before this side's SETTINGS are known: the protocol's default.
const FIRST_FRAME: usize = 16_384;

/// Bytes of a first answer that is no SETTINGS, for people.
const SHOWN: usize = 48;

/// Bytes of a GOAWAY that are kept: last stream id, error code and the start of the debug data.
const GOAWAY_KEPT: usize = 8 + 64;

/// Bytes of a SETTINGS that are kept: 64 settings, of which HTTP/2 knows eight.
const SETTINGS_KEPT: usize = 64 * SETTING;

/// A setting: its number, two bytes, and its value, four.
const SETTING: usize = 6;
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// What passed by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The first frame, whole, and it is SETTINGS.
    Settings,
    /// The peer allows this many streams at a time; before the first SETTINGS it has said nothing, and
    /// one that says nothing of it allows any number (RFC 9113, section 6.5.2).
    Streams(u32),
    /// The first bytes are no SETTINGS frame: these.
    NoSettings(Vec<u8>),
    /// A GOAWAY.
    GoAway {
        /// The error code (RFC 9113, section 7).
        code: u32,
        /// The start of the debug data, printable.
        debug: String,
    },
}

/// The scanner of one connection, for what the peer sends.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    state: State,
    /// The head of a frame, or what is kept of a GOAWAY's payload.
    kept: Vec<u8>,
    settings: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Payload {
        left: usize,
        kind: Kind,
    },
    Stopped,
}

/// What a frame is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    FirstSettings,
    Settings,
    GoAway,
    Other,
}

impl Kind {
    /// How many bytes of the payload are kept.
    fn kept(self) -> usize {
        match self {
            Self::FirstSettings | Self::Settings => SETTINGS_KEPT,
            Self::GoAway => GOAWAY_KEPT,
            Self::Other => 0,
        }
    }
}

impl Frames {
    /// How many bytes came before the first frame's head was whole. Only until then.
    pub(crate) fn first_bytes(&self) -> &[u8] {
        if self.settings { &[] } else { &self.kept }
    }

    /// The next bytes that came, whatever they are, and what they say.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Seen)) {
        while !bytes.is_empty() {
            match self.state {
                State::Head => {
                    let taken = bytes.len().min(HEAD - self.kept.len());
                    let (head, rest) = bytes.split_at(taken);
                    self.kept.extend_from_slice(head);
                    bytes = rest;
                    if self.kept.len() == HEAD {
                        self.head(bytes, &mut seen);
                    }
                }
                State::Payload { left, kind } => {
                    let (payload, rest) = bytes.split_at(bytes.len().min(left));
                    let room = kind.kept().saturating_sub(self.kept.len());
                    let kept = &payload[..payload.len().min(room)];
                    self.kept.extend_from_slice(kept);
                    bytes = rest;
                    self.payload(left - payload.len(), kind, &mut seen);
                }
                State::Stopped => return,
            }
        }
    }

    fn head(&mut self, rest: &[u8], seen: &mut impl FnMut(Seen)) {
        let &[a, b, c, kind, flags, s0, s1, s2, s3] = &*self.kept else {
            return;
        };
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        let own = kind == SETTINGS && stream == 0 && flags & ACK == 0;
        let kind = match kind {
            SETTINGS if own && !self.settings => Kind::FirstSettings,
            SETTINGS if own => Kind::Settings,
            GOAWAY if stream == 0 => Kind::GoAway,
            _ => Kind::Other,
        };
        if !self.settings {
            if !own || length % 6 != 0 || length > FIRST_FRAME {
                let mut first = std::mem::take(&mut self.kept);
                first.extend_from_slice(&rest[..rest.len().min(SHOWN - HEAD)]);
                self.state = State::Stopped;
                return seen(Seen::NoSettings(first));
            }
            self.settings = true;
        }
        self.kept.clear();
        self.payload(length, kind, seen);
    }

    fn payload(&mut self, left: usize, kind: Kind, seen: &mut impl FnMut(Seen)) {
        if left > 0 {
            self.state = State::Payload { left, kind };
            return;
        }
        self.state = State::Head;
        match kind {
            // The limit first, so that it is known when the peer counts as ready.
            Kind::FirstSettings => {
                seen(Seen::Streams(self.streams().unwrap_or(u32::MAX)));
                seen(Seen::Settings);
            }
            Kind::Settings => self
                .streams()
                .into_iter()
                .for_each(|n| seen(Seen::Streams(n))),
            Kind::GoAway => {
                if let Some((&[_, _, _, _, a, b, c, d], debug)) = self.kept.split_first_chunk() {
                    let code = u32::from_be_bytes([a, b, c, d]);
                    let debug = debug.escape_ascii().to_string();
                    seen(Seen::GoAway { code, debug });
                }
            }
            Kind::Other => {}
        }
        self.kept.clear();
    }

    /// The stream limit among the settings that were kept; of several the last one counts.
    fn streams(&self) -> Option<u32> {
        let (settings, _) = self.kept.as_chunks::<SETTING>();
        let mut limits = settings.iter().filter_map(|&[a, b, value @ ..]| {
            let number = u16::from_be_bytes([a, b]);
            (number == MAX_CONCURRENT_STREAMS).then_some(u32::from_be_bytes(value))
        });
        limits.next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn goaway(code: u32, debug: &[u8]) -> Vec<u8> {
        let mut payload = 7_u32.to_be_bytes().to_vec();
        payload.extend(code.to_be_bytes());
        payload.extend(debug);
        frame(GOAWAY, 0, 0, &payload)
    }

    fn scan(bytes: &[u8], piece: usize) -> Vec<Seen> {
        let (mut frames, mut all) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            frames.feed(piece, |seen| all.push(seen));
            assert!(frames.kept.len() <= SETTINGS_KEPT);
        }
        all
    }

    #[test]
    fn sees_settings_and_goaway_whatever_the_pieces() {
        let mut bytes = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
        bytes.extend(frame(SETTINGS, ACK, 0, &[]));
        bytes.extend(frame(0, 0, 1, &[GOAWAY; 300]));
        bytes.extend(goaway(11, b"too_many_pings"));
        bytes.extend(frame(8, 0, 0, &[0, 0, 0, 1]));
        bytes.extend(goaway(0, &[0xff; 500]));
        for piece in 1..bytes.len() {
            let seen = scan(&bytes, piece);
            let [
                Seen::Streams(100),
                Seen::Settings,
                first,
                Seen::GoAway { code: 0, debug },
            ] = &*seen
            else {
                panic!("{seen:?} in pieces of {piece}");
            };
            let expected = Seen::GoAway {
                code: 11,
                debug: "too_many_pings".into(),
            };
            assert_eq!(first, &expected);
            assert_eq!(debug.len(), 4 * 64);
        }
    }

    /// B8: the limit that the first SETTINGS name, none if they name none; later ones change it only if they
    /// name it, and the last of several counts.
    #[test]
    fn the_stream_limit_is_seen() {
        let limit = |value: u32| [&[0, 3], &value.to_be_bytes()[..]].concat();
        let other = [0, 4, 0, 0, 255, 255];
        let mut bytes = frame(SETTINGS, 0, 0, &other);
        bytes.extend(frame(
            SETTINGS,
            0,
            0,
            &[&other[..], &limit(7), &limit(5)].concat(),
        ));
        bytes.extend(frame(SETTINGS, 0, 0, &other));
        bytes.extend(frame(SETTINGS, 0, 0, &limit(0)));
        bytes.extend(frame(SETTINGS, 0, 0, &limit(1).repeat(1_000)));
        for piece in [1, 7, 4_096] {
            let seen = scan(&bytes, piece);
            let limits = [u32::MAX, 5, 0, 1].map(Seen::Streams);
            assert_eq!(seen[0], limits[0]);
            assert_eq!(seen[1], Seen::Settings);
            assert_eq!(seen[2..], limits[1..]);
        }
    }

    #[test]
    fn a_first_frame_that_is_no_settings_is_shown() {
        let text = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n and more of it";
        let seen = scan(text, text.len());
        assert_eq!(seen, [Seen::NoSettings(text[..SHOWN].to_vec())]);
        for first in [
            frame(SETTINGS, ACK, 0, &[]),
            frame(SETTINGS, 0, 1, &[]),
            frame(SETTINGS, 0, 0, &[1]),
            frame(6, 0, 0, &[0; 8]),
            goaway(0, b""),
        ] {
            assert!(
                matches!(&*scan(&first, 1), [Seen::NoSettings(_)]),
                "{first:?}"
            );
        }
    }

    #[test]
    fn first_bytes_are_known_until_the_head_is_whole() {
        let mut frames = Frames::default();
        frames.feed(b"SSH-2.0", |_| panic!());
        assert_eq!(frames.first_bytes(), b"SSH-2.0");
        let mut frames = Frames::default();
        frames.feed(&frame(SETTINGS, 0, 0, &[])[..], |_| ());
        frames.feed(&[0, 0, 0, 1], |_| ());
        assert_eq!(frames.first_bytes(), b"");
    }

    #[test]
    fn a_goaway_that_is_too_short_says_nothing() {
        let mut bytes = frame(SETTINGS, 0, 0, &[]);
        bytes.extend(frame(GOAWAY, 0, 0, &[0; 7]));
        bytes.extend(goaway(2, b""));
        assert_eq!(scan(&bytes, 5).len(), 3);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..2_000 {
            let mut bytes = frame(SETTINGS, 0, 0, &[]);
            for _ in 0..64 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes.extend((state & 0x0f0f_ff07).to_le_bytes());
            }
            scan(&bytes, usize::from((state as u8) | 1));
        }
    }
}
