//! What the server sends.

use std::io::Write;

use bytes::Bytes;
use fastrand::Rng;
use steadfast_testkit::peer::{Last, Step};

use super::{
    LIMIT, MESSAGES,
    plan::{Cause, Cut, Framing, Packing, Plan},
};

/// The type of HTTP/2's DATA frames.
const DATA: u8 = 0;

/// The answer to an attempt, from the request's body: the first message that is wanted, and the one after the last.
pub(super) fn steps(plan: &Plan, attempt: usize, stream: u32, body: &[u8]) -> Vec<Step> {
    let Some((from, to)) = asked(body) else {
        return vec![Step::trailers_only(3, "the request isn't what was planned")];
    };
    let packing = plan.packing[attempt.min(plan.packing.len() - 1)];
    let stuff = Stuff::new(plan, packing, from, to);
    let mut steps = vec![head(packing)];
    match plan.cuts.get(attempt) {
        Some(cut) if cut.in_place_of_head() => return ending(cut, stream, &[]),
        Some(cut) => {
            let at = stuff.cut_at(cut);
            steps.extend(stuff.frames(plan, attempt, at));
            steps.extend(ending(cut, stream, &stuff.bytes[at..]));
        }
        None => {
            steps.extend(stuff.frames(plan, attempt, stuff.bytes.len()));
            steps.push(Step::status(0, ""));
        }
    }
    steps
}

fn asked(body: &[u8]) -> Option<(u32, u32)> {
    let (prefix, message) = body.split_first_chunk()?;
    let (from, to) = message.split_first_chunk()?;
    let (from, to) = (
        u32::from_be_bytes(*from),
        u32::from_be_bytes(to.try_into().ok()?),
    );
    (*prefix == [0, 0, 0, 0, 8] && from <= to && to == MESSAGES).then_some((from, to))
}

fn head(packing: Packing) -> Step {
    let name = match packing {
        Packing::Plain => None,
        Packing::Gzip => Some("gzip"),
        Packing::Zstd => Some("zstd"),
    };
    let field = |name: &str| ("grpc-encoding".to_owned(), name.to_owned());
    Step::Headers {
        status: 200,
        fields: name.map(field).into_iter().collect(),
        end: false,
    }
}

/// The messages as they are on the wire.
struct Stuff {
    bytes: Vec<u8>,
    /// Where messages end, and 0.
    ends: Vec<usize>,
}

impl Stuff {
    fn new(plan: &Plan, packing: Packing, from: u32, to: u32) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for number in from..to {
            let message = plan.message(number);
            // Of a compressed stream some messages aren't.
            let (flag, packed) = match packing {
                Packing::Gzip if number % 5 != 0 => (1, gzip(&message)),
                Packing::Zstd if number % 5 != 0 => (1, zstd(&message)),
                _ => (0, message),
            };
            bytes.push(flag);
            bytes.extend((packed.len() as u32).to_be_bytes());
            bytes.extend(packed);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn cut_at(&self, cut: &Cut) -> usize {
        let most = self.bytes.len();
        let target = (most as f64 * cut.share) as usize;
        let end = self.ends.partition_point(|end| *end <= target) - 1;
        let boundary = self.ends[end];
        let inside = match cut.cause {
            Cause::OkInside => true,
            // A message of its own follows.
            Cause::Garbage | Cause::TooLarge | Cause::Unreadable => false,
            _ => cut.inside,
        };
        if !inside {
            return boundary;
        }
        // The last message's, if there is none after it.
        let (from, to) = match self.ends.get(end + 1) {
            Some(next) => (boundary, *next),
            None => (self.ends[end.saturating_sub(1)], boundary),
        };
        target.clamp((from + 1).min(to), to.saturating_sub(1).max(from))
    }

    fn frames(&self, plan: &Plan, attempt: usize, until: usize) -> Vec<Step> {
        let mut random = Rng::with_seed(plan.seed.wrapping_add(attempt as u64));
        let mut steps = Vec::new();
        let mut at = 0;
        while at < until {
            let next = match plan.framing {
                Framing::OneEach => self.ends[self.ends.partition_point(|end| *end <= at)],
                Framing::Many => at + random.usize(1_000..10_000),
                // Some hundred pieces, however much there is.
                Framing::Pieces => at + random.usize(1..=20.max(self.bytes.len() / 200)),
            };
            let next = next.min(until);
            let bytes = Bytes::copy_from_slice(&self.bytes[at..next]);
            steps.push(Step::Data { bytes, end: false });
            at = next;
        }
        steps
    }
}

impl Cut {
    fn in_place_of_head(&self) -> bool {
        let may = matches!(
            self.cause,
            Cause::Fin | Cause::TcpReset | Cause::Rst(_) | Cause::Silence
        );
        matches!(self.cause, Cause::GoawayBefore(_)) || self.before_head && may
    }
}

/// What ends the attempt, when `rest` would have come next.
fn ending(cut: &Cut, stream: u32, rest: &[u8]) -> Vec<Step> {
    let last = match cut.cause {
        Cause::Fin => Step::Fin,
        Cause::TcpReset => Step::TcpReset,
        Cause::Rst(code) => return vec![Step::Rst(code)],
        Cause::GoawayBefore(code) | Cause::GoawayAfter(code) => {
            return vec![Step::goaway(code, Last::Zero)];
        }
        Cause::OkInside => return vec![Step::status(0, "")],
        Cause::NoStatus => {
            let bytes = Bytes::new();
            return vec![Step::Data { bytes, end: true }];
        }
        Cause::Unavailable => return vec![Step::status(14, "as planned")],
        Cause::Status(code) => return vec![Step::status(code, "as planned")],
        Cause::Garbage => return then_ok(&[7, 0, 0, 0, 0]),
        Cause::TooLarge => {
            let length = (LIMIT as u32 + 1).to_be_bytes();
            return then_ok(&[&[0], &length[..]].concat());
        }
        Cause::Unreadable => return then_ok(&[&[0, 0, 0, 0, 10], UNREADABLE].concat()),
        // Nothing.
        Cause::Silence => Step::Wait(std::time::Duration::ZERO),
    };
    if cut.half_frame && !cut.in_place_of_head() {
        vec![half_frame(stream, rest), last]
    } else {
        vec![last]
    }
}

/// The message that the rule refuses.
pub(super) const UNREADABLE: &[u8] = b"unreadable";

fn then_ok(bytes: &[u8]) -> Vec<Step> {
    let bytes = Bytes::copy_from_slice(bytes);
    vec![Step::Data { bytes, end: false }, Step::status(0, "")]
}

/// A DATA frame of 200 bytes of which half comes.
fn half_frame(stream: u32, rest: &[u8]) -> Step {
    let mut bytes = vec![0, 0, 200, DATA, 0];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(&rest[..rest.len().min(100)]);
    Step::Bytes(bytes.into())
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(message).expect("memory takes all");
    packer.finish().expect("memory takes all")
}

fn zstd(message: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(message, 1).expect("memory takes all")
}
