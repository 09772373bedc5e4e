//! What the peer makes of each frame that a client sends.

use super::{
    Ping, Request, Reset,
    link::{Block, End, Link},
    state::Goaway,
    stream::{self, Phase},
};
use crate::clock::now;
use crate::wire::{self, Frame, flag, kind, setting};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use tokio::sync::watch;

/// The most bytes of one header block, over all its CONTINUATION frames.
const MAX_BLOCK: usize = 1024 * 1024;

const PROTOCOL_ERROR: u32 = 1;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

impl Link {
    /// Deals with every whole frame that has come.
    pub(super) fn received(&mut self) {
        while self.end.is_none() {
            match self.reader.next() {
                Ok(Some(frame)) => self.frame(frame),
                Ok(None) => return,
                Err(wire::Nonsense) => self.fail(PROTOCOL_ERROR),
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        if self.block.is_some() != (frame.kind == kind::CONTINUATION) {
            return self.fail(PROTOCOL_ERROR);
        }
        match frame.kind {
            kind::DATA => self.data(&frame),
            kind::HEADERS => match frame.content() {
                Some(bytes) => {
                    let end = frame.has(flag::END_STREAM);
                    let block = Block {
                        stream: frame.stream,
                        end,
                        bytes: BytesMut::from(&bytes[..]),
                    };
                    self.headers(block, frame.has(flag::END_HEADERS));
                }
                None => self.fail(PROTOCOL_ERROR),
            },
            kind::CONTINUATION => match self.block.take() {
                Some(mut block) if block.bytes.len() + frame.payload.len() <= MAX_BLOCK => {
                    block.bytes.put_slice(&frame.payload);
                    self.headers(block, frame.has(flag::END_HEADERS));
                }
                _ => self.fail(PROTOCOL_ERROR),
            },
            kind::RST_STREAM => self.reset(frame.stream, frame.number().unwrap_or(0)),
            kind::SETTINGS => self.settings(&frame),
            kind::PING => self.ping(&frame),
            kind::GOAWAY => self.goaway(&frame),
            kind::WINDOW_UPDATE => self
                .context
                .flow
                .update(frame.stream, frame.number().unwrap_or(0) & 0x7fff_ffff),
            // PRIORITY and what this peer does not know are ignored, as the protocol wants.
            _ => {}
        }
    }

    fn data(&mut self, frame: &Frame) {
        let length = frame.payload.len();
        self.note(|connection| connection.data_received += length as u64);
        let end = frame.has(flag::END_STREAM);
        if let (Some(phase), Some(content)) = (self.phases.get(&frame.stream), frame.content()) {
            phase.send_modify(|phase| phase.data(&content));
        }
        if self.script.window_updates && length > 0 {
            self.write(&wire::window_update(0, length as u32));
            if !end {
                self.write(&wire::window_update(frame.stream, length as u32));
            }
        }
        if end {
            self.request_ended(frame.stream);
        }
    }

    fn request_ended(&self, stream: u32) {
        if let Some(phase) = self.phases.get(&stream) {
            phase.send_modify(|phase| phase.ended = true);
        }
    }

    fn headers(&mut self, block: Block, complete: bool) {
        if !complete {
            self.block = Some(block);
            return;
        }
        let Ok(fields) = self.decoder.decode(&block.bytes) else {
            return self.fail(COMPRESSION_ERROR);
        };
        if block.stream > self.highest {
            self.request(block.stream, &fields);
        }
        // A block on an older stream is the request's trailers.
        if block.end {
            self.request_ended(block.stream);
        }
    }

    fn request(&mut self, stream: u32, fields: &[(Bytes, Bytes)]) {
        self.highest = stream;
        while self.tasks.try_join_next().is_some() {}
        let mut headers = HeaderMap::new();
        let mut path = String::new();
        for (name, value) in fields {
            if &name[..] == b":path" {
                path = String::from_utf8_lossy(value).into_owned();
            }
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                headers.append(name, value);
            }
        }
        let number = self.context.number;
        let refused = self.admitted.is_some_and(|last| stream > last);
        let mut request = Request {
            connection: number,
            stream,
            index: 0,
            order: 0,
            refused,
            path,
            headers: Arc::new(headers),
        };
        self.state(|state| {
            request.order = state.requests.len() as u64;
            if let Some(connection) = state.connection(number) {
                request.index = connection.requests;
                connection.requests += 1;
                if !refused {
                    connection.open_streams.insert(stream);
                }
            }
            state.requests.push(request.clone());
        });
        if refused {
            return;
        }
        self.context.flow.open(stream);
        let answer = (self.script.answers)(&request);
        let (sender, phase) = watch::channel(Phase::default());
        self.phases.insert(stream, sender);
        self.tasks
            .spawn(stream::answer(self.context.clone(), stream, phase, answer));
    }

    fn reset(&mut self, stream: u32, code: u32) {
        // The task must see the reset before the stream loses its window, or it would send without one.
        if let Some(phase) = self.phases.remove(&stream) {
            phase.send_modify(|phase| phase.reset = true);
        }
        self.context.flow.close(stream);
        let connection = self.context.number;
        self.state(|state| {
            if let Some(connection) = state.connection(connection) {
                connection.open_streams.remove(&stream);
            }
            state.resets.push(Reset {
                connection,
                stream,
                code,
            });
        });
    }

    fn settings(&mut self, frame: &Frame) {
        if frame.has(flag::ACK) {
            return self.note(|connection| connection.settings_acknowledged = true);
        }
        for entry in frame.payload.chunks_exact(6) {
            let [n0, n1, value @ ..] = entry else {
                continue;
            };
            if u16::from_be_bytes([*n0, *n1]) == setting::INITIAL_WINDOW_SIZE
                && let Ok(value) = value.try_into()
            {
                self.context.flow.initial(u32::from_be_bytes(value));
            }
        }
        self.write(&wire::frame(kind::SETTINGS, flag::ACK, 0, b""));
    }

    fn ping(&mut self, frame: &Frame) {
        if frame.has(flag::ACK) {
            return;
        }
        let mut idle = false;
        self.note(|connection| {
            connection.pings += 1;
            idle = connection.open_streams.is_empty();
        });
        if let Ping::Strict {
            min_gap,
            without_streams,
        } = self.script.ping
        {
            let now = now();
            let early = self
                .last_ping
                .replace(now)
                .is_some_and(|last| now - last < min_gap);
            if early || (idle && !without_streams) {
                self.write(&wire::goaway(
                    self.highest,
                    ENHANCE_YOUR_CALM,
                    b"too_many_pings",
                ));
                self.end = Some(End::Fin);
                return;
            }
        }
        if self.script.ping != Ping::Ignore {
            self.write(&wire::frame(kind::PING, flag::ACK, 0, &frame.payload));
        }
    }

    fn goaway(&self, frame: &Frame) {
        let Some((last, rest)) = frame.payload.split_first_chunk::<4>() else {
            return;
        };
        let Some((code, debug)) = rest.split_first_chunk::<4>() else {
            return;
        };
        let goaway = Goaway {
            connection: self.context.number,
            last: u32::from_be_bytes(*last),
            code: u32::from_be_bytes(*code),
            debug: Bytes::copy_from_slice(debug),
        };
        self.state(|state| state.goaways.push(goaway));
    }
}
