//! How a call's flow is found.

use std::{fmt, sync::Arc};

use http::{Extensions, HeaderMap, HeaderName, Request};
use steadfast_core::ConfigError;

use crate::FlowId;

/// What a key sees of a call: its head.
#[derive(Clone, Copy, Debug)]
pub struct CallHead<'a> {
    path: &'a str,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> CallHead<'a> {
    pub(crate) fn of<Q>(request: &'a Request<Q>) -> Self {
        Self {
            path: request.uri().path(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method, such as `/package.Service/Method`.
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.path
    }

    /// The metadata.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions: on a server what the transport knows of the connection is there.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}

type Find = dyn Fn(CallHead<'_>) -> Option<FlowId> + Send + Sync;

/// Says which flow a call belongs to.
///
/// Cheap to clone. Calls about which a key says nothing are the next key's ([`Key::or`]), and in the end one
/// flow together.
///
/// ```
/// use steadfast_sparse::{FlowId, Key};
///
/// // By tenant, and by the first part of the method for those that name none.
/// let key = Key::metadata("x-tenant")?.or(Key::from_fn(|call| {
///     call.method().split('/').nth(1).map(FlowId::of)
/// }));
/// # Ok::<(), steadfast_sparse::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Key {
    find: Arc<Find>,
    name: &'static str,
}

impl Key {
    /// By a function. It is called once for each call, with no lock held; if it panics, that call fails with
    /// INTERNAL and no other. It shouldn't block or allocate.
    #[must_use]
    pub fn from_fn(find: impl Fn(CallHead<'_>) -> Option<FlowId> + Send + Sync + 'static) -> Self {
        Self::named("function", find)
    }

    /// By the [`FlowId`] in the request's extensions, which the caller put there.
    #[must_use]
    pub fn extension() -> Self {
        Self::named("extension", |call| call.extensions.get().copied())
    }

    /// By method.
    #[must_use]
    pub fn method() -> Self {
        Self::named("method", |call| Some(FlowId::of(call.path)))
    }

    /// By the first value of a metadata entry. Whoever sends the call chooses it: on a server use it for
    /// callers that you trust.
    ///
    /// # Errors
    /// The name is none that a header can have.
    pub fn metadata(name: &str) -> Result<Self, ConfigError> {
        let Ok(header) = HeaderName::try_from(name) else {
            let range = "the name of a header";
            return Err(ConfigError::new("sparse.key.metadata", name, range));
        };
        Ok(Self::named("metadata", move |call| {
            let value = call.headers.get(&header)?;
            Some(FlowId::of(value.as_bytes()))
        }))
    }

    /// This key, and `other` for calls that it says nothing about.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (first, second) = (self.find, other.find);
        Self::named(self.name, move |call| first(call).or_else(|| second(call)))
    }

    /// # Panics
    /// When a function of the user does.
    pub(crate) fn find(&self, call: CallHead<'_>) -> FlowId {
        (self.find)(call).unwrap_or_else(FlowId::common)
    }

    pub(crate) fn named(
        name: &'static str,
        find: impl Fn(CallHead<'_>) -> Option<FlowId> + Send + Sync + 'static,
    ) -> Self {
        Self {
            find: Arc::new(find),
            name,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.name).finish()
    }
}
