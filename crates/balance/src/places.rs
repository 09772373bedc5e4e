//! Where the servers of a pool come from.

use std::{
    fmt,
    future::{pending, poll_fn},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use steadfast_core::{BoxError, Place};
use tokio::sync::watch;

/// The servers of a pool. Each has at least one channel; growth goes to the one with the fewest.
///
/// While a list that can change has never named a server, calls wait for one as they wait for a dial.
#[derive(Clone, Debug)]
pub struct Places(Source);

#[derive(Clone, Debug)]
enum Source {
    List(Vec<Place>),
    Watch(watch::Receiver<Vec<Place>>),
    #[cfg_attr(
        not(feature = "discover"),
        expect(dead_code, reason = "made by the feature's constructor only")
    )]
    Discover(Home),
}

/// Where a discovery is while no keeper follows it.
type Home = Arc<Mutex<Option<Discovery>>>;

impl Places {
    /// A list that never changes. Doubles count once.
    pub fn list<P: Into<Place>>(places: impl IntoIterator<Item = P>) -> Self {
        Self(Source::List(places.into_iter().map(Into::into).collect()))
    }

    /// A list that changes: the pool follows it at once. A removed place is dialled no more and its
    /// channels drain. When the sender goes, the last list stays.
    #[must_use]
    pub fn watch(places: watch::Receiver<Vec<Place>>) -> Self {
        Self(Source::Watch(places))
    }

    /// The keys of a tower `Discover`; `place` names the place of a key. Its services are not used: the
    /// pool's factory makes the channels.
    ///
    /// One pool follows it: the first that is made of the layer that got it; others see no places. When
    /// it ends or fails the last list stays, and a failure is logged.
    #[cfg(feature = "discover")]
    pub fn discover<D, F>(discover: D, mut place: F) -> Self
    where
        D: tower::discover::Discover + Send + 'static,
        D::Error: Into<BoxError>,
        F: FnMut(&D::Key) -> Place + Send + 'static,
    {
        use tower::discover::Change;
        let mut discover = Box::pin(discover);
        let changes = move |cx: &mut Context<'_>| {
            let change = discover.as_mut().poll_discover(cx);
            change.map_err(Into::into).map_ok(|change| match change {
                Change::Insert(key, _) => (place(&key), true),
                Change::Remove(key) => (place(&key), false),
            })
        };
        let discovery = Discovery {
            places: Vec::new(),
            changes: Some(Box::new(changes)),
        };
        Self(Source::Discover(Arc::new(Mutex::new(Some(discovery)))))
    }

    /// For a keeper: takes the list over, until what it gets is dropped.
    pub(crate) fn follow(&self) -> Followed {
        let (source, home) = match &self.0 {
            Source::List(places) => (Live::List(places.clone()), None),
            Source::Watch(places) => (Live::Watch(places.clone()), None),
            Source::Discover(home) => {
                let taken = home.lock().unwrap_or_else(PoisonError::into_inner).take();
                let none = Discovery {
                    places: Vec::new(),
                    changes: None,
                };
                (
                    Live::Discover(taken.unwrap_or(none)),
                    Some(Arc::clone(home)),
                )
            }
        };
        Followed {
            source,
            home,
            named: false,
        }
    }
}

type Change = (Place, bool);
type Poller = dyn FnMut(&mut Context<'_>) -> PollChange + Send;
type PollChange = Poll<Option<Result<Change, BoxError>>>;

/// A discovery without its type: what it named so far, and what it will.
struct Discovery {
    places: Vec<Place>,
    changes: Option<Box<Poller>>,
}

impl Discovery {
    async fn changed(&mut self) {
        let Some(changes) = &mut self.changes else {
            return pending().await;
        };
        // Pending: the discovery holds the waker.
        match poll_fn(changes).await {
            Some(Ok((place, true))) => self.places.push(place),
            Some(Ok((place, false))) => self.places.retain(|known| *known != place),
            Some(Err(error)) => {
                tracing::warn!(%error, "discovery failed; the places that it named last stay");
                self.changes = None;
            }
            None => self.changes = None,
        }
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery")
            .field("places", &self.places)
            .field("ended", &self.changes.is_none())
            .finish()
    }
}

/// A list that a keeper follows. Dropping it leaves a discovery for the next keeper.
pub(crate) struct Followed {
    source: Live,
    home: Option<Home>,
    /// Whether it has ever named a place.
    named: bool,
}

enum Live {
    List(Vec<Place>),
    Watch(watch::Receiver<Vec<Place>>),
    Discover(Discovery),
}

impl Followed {
    /// The list now; later changes count from here.
    pub(crate) fn current(&mut self) -> Vec<Place> {
        let places = match &mut self.source {
            Live::List(places) => places.clone(),
            Live::Watch(places) => places.borrow_and_update().clone(),
            Live::Discover(discovery) => discovery.places.clone(),
        };
        self.named |= !places.is_empty();
        places
    }

    /// Whether a first place may still come: a call had better wait.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.named && !matches!(self.source, Live::List(_))
    }

    /// Resolves when the list may have changed. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        match &mut self.source {
            Live::List(_) => pending().await,
            Live::Watch(places) => {
                if places.changed().await.is_err() {
                    pending().await
                }
            }
            Live::Discover(discovery) => discovery.changed().await,
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let (Live::Discover(discovery), Some(home)) = (&mut self.source, &self.home) {
            let taken = Discovery {
                places: std::mem::take(&mut discovery.places),
                changes: discovery.changes.take(),
            };
            *home.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        }
    }
}
