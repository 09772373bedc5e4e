//! The check of a body that wraps another one.

use super::{
    Probe, Violation, Violations,
    case::{Case, compare, hints},
    probe::{judge, settle},
};
use crate::body::{BodyScript, BodyWatch, ScriptBody};
use http_body::Body;
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
///
/// ```
/// use http_body_util::BodyExt;
/// use steadfast_testkit::contract::BodyCheck;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // It asks the inner body again after an error, if its reader does.
/// let check = BodyCheck::new(async |inner: steadfast_testkit::body::ScriptBody| inner.boxed());
/// check.after_error(false).run().await.unwrap();
/// # }
/// ```
#[derive(Debug)]
pub struct BodyCheck<M> {
    make: M,
    after_error: bool,
}

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
