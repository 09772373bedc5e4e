//! Who a call belongs to.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hash},
    num::NonZeroU64,
    sync::OnceLock,
};

/// A flow: the calls of one connection, one peer, one tenant, one kind of work.
///
/// 64 bits, the hash of whatever names the flow, so that a flow costs no allocation. The hash has a random
/// key for each process: nobody outside can find two names that share a flow, and an id means nothing in
/// another process. Among 1,000 flows two share an id with a chance of 1 in 4 × 10^13; then they are served
/// as one.
///
/// On a client, put it into a request's extensions to say which of your flows the request belongs to.
///
/// ```
/// use steadfast_sparse::FlowId;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(FlowId::of("scans"));
/// assert_eq!(request.extensions().get(), Some(&FlowId::of("scans")));
/// assert_ne!(FlowId::of("scans"), FlowId::of("reads"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowId(NonZeroU64);

impl FlowId {
    /// The flow of calls for which `name` is equal.
    #[must_use]
    pub fn of(name: impl Hash) -> Self {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        let hash = KEY.get_or_init(RandomState::new).hash_one(name);
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// The flow of the calls that a key says nothing about.
    pub(crate) fn common() -> Self {
        Self(NonZeroU64::MIN)
    }
}
