//! What the inner body does in each scenario of the body check, and whether the outer one did the same.

use super::Violation;
use crate::body::{BodyError, BodyScript, ScriptBody};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use std::{error::Error, task::Poll};

/// What the inner body does, and what must come.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Data(&'static str),
    Status(u32),
    Error,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) events: Vec<Event>,
    /// Whether the inner body tells its end by `is_end_stream`.
    tells_end: bool,
}

impl Case {
    pub(super) fn all() -> [Self; 7] {
        use Event::{Data, Error, Status};
        let case = |name, events: &[Event], tells_end| Self {
            name,
            events: events.to_vec(),
            tells_end,
        };
        [
            case("trailers", &[Data("one"), Data("two"), Status(0)], true),
            case("trailers only", &[Status(5)], true),
            case("None", &[Data("one"), Data("two")], false),
            case("is_end_stream", &[Data("one"), Data("two")], true),
            case("empty frames", &[Data(""), Data("one"), Data("")], true),
            case("an error", &[Data("one"), Error], true),
            case("at its end when it comes", &[], true),
        ]
    }

    pub(super) fn script(&self, waits: bool) -> BodyScript {
        let mut script = ScriptBody::new();
        for event in &self.events {
            if waits {
                script = script.wait();
            }
            script = match event {
                Event::Data(text) => script.data(*text),
                Event::Status(code) => script.status(*code),
                // What comes after an error must not come out.
                Event::Error => script.error("broken").data("late"),
            };
        }
        if self.tells_end {
            script
        } else {
            script.claim_end_stream(false)
        }
    }

    pub(super) fn fails(&self) -> bool {
        matches!(self.events.last(), Some(Event::Error))
    }
}

type Frames<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// What the body says of itself before its event number `at`.
pub(super) fn hints<B: Body>(case: &Case, at: usize, body: &B) -> Vec<Violation> {
    let left = case.events.get(at..).unwrap_or_default();
    let bytes = left.iter().map(|event| match event {
        Event::Data(text) => text.len() as u64,
        _ => 0,
    });
    let bytes: u64 = bytes.sum();
    let mut found = Vec::new();
    match (body.is_end_stream(), left.is_empty()) {
        (true, false) => found.push(Violation::EndStreamWrong),
        (false, true) if case.tells_end => found.push(Violation::EndStreamLost),
        _ => {}
    }
    // Of a body that will fail, nobody can tell how much comes.
    let hint = body.size_hint();
    if !case.fails() && hint.exact() != Some(bytes) {
        let possible = hint.lower() <= bytes && hint.upper().is_none_or(|upper| bytes <= upper);
        found.push(if possible {
            Violation::SizeHintLost
        } else {
            Violation::SizeHintWrong
        });
    }
    found
}

/// Whether a poll gave what the event says.
pub(super) fn compare<B>(event: &Event, polled: Poll<Frames<B>>) -> Result<(), Violation>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let came = match polled {
        Poll::Pending => return Err(Violation::WakerLost),
        Poll::Ready(None) if matches!(event, Event::Error) => {
            return Err(Violation::ErrorSwallowed);
        }
        Poll::Ready(None) => "None".to_owned(),
        Poll::Ready(Some(Err(error))) => {
            let error: Box<dyn Error + Send + Sync> = error.into();
            match event {
                Event::Error if has_source(&*error) => return Ok(()),
                Event::Error => return Err(Violation::SourceLost),
                _ => error.to_string(),
            }
        }
        Poll::Ready(Some(Ok(frame))) => match (frame.into_data(), event) {
            (Ok(mut data), _) => {
                let data = data.copy_to_bytes(data.remaining());
                match event {
                    Event::Data(text) if data == text.as_bytes() => return Ok(()),
                    _ => format!("{:?}", Event::text(&data)),
                }
            }
            (Err(frame), event) => match (frame.into_trailers(), event) {
                (Ok(trailers), Event::Status(code))
                    if trailers["grpc-status"] == code.to_string().as_str() =>
                {
                    return Ok(());
                }
                (trailers, _) => format!("{:?}", trailers.ok()),
            },
        },
    };
    let expected = format!("{event:?}");
    Err(Violation::FrameWrong { expected, came })
}

impl Event {
    fn text(data: &Bytes) -> String {
        String::from_utf8_lossy(data).into_owned()
    }
}

fn has_source(error: &(dyn Error + 'static)) -> bool {
    error.is::<BodyError>() || error.source().is_some_and(has_source)
}
