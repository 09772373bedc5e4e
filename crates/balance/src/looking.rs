//! How a call comes to a channel: it looks for one, waits as long as there is hope, and is told why when
//! there is none.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Request;
use steadfast_core::{BoxError, LocalKind, Meter, Standing};
use tower_service::Service;

use crate::{
    error,
    member::Roster,
    shared::{NoPick, Picked, Shared},
    wait::{On, Over, Wait},
};

/// A call waits this much longer than a dial may take, so that a dial which began with it ends first
/// and the error can name its cause.
const SLACK: Duration = Duration::from_millis(50);

/// Looks for a channel, and waits for one as long as there is hope.
pub(crate) fn poll_pick<S: Clone, Q>(
    shared: &Arc<Shared<S>>,
    request: &Request<Q>,
    wait: &mut Option<Box<Wait>>,
    lost: &mut Option<BoxError>,
    cx: &mut Context<'_>,
) -> Poll<Result<Picked<S>, BoxError>> {
    let config = &shared.config;
    loop {
        let waiting = wait.as_mut().filter(|wait| wait.is_on(On::Channel));
        let queued = waiting.map(|wait| wait.arm()).is_some();
        // Looked at once: by a later one the pick may have failed for another reason than the refusal.
        let roster = shared.roster.load();
        let full = match shared.pick(&roster, request, queued) {
            Ok(picked) => return Poll::Ready(Ok(picked)),
            Err(NoPick { full }) => full,
        };
        let patient = full || roster.is_hopeful() || config.wait_for_ready.is_some();
        if shared.is_closed() {
            return Poll::Ready(Err(error::closed(&config.name)));
        }
        if !patient {
            return Poll::Ready(Err(refusal(shared, &roster, None, lost.take())));
        }
        let wait = begun(wait, shared, request);
        if !queued {
            let limit = config.wait_for_ready;
            let limit = limit.unwrap_or(config.connect_budget + SLACK);
            wait.turn_to(On::Channel, Some(limit));
            continue;
        }
        if full {
            shared.note_starvation();
        }
        // Pending: the wait holds the waker.
        if let Err(over) = ready!(wait.poll_news(cx)) {
            let over = Some((over, &*wait));
            return Poll::Ready(Err(refusal(shared, &roster, over, lost.take())));
        }
    }
}

/// The waits of a call, which begin with the first one.
fn begun<'a, S, Q>(
    wait: &'a mut Option<Box<Wait>>,
    shared: &Shared<S>,
    request: &Request<Q>,
) -> &'a mut Wait {
    wait.get_or_insert_with(|| Box::new(Wait::new(&shared.signals, request.headers())))
}

/// Whether a claimed channel's service can be called.
pub(crate) enum Ready {
    Yes,
    /// Not now, and the request had better go elsewhere.
    Elsewhere,
    /// Never again.
    Lost(BoxError),
    /// The caller's deadline has passed.
    Refused(BoxError),
}

impl<S> Picked<S> {
    pub(crate) fn poll_ready<Q>(
        &mut self,
        shared: &Arc<Shared<S>>,
        request: &Request<Q>,
        wait: &mut Option<Box<Wait>>,
        cx: &mut Context<'_>,
    ) -> Poll<Ready>
    where
        S: Service<Request<Q>>,
        S::Error: Into<BoxError>,
    {
        loop {
            let waiting = wait.as_mut().filter(|wait| wait.is_on(On::Readiness));
            let waits = waiting.map(|wait| wait.arm()).is_some();
            let standing = self.claim.member().channel.meter.read().standing();
            if waits && standing >= Standing::Shut {
                return Poll::Ready(Ready::Elsewhere);
            }
            match self.service.poll_ready(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Ready::Yes),
                Poll::Ready(Err(error)) => return Poll::Ready(Ready::Lost(error.into())),
                Poll::Pending => {}
            }
            let wait = begun(wait, shared, request);
            if !waits {
                wait.turn_to(On::Readiness, None);
                continue;
            }
            // Pending: the service and the wait hold the waker.
            if ready!(wait.poll_news(cx)).is_err() {
                let roster = shared.roster.load();
                let over = Some((Over::Deadline, &*wait));
                return Poll::Ready(Ready::Refused(refusal(shared, &roster, over, None)));
            }
        }
    }
}

/// The error of a call that no channel took: names the state of the pool and the last cause. Its source is
/// why the call's own channel was `lost`, if it had one.
fn refusal<S>(
    shared: &Shared<S>,
    roster: &Roster<S>,
    over: Option<(Over, &Wait)>,
    lost: Option<BoxError>,
) -> BoxError {
    let pool = &shared.config.name;
    let why = match over {
        None => format!("no channel of pool {pool:?} can take the call"),
        Some((Over::Deadline, wait)) => {
            let time = wait.time();
            format!(
                "the deadline passed after {time:?} while the call waited for a channel of pool {pool:?}"
            )
        }
        Some((Over::Limit, wait)) => {
            let time = wait.time();
            format!("no channel of pool {pool:?} was ready within {time:?}")
        }
    };
    let (ready, connecting) = (roster.members.len(), roster.connecting.len());
    let failed = roster
        .connecting
        .iter()
        .filter(|(_, failures)| *failures > 0)
        .count();
    let state = match (ready, connecting) {
        (0, 0) => "it has no places".to_owned(),
        (0, _) => format!("{connecting} channels are connecting, of which {failed} failed before"),
        (_, 0) => format!("{ready} channels are connected but none may be picked"),
        _ => format!(
            "{ready} channels are connected but none may be picked, \
             {connecting} are connecting, of which {failed} failed before"
        ),
    };
    let mut message = format!("{why}: {state}");
    let full = |meter: &Meter| !meter.read().has_room(shared.config.assumed_streams);
    if ready > 0 && roster.meters.iter().any(full) {
        message = format!("{message}; some have no free stream below their stream limit");
    }
    if let Some(failure) = &roster.last_failure {
        message = format!("{message}; last failure: {failure}");
    }
    let kind = match over {
        Some((Over::Deadline, _)) => LocalKind::Deadline,
        _ => LocalKind::NoChannel,
    };
    let last = || {
        let failure = roster.last_failure.as_ref()?;
        Some(Box::new((**failure).clone()) as BoxError)
    };
    error::local(kind, message, lost.or_else(last))
}
