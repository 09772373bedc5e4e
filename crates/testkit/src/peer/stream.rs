//! One request's answer: the task that performs its steps.

use super::{Answer, Last, PeerState, Respond, Step, flow::Flow};
use crate::wire::{self, flag, kind};
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time,
};

/// Bytes that are kept of a request's body.
const KEPT: usize = 1 << 20;

/// What the client has done with its side of a stream.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) ended: bool,
    pub(super) reset: bool,
    body: Vec<u8>,
}

impl Phase {
    pub(super) fn data(&mut self, data: &[u8]) {
        let room = KEPT - self.body.len();
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }
}

/// What a stream's task asks of the connection, which alone writes to the socket.
#[derive(Debug)]
pub(super) enum Command {
    /// Put these bytes on the connection.
    Write {
        stream: u32,
        bytes: Bytes,
        /// DATA bytes among them.
        data: usize,
        end: Option<StreamEnd>,
    },
    Goaway {
        stream: u32,
        code: u32,
        last: Last,
        debug: Bytes,
    },
    /// Perform these steps as stream 0.
    Run(Answer),
    Forget,
    Fin,
    TcpReset,
}

/// How a frame from the peer ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Answered,
    Reset,
}

/// What the tasks of one connection share.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) number: u64,
    pub(super) state: watch::Sender<PeerState>,
    pub(super) gate: Arc<Semaphore>,
    pub(super) flow: Arc<Flow>,
    pub(super) commands: mpsc::Sender<Command>,
}

/// Performs an answer; ends when nothing more can happen on the stream.
pub(super) async fn answer(
    context: Context,
    stream: u32,
    phase: watch::Receiver<Phase>,
    answer: Answer,
) {
    let Answer { steps, after_reset } = answer;
    let mut resets = phase.clone();
    let performed = async {
        perform(&context, stream, phase.clone(), steps).await;
        if !after_reset.is_empty() {
            // The reset is still to come; the other branch ends this wait, or the connection's end aborts the task.
            std::future::pending::<()>().await;
        }
    };
    let reset = async {
        if resets.wait_for(|phase| phase.reset).await.is_err() {
            // The answer is complete, so no reset will be noted any more.
            std::future::pending::<()>().await;
        }
    };
    let was_reset = tokio::select! {
        biased;
        () = reset => true,
        () = performed => false,
    };
    if was_reset {
        perform(&context, stream, phase.clone(), after_reset).await;
    }
}

async fn perform(
    context: &Context,
    stream: u32,
    mut phase: watch::Receiver<Phase>,
    steps: Vec<Step>,
) {
    let mut steps = VecDeque::from(steps);
    while let Some(step) = steps.pop_front() {
        let sent = match step {
            Step::Respond(Respond(respond)) => {
                let body = match phase.wait_for(|phase| phase.ended).await {
                    Ok(phase) => phase.body.clone(),
                    Err(_) => return,
                };
                for step in respond(&body).into_iter().rev() {
                    steps.push_front(step);
                }
                true
            }
            Step::AwaitRequest => {
                // An error means that the answer was complete first: there is nothing to wait for.
                let _ = phase.wait_for(|phase| phase.ended).await;
                true
            }
            Step::Hold => {
                hold(context).await;
                true
            }
            Step::Wait(time) => {
                time::sleep(time).await;
                true
            }
            Step::Message(payload) => {
                let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                let framed = [&[0], &length.to_be_bytes()[..], &payload].concat();
                send_data(context, stream, &framed, false).await
            }
            Step::Data { bytes, end } => send_data(context, stream, &bytes, end).await,
            other => context.commands.send(plain(other, stream)).await.is_ok(),
        };
        if !sent {
            return;
        }
    }
}

/// The command for a step that needs no waiting.
fn plain(step: Step, stream: u32) -> Command {
    let write = |bytes, end| Command::Write {
        stream,
        bytes,
        data: 0,
        end,
    };
    match step {
        Step::Headers {
            status,
            fields,
            end,
        } => {
            let status_text = status.to_string();
            let mut block = vec![(":status", status_text.as_str())];
            if status >= 200 && !fields.iter().any(|(name, _)| name == "content-type") {
                block.push(("content-type", "application/grpc"));
            }
            block.extend(
                fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            let frames = wire::header_frames(stream, &super::header_block(&block), end);
            write(frames, end.then_some(StreamEnd::Answered))
        }
        Step::Trailers(fields) => {
            let block: Vec<_> = fields
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            let frames = wire::header_frames(stream, &super::header_block(&block), true);
            write(frames, Some(StreamEnd::Answered))
        }
        Step::Rst(code) => write(wire::rst(stream, code), Some(StreamEnd::Reset)),
        Step::Goaway { code, last, debug } => Command::Goaway {
            stream,
            code,
            last,
            debug,
        },
        Step::Forget => Command::Forget,
        Step::Fin => Command::Fin,
        Step::TcpReset => Command::TcpReset,
        Step::Frame {
            kind,
            flags,
            stream: other,
            payload,
        } => {
            let stream = other.unwrap_or(stream);
            let end = match kind {
                kind::RST_STREAM => Some(StreamEnd::Reset),
                kind::DATA | kind::HEADERS if flags & flag::END_STREAM != 0 => {
                    Some(StreamEnd::Answered)
                }
                _ => None,
            };
            let data = if kind == kind::DATA { payload.len() } else { 0 };
            Command::Write {
                stream,
                bytes: wire::frame(kind, flags, stream, &payload),
                data,
                end,
            }
        }
        Step::Bytes(bytes) => write(bytes, None),
        // These wait, so `perform` deals with them itself.
        Step::AwaitRequest
        | Step::Respond(_)
        | Step::Hold
        | Step::Wait(_)
        | Step::Message(_)
        | Step::Data { .. } => write(Bytes::new(), None),
    }
}

/// Sends DATA in as many frames as the windows make of it; false if the connection is gone.
async fn send_data(context: &Context, stream: u32, bytes: &[u8], end: bool) -> bool {
    let mut rest = bytes;
    loop {
        let taken = context.flow.take(stream, rest.len()).await;
        let (part, left) = rest.split_at(taken);
        rest = left;
        let last = end && rest.is_empty();
        let command = Command::Write {
            stream,
            bytes: wire::data(stream, part, last),
            data: taken,
            end: last.then_some(StreamEnd::Answered),
        };
        if context.commands.send(command).await.is_err() {
            return false;
        }
        if rest.is_empty() {
            return true;
        }
    }
}

async fn hold(context: &Context) {
    struct Held<'a>(&'a watch::Sender<PeerState>);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0
                .send_modify(|state| state.held = state.held.saturating_sub(1));
        }
    }
    context.state.send_modify(|state| state.held += 1);
    let _held = Held(&context.state);
    // An error means that the gate is open for good.
    if let Ok(permit) = context.gate.acquire().await {
        permit.forget();
    }
}
