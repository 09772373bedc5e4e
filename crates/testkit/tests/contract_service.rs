//! The check of services: good layers pass, and each broken one fails for what it breaks.

use http::{Request, Response};
use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use steadfast_testkit::contract::{
    StrictBody, StrictError, StrictFuture, StrictService, Violation, Violations, check_service,
};
use tower::{BoxError, Service, ServiceExt, limit::ConcurrencyLimit, util::BoxCloneService};

type Answer = Result<Response<StrictBody>, BoxError>;

fn request() -> Request<()> {
    Request::new(())
}

/// What a broken layer breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaks {
    Nothing,
    NeverAsksReady,
    CallsAClone,
    CloneCarriesReadiness,
    ReservesTwice,
    UsesAfterError,
    SpinsUnready,
    SpinsHeld,
    LosesWakerUnready,
    LosesWakerHeld,
    KeepsFirstWaker,
    PollsAfterReady,
    LeaksService,
    LeaksFuture,
    KeepsFuture,
    KeepsBody,
    LosesSource,
    SwallowsError,
}

use Breaks::*;

struct Broken {
    inner: StrictService,
    spare: Option<StrictService>,
    ready: bool,
    breaks: Breaks,
}

impl Broken {
    fn new(inner: StrictService, breaks: Breaks) -> Self {
        Self {
            inner,
            spare: None,
            ready: false,
            breaks,
        }
    }
}

impl Clone for Broken {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.inner.clone(), self.breaks);
        clone.ready = self.ready && self.breaks == CloneCarriesReadiness;
        clone
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if self.breaks == LeaksService {
            mem::forget(self.inner.clone());
        }
    }
}

fn poll_inner(
    service: &mut StrictService,
    context: &mut Context<'_>,
) -> Poll<Result<(), StrictError>> {
    Service::<Request<()>>::poll_ready(service, context)
}

impl Service<Request<()>> for Broken {
    type Response = Response<StrictBody>;
    type Error = BoxError;
    type Future = BrokenFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let noop = &mut Context::from_waker(Waker::noop());
        if self.ready {
            return Poll::Ready(Ok(()));
        }
        let polled = match self.breaks {
            NeverAsksReady => return Poll::Ready(Ok(())),
            LosesWakerUnready => poll_inner(&mut self.inner, noop),
            SpinsUnready => {
                let polled = poll_inner(&mut self.inner, noop);
                if polled.is_pending() {
                    context.waker().wake_by_ref();
                }
                polled
            }
            ReservesTwice => {
                let spare = self.spare.get_or_insert_with(|| self.inner.clone());
                match poll_inner(spare, context) {
                    Poll::Ready(Ok(())) => poll_inner(&mut self.inner, context),
                    polled => polled,
                }
            }
            UsesAfterError => match poll_inner(&mut self.inner, context) {
                Poll::Ready(Err(_)) => poll_inner(&mut self.inner, context),
                polled => polled,
            },
            _ => poll_inner(&mut self.inner, context),
        };
        self.ready = matches!(polled, Poll::Ready(Ok(())));
        polled.map_err(|error| match self.breaks {
            LosesSource => error.to_string().into(),
            _ => error.into(),
        })
    }

    fn call(&mut self, request: Request<()>) -> BrokenFuture {
        self.ready = false;
        let inner = match self.breaks {
            CallsAClone => self.inner.clone().call(request),
            _ => self.inner.call(request),
        };
        BrokenFuture {
            inner: Some(inner),
            body: None,
            waker: None,
            breaks: self.breaks,
        }
    }
}

struct BrokenFuture {
    inner: Option<StrictFuture>,
    body: Option<StrictBody>,
    waker: Option<Waker>,
    breaks: Breaks,
}

impl Drop for BrokenFuture {
    fn drop(&mut self) {
        if self.breaks == LeaksFuture {
            mem::forget(self.inner.take());
        }
    }
}

impl Future for BrokenFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        let Some(inner) = this.inner.as_mut() else {
            panic!("polled after it resolved");
        };
        let waker = match this.breaks {
            LosesWakerHeld | SpinsHeld => Waker::noop().clone(),
            KeepsFirstWaker => this
                .waker
                .get_or_insert_with(|| context.waker().clone())
                .clone(),
            _ => context.waker().clone(),
        };
        let mut inner_context = Context::from_waker(&waker);
        let polled = Pin::new(&mut *inner).poll(&mut inner_context);
        if this.breaks == PollsAfterReady && polled.is_ready() {
            drop(Pin::new(inner).poll(&mut inner_context));
        }
        match polled {
            Poll::Pending => {
                if this.breaks == SpinsHeld {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
            Poll::Ready(answer) => {
                if this.breaks != KeepsFuture {
                    this.inner = None;
                }
                Poll::Ready(match answer {
                    Ok(response) if this.breaks == KeepsBody => {
                        let (head, body) = response.into_parts();
                        this.body = Some(body);
                        let (mut other, _) = StrictService::new();
                        drop(poll_inner(&mut other, context));
                        let made = pin_poll(&mut other.call(request()), context);
                        Ok(Response::from_parts(head, made.into_body()))
                    }
                    Ok(response) => Ok(response),
                    Err(error) if this.breaks == LosesSource => Err(error.to_string().into()),
                    Err(_) if this.breaks == SwallowsError => {
                        let (mut other, _) = StrictService::new();
                        drop(poll_inner(&mut other, context));
                        Ok(pin_poll(&mut other.call(request()), context))
                    }
                    Err(error) => Err(error.into()),
                })
            }
        }
    }
}

