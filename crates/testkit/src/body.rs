//! A response body that follows a script.
//!
//! ```
//! use http_body_util::BodyExt;
//! use steadfast_testkit::body::ScriptBody;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (body, watch) = ScriptBody::new().data("one").wait().status(0).start();
//! let reader = tokio::spawn(body.collect());
//! while watch.wakers() == 0 {
//!     tokio::task::yield_now().await; // until the reader waits for the second frame
//! }
//! watch.release();
//! let read = reader.await.unwrap().unwrap();
//! assert_eq!(read.trailers().unwrap()["grpc-status"], "0");
//! assert!(watch.is_dropped());
//! # }
//! ```

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::VecDeque,
    error, fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// The error of a scripted body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyError(String);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for BodyError {}

#[derive(Debug)]
enum Event {
    Data(Bytes),
    Trailers(HeaderMap),
    Error(BodyError),
    Wait,
}

/// What a scripted body is asked to do; [`start`](Self::start) makes the body.
///
/// Without lies the body is honest: `is_end_stream` is true once nothing is left, and `size_hint` is exact.
#[derive(Debug, Default)]
pub struct BodyScript {
    events: VecDeque<Event>,
    end_stream: Option<bool>,
    size_hint: Option<SizeHint>,
}

impl BodyScript {
    fn then(mut self, event: Event) -> Self {
        self.events.push_back(event);
        self
    }

    /// A data frame.
    pub fn data(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Event::Data(bytes.into()))
    }

    /// A gRPC message in one data frame: the five-byte prefix is added.
    pub fn message(self, payload: &[u8]) -> Self {
        let length = u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_be_bytes();
        self.data([&[0], &length[..], payload].concat())
    }

    /// A trailers frame.
    pub fn trailers(self, trailers: HeaderMap) -> Self {
        self.then(Event::Trailers(trailers))
    }

    /// A trailers frame with this `grpc-status`.
    pub fn status(self, code: u32) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(code));
        self.trailers(trailers)
    }

    /// An error. What comes after it in the script is given too, if the reader goes on.
    pub fn error(self, message: &str) -> Self {
        self.then(Event::Error(BodyError(message.to_owned())))
    }

    /// Pending, until [`BodyWatch::release`] is called once more.
    pub fn wait(self) -> Self {
        self.then(Event::Wait)
    }

    /// `is_end_stream` always says this, true or not.
    pub fn claim_end_stream(mut self, end: bool) -> Self {
        self.end_stream = Some(end);
        self
    }

    /// `size_hint` always says this, true or not.
    pub fn claim_size_hint(mut self, hint: SizeHint) -> Self {
        self.size_hint = Some(hint);
        self
    }

    /// The body, and the handle that watches it.
    pub fn start(self) -> (ScriptBody, BodyWatch) {
        let shared = Arc::new(Mutex::new(Shared {
            script: self,
            ..Shared::default()
        }));
        (ScriptBody(Arc::clone(&shared)), BodyWatch(shared))
    }
}

#[derive(Debug, Default)]
struct Shared {
    script: BodyScript,
    permits: u64,
    polls: u64,
    pending: u64,
    ends: u64,
    waker: Option<Waker>,
    dropped: bool,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that follows a [`BodyScript`].
#[derive(Debug)]
pub struct ScriptBody(Arc<Mutex<Shared>>);

impl ScriptBody {
    /// An empty script: a body that is at its end.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a body is made in steps, and always with its watch"
    )]
    pub fn new() -> BodyScript {
        BodyScript::default()
    }
}

impl Drop for ScriptBody {
    fn drop(&mut self) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.dropped = true;
            shared.waker.take()
        };
        // Outside the lock: dropping a waker may run a task's destructor.
        drop(waker);
    }
}

impl Body for ScriptBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut shared = lock(&self.0);
        shared.polls += 1;
        while let Some(Event::Wait) = shared.script.events.front() {
            if shared.permits == 0 {
                shared.pending += 1;
                // `BodyWatch::release` wakes it.
                let old = shared.waker.replace(context.waker().clone());
                drop(shared);
                drop(old);
                return Poll::Pending;
            }
            shared.permits -= 1;
            shared.script.events.pop_front();
        }
        Poll::Ready(match shared.script.events.pop_front() {
            Some(Event::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Event::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Some(Event::Error(error)) => Some(Err(error)),
            Some(Event::Wait) | None => {
                shared.ends += 1;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.0);
        shared
            .script
            .end_stream
            .unwrap_or_else(|| shared.script.events.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let shared = lock(&self.0);
        shared.script.size_hint.unwrap_or_else(|| {
            let left = shared.script.events.iter().map(|event| match event {
                Event::Data(bytes) => bytes.len() as u64,
                _ => 0,
            });
            SizeHint::with_exact(left.sum())
        })
    }
}

/// Watches and releases a [`ScriptBody`], also after that is gone.
#[derive(Clone, Debug)]
pub struct BodyWatch(Arc<Mutex<Shared>>);

impl BodyWatch {
    /// Lets the body pass one more wait, and wakes its reader. A release before the wait is kept for it.
    pub fn release(&self) {
        let waker = {
            let mut shared = lock(&self.0);
            shared.permits += 1;
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the reader without need, as a transport may.
    pub fn wake(&self) {
        let waker = lock(&self.0).waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How often `poll_frame` was called.
    pub fn polls(&self) -> u64 {
        lock(&self.0).polls
    }

    /// How often it said `Pending`. A reader that spins shows here.
    pub fn pending_polls(&self) -> u64 {
        lock(&self.0).pending
    }

    /// How often it said that the body is at its end; more than once if the reader asks again.
    pub fn ends(&self) -> u64 {
        lock(&self.0).ends
    }

    /// How many wakers are stored: 1 while a reader waits, else 0.
    pub fn wakers(&self) -> usize {
        usize::from(lock(&self.0).waker.is_some())
    }

    /// How many steps of the script are left, waits included.
    pub fn left(&self) -> usize {
        lock(&self.0).script.events.len()
    }

    /// Whether the body was dropped.
    pub fn is_dropped(&self) -> bool {
        lock(&self.0).dropped
    }
}
