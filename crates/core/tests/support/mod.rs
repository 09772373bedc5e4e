//! Doubles for the tests of this package: a scripted body, an observer that writes down what it was
//! told, and wakers that count.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, response::Parts};
use http_body::{Body, Frame, SizeHint};
use steadfast_core::{BoxError, End, Observe};

/// One answer of a [`Script`] to one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Data(&'static str),
    Trailers(&'static str),
    Fail(&'static str),
    Pending,
}

/// A body that answers each poll with its next step and `None` when there is none left.
#[derive(Debug)]
pub(crate) struct Script {
    steps: VecDeque<Step>,
    /// Whether `is_end_stream` tells when no step is left.
    tells_end: bool,
    hint: Option<u64>,
    alive: Arc<()>,
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            tells_end: false,
            hint: None,
            alive: Arc::new(()),
        }
    }

    pub(crate) fn tells_end(mut self) -> Self {
        self.tells_end = true;
        self
    }

    pub(crate) fn with_hint(mut self, exact: u64) -> Self {
        self.hint = Some(exact);
        self
    }

    /// Its strong count is 1 once the body was dropped.
    pub(crate) fn alive(&self) -> Arc<()> {
        Arc::clone(&self.alive)
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.steps.pop_front() {
            None => Poll::Ready(None),
            // Pending: these tests poll by hand.
            Some(Step::Pending) => Poll::Pending,
            Some(Step::Data(data)) => {
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(data.as_bytes())))))
            }
            Some(Step::Trailers(status)) => {
                Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
            }
            Some(Step::Fail(text)) => Poll::Ready(Some(Err(Broken::new(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tells_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Trailers with this grpc-status.
pub(crate) fn trailers(status: &'static str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", http::HeaderValue::from_static(status));
    map
}

/// An error with a source, as wrappers between layers make them.
#[derive(Debug)]
pub(crate) struct Broken {
    text: &'static str,
    source: Option<BoxError>,
}

impl Broken {
    pub(crate) fn new(text: &'static str) -> Self {
        Self { text, source: None }
    }

    pub(crate) fn around(text: &'static str, source: impl Into<BoxError>) -> Self {
        Self {
            text,
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// What a [`Recorder`] was told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Head(u16),
    Waiting,
    Data(Bytes),
    Eos,
    Trailers(String),
    Failed(String),
    Dropped,
}

/// The notes of a [`Recorder`]; a clone stays with the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Told>>>);

impl Notes {
    pub(crate) fn observer(&self) -> Recorder {
        Recorder {
            notes: self.clone(),
            ends_at: None,
            waits: 0,
        }
    }

    /// An observer that ends the exchange at its `nth` wait, counted from 1.
    pub(crate) fn ending_at(&self, nth: usize) -> Recorder {
        Recorder {
            ends_at: Some(nth),
            ..self.observer()
        }
    }

    pub(crate) fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    /// Everything but the waits.
    pub(crate) fn events(&self) -> Vec<Told> {
        let mut told = self.all();
        told.retain(|t| *t != Told::Waiting);
        told
    }

    pub(crate) fn ends(&self) -> usize {
        self.all().iter().filter(|t| is_end(t)).count()
    }

    fn write(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }
}

pub(crate) fn is_end(told: &Told) -> bool {
    matches!(
        told,
        Told::Eos | Told::Trailers(_) | Told::Failed(_) | Told::Dropped
    )
}

#[derive(Debug)]
pub(crate) struct Recorder {
    notes: Notes,
    ends_at: Option<usize>,
    waits: usize,
}

impl Observe for Recorder {
    fn head(&mut self, head: &Parts) {
        self.notes.write(Told::Head(head.status.as_u16()));
    }

    fn waiting(&mut self, _cx: &mut Context<'_>) -> Poll<BoxError> {
        self.notes.write(Told::Waiting);
        self.waits += 1;
        if self.ends_at == Some(self.waits) {
            Poll::Ready(Broken::new("ended here").into())
        } else {
            // Pending: these tests poll by hand.
            Poll::Pending
        }
    }

    fn data(&mut self, data: &Bytes) {
        self.notes.write(Told::Data(data.clone()));
    }

    fn end(self, end: End<'_>) {
        self.notes.write(match end {
            End::Eos => Told::Eos,
            End::Trailers(map) => Told::Trailers(map["grpc-status"].to_str().unwrap().to_owned()),
            End::Failed(error) => Told::Failed(error.to_string()),
            End::Dropped => Told::Dropped,
        });
    }
}

/// A waker that counts how often it was woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What one poll of a body gave.
pub(crate) type Polled<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

/// Polls a body once with a waker that does nothing.
pub(crate) fn poll_frame<B: Body + Unpin>(body: &mut B) -> Polled<B> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}