fn pin_poll(future: &mut StrictFuture, context: &mut Context<'_>) -> Response<StrictBody> {
    match Pin::new(future).poll(context) {
        Poll::Ready(Ok(response)) => response,
        other => panic!("{other:?}"),
    }
}

async fn check(breaks: Breaks) -> Result<(), Violations> {
    check_service(|inner| Broken::new(inner, breaks), request).await
}

#[tokio::test(start_paused = true)]
async fn each_broken_service_fails_for_what_it_breaks() {
    check(Nothing).await.unwrap();
    type Is = fn(&Violation) -> bool;
    let cases: [(Breaks, Is); 17] = [
        (NeverAsksReady, |v| *v == Violation::CalledUnready),
        (CallsAClone, |v| *v == Violation::CloneCarriedReadiness),
        (CloneCarriesReadiness, |v| {
            *v == Violation::CloneCarriedReadiness
        }),
        (ReservesTwice, |v| {
            matches!(
                v,
                Violation::ReadyNotUsed {
                    readies: 2,
                    calls: 1
                }
            )
        }),
        (UsesAfterError, |v| *v == Violation::UsedAfterError),
        (SpinsUnready, |v| *v == Violation::Spins),
        (SpinsHeld, |v| *v == Violation::Spins),
        (LosesWakerUnready, |v| *v == Violation::WakerLost),
        (LosesWakerHeld, |v| *v == Violation::WakerLost),
        (KeepsFirstWaker, |v| *v == Violation::WakerStale),
        (PollsAfterReady, |v| *v == Violation::PolledAfterReady),
        (LeaksService, |v| {
            matches!(
                v,
                Violation::NotReleased {
                    what: "inner services",
                    ..
                }
            )
        }),
        (LeaksFuture, |v| {
            matches!(
                v,
                Violation::NotReleased {
                    what: "inner futures",
                    ..
                }
            )
        }),
        (KeepsFuture, |v| {
            matches!(
                v,
                Violation::KeptFutureHolds {
                    what: "inner futures",
                    ..
                }
            )
        }),
        (KeepsBody, |v| {
            matches!(
                v,
                Violation::KeptFutureHolds {
                    what: "inner bodies",
                    ..
                }
            )
        }),
        (LosesSource, |v| *v == Violation::SourceLost),
        (SwallowsError, |v| *v == Violation::ErrorSwallowed),
    ];
    for (breaks, is_it) in cases {
        let found = check(breaks).await.expect_err(&format!("{breaks:?}"));
        assert!(found.contains(is_it), "{breaks:?}: {found}");
        assert!(
            found.to_string().lines().count() > found.iter().count(),
            "{found}"
        );
    }
}

/// A ready service that is dropped must give its permit back: here it goes to a place that nobody drops.
#[tokio::test(start_paused = true)]
async fn a_permit_that_outlives_its_service_is_found() {
    #[derive(Clone)]
    struct Hoards(StrictService);
    impl Service<Request<()>> for Hoards {
        type Response = Response<StrictBody>;
        type Error = StrictError;
        type Future = StrictFuture;

        fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StrictError>> {
            poll_inner(&mut self.0, context)
        }

        fn call(&mut self, request: Request<()>) -> StrictFuture {
            self.0.call(request)
        }
    }
    impl Drop for Hoards {
        fn drop(&mut self) {
            let other = self.0.clone();
            mem::forget(mem::replace(&mut self.0, other));
        }
    }
    let found = check_service(Hoards, request).await.unwrap_err();
    assert!(
        found.contains(|v| matches!(
            v,
            Violation::NotReleased {
                what: "permits",
                ..
            }
        )),
        "{found}"
    );
}

#[tokio::test(start_paused = true)]
async fn good_layers_pass() {
    check_service(|inner| inner, request).await.unwrap();
    check_service(BoxCloneService::new, request).await.unwrap();
    check_service(
        |inner: StrictService| inner.map_request(|request: Request<()>| request),
        request,
    )
    .await
    .unwrap();
    // Waits in the future and not in poll_ready.
    let lazy = |inner: StrictService| {
        tower::service_fn(move |request: Request<()>| inner.clone().oneshot(request))
    };
    check_service(lazy, request).await.unwrap();
}

/// tower's own limit takes its permit before it asks the inner service, and keeps what its future holds until that is dropped.
#[tokio::test(start_paused = true)]
async fn what_towers_limit_keeps_is_seen() {
    let found = check_service(|inner| ConcurrencyLimit::new(inner, 1), request).await;
    let found = found.unwrap_err();
    assert!(
        found
            .iter()
            .all(|(_, v)| matches!(v, Violation::KeptFutureHolds { .. })),
        "{found}"
    );
}

#[tokio::test]
async fn a_clone_of_a_strict_service_is_not_ready() {
    let (mut service, watch) = StrictService::new();
    let context = &mut Context::from_waker(Waker::noop());
    assert!(poll_inner(&mut service, context).is_ready());
    watch.unready();
    assert!(
        poll_inner(&mut service, context).is_ready(),
        "Ready stays Ready"
    );
    let mut clone = service.clone();
    assert!(poll_inner(&mut clone, context).is_pending());
    assert_eq!(
        (watch.instances(), watch.permits(), watch.wakers()),
        (2, 1, 1)
    );
    drop(clone);
    drop(service);
    assert_eq!(
        (watch.instances(), watch.permits(), watch.wakers()),
        (0, 0, 0)
    );
    assert!(watch.violations().is_empty());
}
