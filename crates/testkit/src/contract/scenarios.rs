//! The scenarios of the service check: a layer is called in every way that the contract allows.

use super::{
    Probe, ServiceCheck, StrictError, StrictService, StrictWatch, Violation,
    probe::{judge, settle},
    watch::{idle, released},
};
use http::{Request, Response};
use http_body::Body;
use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};
use tokio::time::timeout;
use tower_service::Service;

/// How long a layer may take to report an inner error: it may try again before. On a paused clock this costs nothing.
const ERROR_LIMIT: Duration = Duration::from_secs(600);

type Fut<S, Q> = Pin<Box<<S as Service<Request<Q>>>::Future>>;
type Answer<S, Q> = Result<<S as Service<Request<Q>>>::Response, <S as Service<Request<Q>>>::Error>;

/// How far a call came before it had to wait.
enum Call<S: Service<Request<Q>>, Q> {
    Readying,
    Waiting(Fut<S, Q>),
    Done(Fut<S, Q>, Answer<S, Q>),
    NotReady(S::Error),
}

impl<M, R, S, Q, B> ServiceCheck<M, R>
where
    M: Fn(StrictService) -> S,
    R: Fn() -> Request<Q>,
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Calls as far as it goes.
    async fn call(&self, service: &mut S, probe: &Probe) -> Result<Call<S, Q>, Violation> {
        match probe.poll(|context| service.poll_ready(context)).await? {
            Poll::Pending => return Ok(Call::Readying),
            Poll::Ready(Err(error)) => return Ok(Call::NotReady(error)),
            Poll::Ready(Ok(())) => {}
        }
        self.go_on(Box::pin(service.call((self.request)())), probe)
            .await
    }

    async fn go_on(&self, mut future: Fut<S, Q>, probe: &Probe) -> Result<Call<S, Q>, Violation> {
        Ok(
            match probe.poll(|context| future.as_mut().poll(context)).await? {
                Poll::Pending => Call::Waiting(future),
                Poll::Ready(answer) => Call::Done(future, answer),
            },
        )
    }

    /// The call's future and body, when nothing stands in its way.
    async fn answered(
        &self,
        call: Call<S, Q>,
        service: &mut S,
        probe: &Probe,
    ) -> Result<(Fut<S, Q>, Pin<Box<B>>), Violation> {
        let call = match call {
            Call::Readying => self.call(service, probe).await?,
            Call::Waiting(future) => self.go_on(future, probe).await?,
            call => call,
        };
        match call {
            Call::Done(future, Ok(response)) => Ok((future, Box::pin(response.into_body()))),
            Call::Done(_, Err(error)) | Call::NotReady(error) => {
                let error: Box<dyn Error + Send + Sync> = error.into();
                Err(Violation::Unexpected(format!("the call failed: {error}")))
            }
            Call::Readying | Call::Waiting(_) => Err(Violation::WakerLost),
        }
    }

    pub(super) async fn good(&self, mut service: S, watch: &StrictWatch) -> Result<(), Violation> {
        let probe = Probe::new();
        let call = self.call(&mut service, &probe).await?;
        let (future, body) = self.answered(call, &mut service, &probe).await?;
        read(body).await?;
        drop((future, service));
        released(watch).await?;
        let (readies, calls) = (watch.readies(), watch.calls());
        if readies > calls {
            return Err(Violation::ReadyNotUsed { readies, calls });
        }
        Ok(())
    }

    /// Pending twice, from two tasks, then news.
    pub(super) async fn waits(
        &self,
        mut service: S,
        watch: &StrictWatch,
        held: bool,
    ) -> Result<(), Violation> {
        stop(watch, held);
        let (first, last) = (Probe::new(), Probe::new());
        let mut call = self.call(&mut service, &first).await?;
        call = match call {
            Call::Readying => self.call(&mut service, &last).await?,
            Call::Waiting(future) => self.go_on(future, &last).await?,
            call => call,
        };
        if matches!(call, Call::Done(..) | Call::NotReady(_)) {
            return Err(Violation::Unexpected("it did not wait".to_owned()));
        }
        let before = (first.wakes(), last.wakes());
        watch.release();
        watch.ready();
        settle().await;
        judge((&first, before.0), (&last, before.1))?;
        let (future, body) = self.answered(call, &mut service, &last).await?;
        read(body).await?;
        drop((future, service));
        released(watch).await
    }

    pub(super) async fn dropped_waiting(
        &self,
        mut service: S,
        watch: &StrictWatch,
        held: bool,
    ) -> Result<(), Violation> {
        stop(watch, held);
        let call = self.call(&mut service, &Probe::new()).await?;
        drop(call);
        settle().await;
        idle(watch)?;
        drop(service);
        released(watch).await
    }

    pub(super) async fn dropped_ready(
        &self,
        mut service: S,
        watch: &StrictWatch,
    ) -> Result<(), Violation> {
        let ready = Probe::new()
            .poll(|context| service.poll_ready(context))
            .await?;
        drop(ready);
        drop(service);
        released(watch).await
    }

    /// Before the first poll, or with the body half read.
    pub(super) async fn dropped(
        &self,
        mut service: S,
        watch: &StrictWatch,
        body: bool,
    ) -> Result<(), Violation> {
        let probe = Probe::new();
        if body {
            let call = self.call(&mut service, &probe).await?;
            let (_future, mut body) = self.answered(call, &mut service, &probe).await?;
            let frame = probe
                .poll(|context| body.as_mut().poll_frame(context))
                .await?;
            drop(frame);
        } else {
            let ready = probe.poll(|context| service.poll_ready(context)).await?;
            if ready.is_ready() {
                drop(service.call((self.request)()));
            }
        }
        settle().await;
        idle(watch)?;
        drop(service);
        released(watch).await
    }

    pub(super) async fn kept(&self, mut service: S, watch: &StrictWatch) -> Result<(), Violation> {
        let probe = Probe::new();
        let call = self.call(&mut service, &probe).await?;
        let (future, body) = self.answered(call, &mut service, &probe).await?;
        drop(body);
        drop(service);
        let _kept = self.own_future.then_some(future);
        released(watch).await.map_err(|found| match found {
            Violation::NotReleased { what, count } => Violation::KeptFutureHolds { what, count },
            found => found,
        })
    }

    /// A clone of a ready service, while the inner one is ready no more.
    pub(super) async fn cloned(
        &self,
        mut service: S,
        watch: &StrictWatch,
    ) -> Result<(), Violation> {
        let probe = Probe::new();
        let ready = probe.poll(|context| service.poll_ready(context)).await?;
        drop(ready);
        watch.unready();
        let mut clone = service.clone();
        drop(service);
        let call = self.call(&mut clone, &probe).await?;
        if let Call::Done(_, Ok(_)) = call {
            return Err(Violation::CloneCarriedReadiness);
        }
        drop((call, clone));
        released(watch).await
    }

    pub(super) async fn fails(&self, mut service: S) -> Result<(), Violation> {
        let call = async {
            poll_fn(|context| service.poll_ready(context)).await?;
            service.call((self.request)()).await
        };
        match timeout(ERROR_LIMIT, call).await {
            Err(_) => Err(Violation::Unexpected("it never failed".to_owned())),
            Ok(Ok(_)) => Err(Violation::ErrorSwallowed),
            Ok(Err(error)) => {
                let error: Box<dyn Error + Send + Sync> = error.into();
                if StrictError::is_in(&*error) {
                    Ok(())
                } else {
                    Err(Violation::SourceLost)
                }
            }
        }
    }
}

fn stop(watch: &StrictWatch, held: bool) {
    if held {
        watch.hold();
    } else {
        watch.unready();
    }
}

async fn read<B>(mut body: Pin<Box<B>>) -> Result<(), Violation>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let probe = Probe::new();
    loop {
        match probe
            .poll(|context| body.as_mut().poll_frame(context))
            .await?
        {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None) => return Ok(()),
            Poll::Pending => return Err(Violation::WakerLost),
            Poll::Ready(Some(Err(error))) => {
                let error: Box<dyn Error + Send + Sync> = error.into();
                return Err(Violation::Unexpected(format!("the body failed: {error}")));
            }
        }
    }
}
