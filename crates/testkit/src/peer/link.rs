//! The HTTP/2 state of one connection, and what it sends. No I/O.

use super::{
    Last, Script,
    state::{Connection, PeerState},
    stream::{self, Command, Context, Phase, StreamEnd},
};
use crate::wire::{self, Decoder, FrameReader, setting};
use bytes::{BufMut, BytesMut};
use std::collections::HashMap;
use tokio::{sync::watch, task::JoinSet, time::Instant};

/// How the connection is to end, once everything queued is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The socket is closed as it is.
    Closed,
    Fin,
    TcpReset,
    /// The peer stays, reads and says nothing.
    Drain,
}

/// A header block of which more is to come.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end: bool,
    pub(super) bytes: BytesMut,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) reader: FrameReader,
    pub(super) out: BytesMut,
    pub(super) end: Option<End>,
    pub(super) script: Script,
    pub(super) context: Context,
    pub(super) decoder: Decoder,
    pub(super) block: Option<Block>,
    pub(super) phases: HashMap<u32, watch::Sender<Phase>>,
    pub(super) tasks: JoinSet<()>,
    pub(super) highest: u32,
    /// The last stream that a GOAWAY of ours admits.
    pub(super) admitted: Option<u32>,
    /// Nothing is written any more: by the script, or because the client has closed.
    deaf: bool,
    /// The next bytes from the client are answered with a reset.
    pub(super) forgotten: bool,
    answers: u64,
    pub(super) last_ping: Option<Instant>,
}

impl Link {
    /// A connection that has only its SETTINGS to send.
    pub(super) fn new(script: Script, context: Context) -> Self {
        let values = [
            (
                setting::MAX_CONCURRENT_STREAMS,
                script.settings.max_concurrent_streams,
            ),
            (setting::INITIAL_WINDOW_SIZE, script.settings.initial_window),
            (
                setting::MAX_HEADER_LIST_SIZE,
                script.settings.max_header_list,
            ),
        ];
        let announced: Vec<_> = values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        Self {
            reader: FrameReader::default(),
            out: BytesMut::from(&wire::settings(&announced)[..]),
            end: None,
            context,
            decoder: Decoder::new(),
            block: None,
            phases: HashMap::new(),
            tasks: JoinSet::new(),
            highest: 0,
            admitted: None,
            deaf: script.deaf_after == Some(0),
            forgotten: false,
            answers: 0,
            last_ping: None,
            script,
        }
    }

    /// Does what a stream's task asks.
    pub(super) fn command(&mut self, command: Command) {
        if self.deaf {
            return;
        }
        match command {
            Command::Write {
                stream,
                bytes,
                data,
                end,
            } => {
                self.write(&bytes);
                self.note(|connection| connection.data_sent += data as u64);
                if let Some(end) = end {
                    self.ended(stream, end);
                }
            }
            Command::Goaway {
                stream,
                code,
                last,
                debug,
            } => {
                let last = match last {
                    Last::Zero => 0,
                    Last::This if stream > 0 => stream,
                    Last::This | Last::Highest => self.highest,
                    Last::Max => 0x7fff_ffff,
                    Last::Id(stream) => stream,
                };
                self.write(&wire::goaway(last, code, &debug));
                self.admitted = Some(last);
                self.note(|connection| connection.open_streams.retain(|stream| *stream <= last));
            }
            Command::Run(answer) => {
                let (_, phase) = watch::channel(Phase::default());
                self.tasks
                    .spawn(stream::answer(self.context.clone(), 0, phase, answer));
            }
            Command::Forget => self.forget(),
            Command::Fin => self.end = Some(End::Fin),
            Command::TcpReset => self.end = Some(End::TcpReset),
        }
    }

    /// Whether an answer was given, and nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.answers > 0 && self.phases.is_empty() && self.out.is_empty() && !self.forgotten
    }

    /// Writes nothing more but what is queued, and answers the client's next bytes with a reset.
    pub(super) fn forget(&mut self) {
        self.deaf = true;
        self.forgotten = true;
        self.note(|connection| connection.forgotten = true);
    }

    /// Nothing can be written any more.
    pub(super) fn fall_silent(&mut self) {
        self.deaf = true;
        self.out.clear();
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        if !self.deaf {
            self.out.put_slice(bytes);
        }
    }

    pub(super) fn fail(&mut self, code: u32) {
        self.write(&wire::goaway(self.highest, code, b""));
        self.end = Some(End::Fin);
    }

    pub(super) fn state(&self, change: impl FnOnce(&mut PeerState)) {
        self.context.state.send_modify(change);
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut Connection)) {
        self.state(|state| {
            if let Some(connection) = state.connection(self.context.number) {
                change(connection);
            }
        });
    }

    /// A frame of ours ended the stream.
    fn ended(&mut self, stream: u32, end: StreamEnd) {
        self.phases.remove(&stream);
        self.context.flow.close(stream);
        let mut answers = 0;
        self.note(|connection| {
            if connection.open_streams.remove(&stream) && end == StreamEnd::Answered {
                connection.answers += 1;
            }
            answers = connection.answers;
        });
        self.answers = answers;
        self.deaf |= self.script.deaf_after.is_some_and(|limit| answers >= limit);
    }
}
