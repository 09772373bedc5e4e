//! One direction's bytes between their delay and the socket: where a mute holds them, frame by frame.
//!
//! A lane always knows where in a frame it is, so that a mute begins and ends between two frames: what has begun to pass goes
//! on passing. While muted, PINGs are answered to the side that sent them, SETTINGS and acknowledgements pass, so that a
//! connection can be made and stays alive, and all else waits. Of bytes that are not HTTP/2, all wait.

use crate::wire::{self, Frame, PREFACE, flag, kind};
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    fn back(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// Both directions of a connection.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Mutex<Pair>,
    bells: [Notify; 2],
}

#[derive(Debug)]
struct Pair {
    lanes: [Lane; 2],
    /// How much of the preface has come; `None` once the client's first bytes were something else.
    greeted: Option<usize>,
}

#[derive(Debug)]
struct Lane {
    /// For the socket.
    out: BytesMut,
    /// Bytes of the preface or of a frame's payload that are to pass yet.
    skip: usize,
    /// A frame's head, as far as it has passed.
    head: [u8; 9],
    filled: usize,
    /// Whole frames that a mute holds, and after them a part of one.
    held: BytesMut,
    part: BytesMut,
    /// Acknowledgements that wait for the end of a frame.
    waiting: BytesMut,
}

impl Lanes {
    pub(super) fn new() -> Self {
        let lane = |skip| Lane {
            out: BytesMut::new(),
            skip,
            head: [0; 9],
            filled: 0,
            held: BytesMut::new(),
            part: BytesMut::new(),
            waiting: BytesMut::new(),
        };
        Self {
            lanes: Mutex::new(Pair {
                lanes: [lane(PREFACE.len()), lane(0)],
                greeted: Some(0),
            }),
            bells: [Notify::new(), Notify::new()],
        }
    }

    fn pair(&self) -> MutexGuard<'_, Pair> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rung when the other direction put something into this one.
    pub(super) fn bell(&self, direction: Direction) -> &Notify {
        &self.bells[direction as usize]
    }

    /// Lets bytes into the lane. Says how many PINGs were answered.
    pub(super) fn feed(&self, direction: Direction, bytes: &[u8], muted: bool) -> u64 {
        let mut pair = self.pair();
        if direction == Direction::ToServer {
            pair.greet(bytes);
        }
        let raw = pair.greeted.is_none();
        let lane = &mut pair.lanes[direction as usize];
        if !muted {
            lane.pass(bytes);
            return 0;
        }
        if raw {
            lane.held.put_slice(bytes);
            return 0;
        }
        let pings = lane.hold(bytes);
        let back = &mut pair.lanes[direction.back() as usize];
        for ping in &pings {
            back.acknowledge(ping);
        }
        drop(pair);
        if !pings.is_empty() {
            self.bell(direction.back()).notify_one();
        }
        pings.len() as u64
    }

    /// The next bytes for the socket. Not muted any more, the lane gives what it held first.
    pub(super) fn take(&self, direction: Direction, muted: bool, most: usize) -> Bytes {
        let mut pair = self.pair();
        let lane = &mut pair.lanes[direction as usize];
        if !muted {
            lane.release();
        }
        let most = most.min(lane.out.len());
        lane.out.split_to(most).freeze()
    }
}

impl Pair {
    fn greet(&mut self, bytes: &[u8]) {
        if let Some(seen) = self.greeted {
            let part = &PREFACE[seen..][..bytes.len().min(PREFACE.len() - seen)];
            self.greeted = bytes.starts_with(part).then_some(seen + part.len());
        }
    }
}

impl Lane {
    fn between_frames(&self) -> bool {
        self.skip == 0 && self.filled == 0
    }

