//! Where the servers of a pool come from.

use steadfast_core::Place;
use tokio::sync::watch;

/// The servers of a pool. Each has at least one channel; growth goes to the one with the fewest.
#[derive(Clone, Debug)]
pub struct Places(Source);

#[derive(Clone, Debug)]
enum Source {
    List(Vec<Place>),
    Watch(watch::Receiver<Vec<Place>>),
}

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

    /// The list now; later changes count from here.
    pub(crate) fn current(&mut self) -> Vec<Place> {
        match &mut self.0 {
            Source::List(places) => places.clone(),
            Source::Watch(places) => places.borrow_and_update().clone(),
        }
    }

    /// Resolves when the list has changed. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        if let Source::Watch(places) = &mut self.0
            && places.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}
