//! What happens to the stream of one seed.

use std::fmt;

use fastrand::Rng;

use super::LIMIT;

/// What cuts a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The connection ends with a FIN.
    Fin,
    /// The connection is reset.
    TcpReset,
    /// RST_STREAM with this code.
    Rst(u32),
    /// GOAWAY with this code before the headers, and nothing was processed.
    GoawayBefore(u32),
    /// The same, after the headers.
    GoawayAfter(u32),
    /// OK inside a message.
    OkInside,
    /// The stream ends without a status.
    NoStatus,
    /// Nothing more comes.
    Silence,
    /// UNAVAILABLE.
    Unavailable,
    /// Any other status.
    Status(u32),
    /// Bytes that are no message.
    Garbage,
    /// A message over the limit.
    TooLarge,
    /// A message that the rule can't read.
    Unreadable,
}

impl Cause {
    fn random(random: &mut Rng) -> Self {
        match random.u32(..24) {
            0..=2 => Self::Fin,
            3..=4 => Self::TcpReset,
            // Those of RFC 9113, section 7, and two that it doesn't know.
            5..=9 => Self::Rst(random.u32(0..=15)),
            10..=11 => Self::GoawayBefore(random.u32(0..=13)),
            12..=13 => Self::GoawayAfter(random.u32(0..=13)),
            14..=15 => Self::OkInside,
            16 => Self::NoStatus,
            17..=19 => Self::Silence,
            20 => Self::Unavailable,
            21 => loop {
                let code = random.u32(1..=16);
                if code != 14 {
                    return Self::Status(code);
                }
            },
            22 => [Self::Garbage, Self::TooLarge][random.usize(..2)],
            _ => Self::Unreadable,
        }
    }

    /// Whether a stream goes on after it, with the default settings.
    #[must_use]
    pub fn resumes(self) -> bool {
        self.names().is_none()
    }

    /// What the caller's error must say of a cause after which the stream doesn't go on.
    #[must_use]
    pub fn names(self) -> Option<&'static str> {
        match self {
            Self::Status(_) => Some("as planned"),
            Self::Garbage => Some("the flag 7"),
            Self::TooLarge => Some("resume.message_limit"),
            Self::Unreadable => Some("the rule can't read a message: unreadable, as planned"),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fin => f.write_str("FIN"),
            Self::TcpReset => f.write_str("TCP reset"),
            Self::Rst(code) => write!(f, "RST_STREAM {code}"),
            Self::GoawayBefore(code) => write!(f, "GOAWAY {code} before headers"),
            Self::GoawayAfter(code) => write!(f, "GOAWAY {code} after headers"),
            Self::OkInside => f.write_str("OK inside a message"),
            Self::NoStatus => f.write_str("no status"),
            Self::Silence => f.write_str("silence"),
            Self::Unavailable => f.write_str("UNAVAILABLE"),
            Self::Status(code) => write!(f, "status {code}"),
            Self::Garbage => f.write_str("no message"),
            Self::TooLarge => f.write_str("message over the limit"),
            Self::Unreadable => f.write_str("message unreadable to the rule"),
        }
    }
}

/// One cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) cause: Cause,
    /// How much of the attempt comes before it, from 0 to 1.
    pub(super) share: f64,
    /// Whether it is inside a message, or between two.
    pub(super) inside: bool,
    /// Whether a part of an HTTP/2 frame comes first, where the connection goes with it.
    pub(super) half_frame: bool,
    /// Whether it comes in place of the headers.
    pub(super) before_head: bool,
}

/// How messages lie in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    OneEach,
    Many,
    Pieces,
}

/// How messages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

#[derive(Clone, Copy, Debug)]
enum Sizes {
    Nothing,
    UpTo(usize),
    /// One is as large as it may be.
    OneAtLimit,
}

/// What happens to the stream of one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of what all the rest is made.
    pub seed: u64,
    pub(super) cuts: Vec<Cut>,
    pub(super) framing: Framing,
    /// By attempt; those after the last are like it.
    pub(super) packing: [Packing; 3],
    sizes: Sizes,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let first = [Packing::Plain, Packing::Plain, Packing::Gzip, Packing::Zstd];
        let first = first[random.usize(..4)];
        // One stream in eight comes from servers that compress in different ways.
        let mixed = random.u8(..8) == 0;
        let mut packing = || match mixed {
            true => [Packing::Plain, Packing::Gzip, Packing::Zstd][random.usize(..3)],
            false => first,
        };
        let packing = [first, packing(), packing()];
        let sizes = match random.u8(..8) {
            0 => Sizes::Nothing,
            1 => Sizes::OneAtLimit,
            2 => Sizes::UpTo(3_000),
            _ => Sizes::UpTo(64),
        };
        let framing = [Framing::OneEach, Framing::Many, Framing::Pieces][random.usize(..3)];
        let cuts = (0..random.u8(1..=2)).map(|_| Cut::random(&mut random));
        Self {
            seed,
            cuts: cuts.collect(),
            framing,
            packing,
            sizes,
        }
    }

    /// Why the stream is cut, cut by cut. The second comes only when the stream goes on after the first.
    pub fn causes(&self) -> impl Iterator<Item = Cause> {
        self.cuts.iter().map(|cut| cut.cause)
    }

    /// A message of the stream: its number, if there is room, and random bytes.
    #[must_use]
    pub fn message(&self, number: u32) -> Vec<u8> {
        let mut random = Rng::with_seed(self.seed ^ (u64::from(number) << 32));
        let length = match self.sizes {
            Sizes::Nothing => 0,
            Sizes::UpTo(most) => random.usize(..=most),
            Sizes::OneAtLimit if u64::from(number) == self.seed % 100 => LIMIT,
            Sizes::OneAtLimit => random.usize(..=64),
        };
        let mut message = vec![0; length];
        // Less than random bytes, so that it fits when it is compressed, too.
        random.fill(&mut message[..length / 2]);
        if let Some(head) = message.first_chunk_mut() {
            *head = number.to_be_bytes();
        }
        message
    }
}

impl Cut {
    fn random(random: &mut Rng) -> Self {
        Self {
            cause: Cause::random(random),
            // Often at the very beginning or end.
            share: match random.u8(..8) {
                0 => 0.0,
                1 => 1.0,
                _ => random.f64(),
            },
            inside: random.bool(),
            half_frame: random.bool(),
            before_head: random.u8(..4) == 0,
        }
    }
}