    /// Passes bytes up to the end of a frame, at most; says how many.
    fn pass_one(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(rest.len());
                self.skip -= skipped;
                rest = &rest[skipped..];
            } else {
                let (part, left) = rest.split_at(rest.len().min(9 - self.filled));
                self.head[self.filled..][..part.len()].copy_from_slice(part);
                self.filled += part.len();
                rest = left;
                if self.filled == 9 {
                    self.filled = 0;
                    self.skip = length(&self.head);
                }
            }
            if self.between_frames() {
                break;
            }
        }
        let passed = bytes.len() - rest.len();
        self.out.put_slice(&bytes[..passed]);
        if self.between_frames() {
            let waiting = self.waiting.split();
            self.out.put_slice(&waiting);
        }
        passed
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        self.release();
        while !bytes.is_empty() {
            let passed = self.pass_one(bytes);
            bytes = &bytes[passed..];
        }
    }

    fn release(&mut self) {
        let held = self.held.split();
        self.out.put_slice(&held);
        let part = self.part.split();
        let mut rest = &part[..];
        while !rest.is_empty() {
            let passed = self.pass_one(rest);
            rest = &rest[passed..];
        }
    }

    /// Holds all but what keeps the connection alive; gives the PINGs.
    fn hold(&mut self, mut bytes: &[u8]) -> Vec<Bytes> {
        if self.part.is_empty() && !self.between_frames() {
            let passed = self.pass_one(bytes);
            bytes = &bytes[passed..];
        }
        self.part.put_slice(bytes);
        let mut pings = Vec::new();
        while let Some(head) = self.part.first_chunk::<9>() {
            let whole = 9 + length(head);
            if self.part.len() < whole {
                break;
            }
            let [_, _, _, kind, flags, ..] = *head;
            let bytes = self.part.split_to(whole).freeze();
            let frame = Frame {
                kind,
                flags,
                stream: 0,
                payload: bytes.slice(9..),
            };
            match kind {
                kind::PING if !frame.has(flag::ACK) => pings.push(frame.payload),
                kind::PING | kind::SETTINGS => self.out.put_slice(&bytes),
                _ => self.held.put_slice(&bytes),
            }
        }
        pings
    }

    fn acknowledge(&mut self, ping: &[u8]) {
        let answer = wire::frame(kind::PING, flag::ACK, 0, ping);
        if self.between_frames() {
            self.out.put_slice(&answer);
        } else {
            self.waiting.put_slice(&answer);
        }
    }
}

fn length(head: &[u8; 9]) -> usize {
    let [l0, l1, l2, ..] = *head;
    u32::from_be_bytes([0, l0, l1, l2]) as usize
}

#[cfg(test)]
mod tests {
    use super::{Direction::*, *};

    fn ping(number: u8) -> Bytes {
        wire::frame(kind::PING, 0, 0, &[number; 8])
    }

    fn pong(number: u8) -> Bytes {
        wire::frame(kind::PING, flag::ACK, 0, &[number; 8])
    }

    fn all(lanes: &Lanes, direction: Direction, muted: bool) -> Bytes {
        lanes.take(direction, muted, usize::MAX)
    }

    #[test]
    fn a_mute_holds_frames_answers_pings_and_begins_between_frames() {
        let (request, reply) = (
            wire::data(1, b"request", true),
            wire::data(1, b"reply", true),
        );
        let settings = wire::settings(&[]);
        let wire = [&PREFACE[..], &settings, &request, &ping(7), &request].concat();
        // Wherever the mute falls and the bytes break.
        for cut in 0..wire.len() {
            let lanes = Lanes::new();
            let half = reply.len() / 2;
            lanes.feed(ToClient, &reply[..half], false);
            assert_eq!(lanes.feed(ToServer, &wire[..cut], false), 0);
            let mut out = all(&lanes, ToServer, true).to_vec();
            let mut pings = 0;
            for byte in &wire[cut..] {
                pings += lanes.feed(ToServer, &[*byte], true);
            }
            out.extend_from_slice(&all(&lanes, ToServer, true));
            // The answer waits for the frame that has begun.
            assert_eq!(all(&lanes, ToClient, true), reply[..half]);
            lanes.feed(ToClient, &reply[half..], true);
            let rest = [&reply[half..], &pong(7).repeat(pings as usize)[..]].concat();
            assert_eq!(all(&lanes, ToClient, true), rest, "muted at {cut}");
            out.extend_from_slice(&all(&lanes, ToServer, false));
            let (before, after) = wire.split_at(wire.len() - request.len());
            let before = if pings == 1 {
                &before[..before.len() - 17]
            } else {
                before
            };
            assert_eq!(out, [before, after].concat(), "muted at {cut}");
        }
    }

    #[test]
    fn what_is_not_http_2_waits() {
        let lanes = Lanes::new();
        assert_eq!(lanes.feed(ToServer, b"GET / HTTP/1.1\r\n\r\n", true), 0);
        assert_eq!(lanes.feed(ToClient, b"HTTP/1.1 200 OK\r\n\r\n", true), 0);
        assert!(all(&lanes, ToServer, true).is_empty() && all(&lanes, ToClient, true).is_empty());
        assert_eq!(all(&lanes, ToServer, false), b"GET / HTTP/1.1\r\n\r\n"[..]);
        assert_eq!(all(&lanes, ToClient, false), b"HTTP/1.1 200 OK\r\n\r\n"[..]);
    }
}
