//! The check of a body that wraps another one.

use super::{
    Probe, Violation, Violations,
    probe::{judge, settle},
};
use crate::body::{BodyError, BodyScript, BodyWatch, ScriptBody};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use std::{
    error::Error,
    pin::{Pin, pin},
    task::Poll,
};

/// Checks a body that wraps another one and passes its frames on unchanged: see [`BodyCheck`].
///
/// ```
/// use http_body_util::{BodyStream, StreamBody};
/// use steadfast_testkit::contract::{Violation, check_body};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // A body that never tells how much comes hides its inner one's hint.
/// let found = check_body(async |inner| StreamBody::new(BodyStream::new(inner))).await.unwrap_err();
/// assert!(found.contains(|violation| *violation == Violation::SizeHintLost));
/// # }
/// ```
///
/// # Errors
/// Each breach of the contract that was found.
pub async fn check_body<M, B>(make: M) -> Result<(), Violations>
where
    M: AsyncFn(ScriptBody) -> B,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    BodyCheck::new(make).run().await
}

/// Drives a body that wraps a scripted one through all ends of a body: trailers, `None`, an error, `is_end_stream` after a data
/// frame, a drop at each point, and a body that is at its end when it comes.
///
/// It checks that no frame is lost, changed or made up; that `size_hint` and `is_end_stream` are passed on and true; that the
/// end is the end; that Pending keeps the last waker and does not spin; that a drop drops the inner body; and that an error
/// keeps its source.
#[derive(Debug)]
pub struct BodyCheck<M> {
    make: M,
    after_error: bool,
}

/// What the inner body does, and what must come.
#[derive(Clone, Debug)]
enum Event {
    Data(&'static str),
    Status(u32),
    Error,
}

struct Case {
    name: &'static str,
    events: Vec<Event>,
    /// Whether the inner body tells its end by `is_end_stream`.
    tells_end: bool,
}

impl Case {
    fn all() -> [Self; 7] {
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

    fn script(&self, waits: bool) -> BodyScript {
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

    fn fails(&self) -> bool {
        matches!(self.events.last(), Some(Event::Error))
    }
}

type Frames<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

impl<M, B> BodyCheck<M>
where
    M: AsyncFn(ScriptBody) -> B,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A check of the body that `make` puts around another one.
    pub fn new(make: M) -> Self {
        Self {
            make,
            after_error: true,
        }
    }

    /// Whether a body must be at its end after an error. http-body leaves that open: readers must not ask again. Default: yes.
    pub fn after_error(mut self, after_error: bool) -> Self {
        self.after_error = after_error;
        self
    }

    /// Runs all scenarios.
    ///
    /// # Errors
    /// Each breach of the contract that was found.
    pub async fn run(&self) -> Result<(), Violations> {
        let mut found = Violations::default();
        for case in Case::all() {
            for waits in [false, true] {
                let breaches = self.read(&case, waits).await;
                found.add(case.name, breaches);
            }
            found.add("a drop", self.drops(&case).await);
        }
        found.add("Pending", self.pending().await.err());
        found.into_result()
    }

    async fn start(&self, script: BodyScript) -> (Pin<Box<B>>, BodyWatch) {
        let (inner, watch) = script.start();
        (Box::pin((self.make)(inner).await), watch)
    }

    /// Reads to the end, and past it.
    async fn read(&self, case: &Case, waits: bool) -> Vec<Violation> {
        let mut found = Vec::new();
        let (mut body, watch) = self.start(case.script(waits)).await;
        let probe = Probe::new();
        for (at, event) in case.events.iter().enumerate() {
            found.extend(hints(case, at, &*body));
            let mut polled = probe
                .poll(|context| body.as_mut().poll_frame(context))
                .await;
            if waits && polled.as_ref().is_ok_and(Poll::is_pending) {
                watch.release();
                polled = probe
                    .poll(|context| body.as_mut().poll_frame(context))
                    .await;
            }
            match polled.map(|polled| compare::<B>(event, polled)) {
                Ok(Ok(())) => {}
                Ok(Err(violation)) | Err(violation) => {
                    found.push(violation);
                    return found;
                }
            }
        }
        if !case.fails() {
            found.extend(hints(case, case.events.len(), &*body));
        } else if !self.after_error {
            return found;
        }
        for _ in 0..2 {
            match probe
                .poll(|context| body.as_mut().poll_frame(context))
                .await
            {
                Ok(Poll::Ready(None)) => {}
                Ok(Poll::Ready(Some(_))) => found.push(Violation::FrameAfterEnd),
                Ok(Poll::Pending) => found.push(Violation::WakerLost),
                Err(violation) => found.push(violation),
            }
        }
        drop(body);
        found.extend(released(&watch).await);
        found
    }

    /// Drops the body after each number of polls.
    async fn drops(&self, case: &Case) -> Option<Violation> {
        for polls in 0..=case.events.len() * 2 {
            let (mut body, watch) = self.start(case.script(true)).await;
            let probe = Probe::new();
            for _ in 0..polls {
                let polled = probe
                    .poll(|context| body.as_mut().poll_frame(context))
                    .await;
                match polled {
                    Ok(Poll::Pending) => watch.release(),
                    Ok(Poll::Ready(Some(Ok(_)))) => {}
                    _ => break,
                }
            }
            drop(body);
            if let Some(violation) = released(&watch).await {
                return Some(violation);
            }
        }
        None
    }

    /// Pending twice, from two tasks, then news.
    async fn pending(&self) -> Result<(), Violation> {
        let (body, watch) = self.start(ScriptBody::new().wait().data("one")).await;
        let mut body = pin!(body);
        let (first, last) = (Probe::new(), Probe::new());
        for probe in [&first, &last] {
            if probe
                .poll(|context| body.as_mut().poll_frame(context))
                .await?
                .is_ready()
            {
                return Err(Violation::Unexpected(
                    "Ready while the inner body waits".to_owned(),
                ));
            }
        }
        let polls = watch.polls();
        watch.wake();
        settle().await;
        last.poll(|context| body.as_mut().poll_frame(context))
            .await
            .map(drop)?;
        if watch.polls() > polls + 8 {
            return Err(Violation::Spins);
        }
        let before = (first.wakes(), last.wakes());
        watch.release();
        settle().await;
        judge((&first, before.0), (&last, before.1))
    }
}

async fn released(watch: &BodyWatch) -> Option<Violation> {
    settle().await;
    (!watch.is_dropped()).then_some(Violation::NotReleased {
        what: "inner bodies",
        count: 1,
    })
}

/// What the body says of itself before its event number `at`.
fn hints<B: Body>(case: &Case, at: usize, body: &B) -> Vec<Violation> {
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
fn compare<B>(event: &Event, polled: Poll<Frames<B>>) -> Result<(), Violation>
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
