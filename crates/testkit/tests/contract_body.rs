//! The check of bodies: good wrappers pass, and each broken one fails for what it breaks.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::{
    error::Error,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use steadfast_testkit::{
    body::ScriptBody,
    contract::{BodyCheck, Violation, Violations, check_body},
};

type BoxError = Box<dyn Error + Send + Sync>;

/// What a broken body breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaks {
    Nothing,
    LosesFramesWhilePending,
    ChangesData,
    LosesTrailers,
    EndsTwice,
    GoesOnAfterError,
    HidesEndStream,
    ClaimsEndStream,
    HidesSizeHint,
    LiesSizeHint,
    Spins,
    LosesWaker,
    KeepsFirstWaker,
    LeaksInner,
    LosesSource,
    SwallowsError,
    TrustsEndStream,
}

use Breaks::*;

struct Broken {
    inner: Option<ScriptBody>,
    last: Option<Bytes>,
    waited: bool,
    ended: bool,
    waker: Option<Waker>,
    breaks: Breaks,
}

impl Broken {
    fn new(inner: ScriptBody, breaks: Breaks) -> Self {
        Self {
            inner: Some(inner),
            last: None,
            waited: false,
            ended: false,
            waker: None,
            breaks,
        }
    }

    fn inner(&self) -> &ScriptBody {
        self.inner.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if self.breaks == LeaksInner {
            mem::forget(self.inner.take());
        }
    }
}

impl Body for Broken {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let inner = this.inner.as_mut().expect("it is there until the drop");
        if this.ended && this.breaks != GoesOnAfterError {
            return Poll::Ready(None);
        }
        if this.breaks == TrustsEndStream && this.last.is_some() {
            return Poll::Ready(None);
        }
        let waker = match this.breaks {
            LosesWaker | Spins => Waker::noop().clone(),
            KeepsFirstWaker => this
                .waker
                .get_or_insert_with(|| context.waker().clone())
                .clone(),
            _ => context.waker().clone(),
        };
        let inner_context = &mut Context::from_waker(&waker);
        let Poll::Ready(polled) = Pin::new(&mut *inner).poll_frame(inner_context) else {
            this.waited = true;
            if this.breaks == Spins {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        if mem::take(&mut this.waited) && this.breaks == LosesFramesWhilePending {
            return self.poll_frame(context);
        }
        Poll::Ready(match polled {
            None if this.breaks == EndsTwice => this.last.take().map(|last| Ok(Frame::data(last))),
            None => None,
            Some(Err(_)) if this.breaks == SwallowsError => None,
            Some(Err(error)) => {
                this.ended = true;
                Some(Err(match this.breaks {
                    LosesSource => error.to_string().into(),
                    _ => error.into(),
                }))
            }
            Some(Ok(frame)) if frame.is_trailers() && this.breaks == LosesTrailers => None,
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(data) => {
                    this.last = Some(data.clone());
                    Frame::data(match this.breaks {
                        ChangesData => data.to_ascii_uppercase().into(),
                        _ => data,
                    })
                }
                Err(frame) => frame,
            })),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self.breaks {
            HidesEndStream => false,
            ClaimsEndStream => self.last.is_some() || self.inner().is_end_stream(),
            _ => self.ended || self.inner().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.breaks {
            HidesSizeHint => SizeHint::default(),
            LiesSizeHint => SizeHint::with_exact(2),
            _ => self.inner().size_hint(),
        }
    }
}

async fn check(breaks: Breaks) -> Result<(), Violations> {
    check_body(async |inner| Broken::new(inner, breaks)).await
}

#[tokio::test(start_paused = true)]
async fn each_broken_body_fails_for_what_it_breaks() {
    check(Nothing).await.unwrap();
    type Is = fn(&Violation) -> bool;
    let wrong: Is = |v| matches!(v, Violation::FrameWrong { .. });
    let cases: [(Breaks, Is); 16] = [
        (LosesFramesWhilePending, |v| *v == Violation::WakerLost),
        (ChangesData, wrong),
        (LosesTrailers, wrong),
        (TrustsEndStream, wrong),
        (EndsTwice, |v| *v == Violation::FrameAfterEnd),
        (GoesOnAfterError, |v| *v == Violation::FrameAfterEnd),
        (HidesEndStream, |v| *v == Violation::EndStreamLost),
        (ClaimsEndStream, |v| *v == Violation::EndStreamWrong),
        (HidesSizeHint, |v| *v == Violation::SizeHintLost),
        (LiesSizeHint, |v| *v == Violation::SizeHintWrong),
        (Spins, |v| *v == Violation::Spins),
        (LosesWaker, |v| *v == Violation::WakerLost),
        (KeepsFirstWaker, |v| *v == Violation::WakerStale),
        (LeaksInner, |v| matches!(v, Violation::NotReleased { .. })),
        (LosesSource, |v| *v == Violation::SourceLost),
        (SwallowsError, |v| *v == Violation::ErrorSwallowed),
    ];
    for (breaks, is_it) in cases {
        let found = check(breaks).await.expect_err(&format!("{breaks:?}"));
        assert!(found.contains(is_it), "{breaks:?}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn good_bodies_pass() {
    check_body(async |inner: ScriptBody| inner.map_err(BoxError::from))
        .await
        .expect_err("it goes on after an error");
    let check = BodyCheck::new(async |inner: ScriptBody| inner.map_err(BoxError::from));
    check.after_error(false).run().await.unwrap();
    let check = BodyCheck::new(async |inner: ScriptBody| inner.boxed());
    check.after_error(false).run().await.unwrap();
}
