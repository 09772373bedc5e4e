//! The layer: the handle that all its services share.

use std::sync::Arc;

use http::Request;
use steadfast_core::{ConfigError, Probing};
use tower_layer::Layer;

use crate::{FlowReading, Key, SparseConfig, SparseFlow, SparseReading, queue::Queue};

/// The methods that pass a server's layer unless other ones are set: gRPC's health checking, both versions
/// of its reflection, and BigTable's PingAndWarm.
#[cfg(feature = "server")]
const EXPRESS: [&str; 4] = [
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
    "/google.bigtable.v2.Bigtable/PingAndWarm",
];

/// Lets so many calls through at a time, and gives flows that have few of them their turn first.
///
/// Its clones are one layer: all services that it is put on share its places. On a server put it around the
/// routes; on a client below a retry layer and above the pool. Its services are always ready: a call waits
/// in its own future, where its flow and its deadline are known.
///
/// Building it outside a runtime works, and it runs no task.
#[derive(Clone, Debug)]
pub struct SparseFlowLayer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: Key,
    express: Vec<String>,
    pub(crate) queue: Arc<Queue>,
}

impl SparseFlowLayer {
    /// A layer for a server: flows by connection ([`Key::connection`]), and health checks, reflection and
    /// PingAndWarm pass.
    ///
    /// # Errors
    /// A setting that is out of its range.
    #[cfg(feature = "server")]
    pub fn server(config: SparseConfig) -> Result<Self, ConfigError> {
        let express = EXPRESS.map(str::to_owned).to_vec();
        Self::build(config, Key::connection(), express)
    }

    /// A layer for a client: flows by the [`FlowId`](crate::FlowId) in a request's extensions, and by method
    /// where there is none. The probes of a pool pass, and nothing else.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn client(config: SparseConfig) -> Result<Self, ConfigError> {
        Self::build(config, Key::extension().or(Key::method()), Vec::new())
    }

    /// A new layer with the same settings and no calls yet, whose flows are found by `key`.
    #[must_use]
    pub fn with_key(&self, key: Key) -> Self {
        Self::of(self.config().clone(), key, self.shared.express.clone())
    }

    /// A new layer with the same settings and no calls yet, that these methods pass: they take no place and
    /// never wait, whatever else goes on. `/package.Service/Method` is one method, `/package.Service/` all of
    /// a service.
    ///
    /// # Errors
    /// One that is written otherwise.
    pub fn with_express(
        &self,
        methods: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, ConfigError> {
        let methods: Vec<String> = methods.into_iter().map(Into::into).collect();
        let is_method = |method: &&String| {
            let parts: Vec<&str> = method.split('/').collect();
            parts.len() == 3 && parts[0].is_empty() && !parts[1].is_empty()
        };
        if let Some(other) = methods.iter().find(|method| !is_method(method)) {
            let range = "/package.Service/Method or /package.Service/";
            return Err(ConfigError::new("sparse.express", other, range));
        }
        Ok(Self::of(
            self.config().clone(),
            self.shared.key.clone(),
            methods,
        ))
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &SparseConfig {
        self.shared.queue.config()
    }

    /// The counts at this moment.
    #[must_use]
    pub fn snapshot(&self) -> SparseReading {
        self.shared.queue.reading()
    }

    /// The flows that have a call at this moment, in no order. It holds up the calls while it copies them.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowReading> {
        self.shared.queue.flows()
    }

    fn build(config: SparseConfig, key: Key, express: Vec<String>) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::of(config, key, express))
    }

    fn of(config: SparseConfig, key: Key, express: Vec<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                key,
                express,
                queue: Queue::new(config),
            }),
        }
    }
}

impl<S> Layer<S> for SparseFlowLayer {
    type Service = SparseFlow<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SparseFlow::new(inner, Arc::clone(&self.shared))
    }
}

impl Shared {
    /// Whether a call needs no place.
    pub(crate) fn passes<Q>(&self, request: &Request<Q>) -> bool {
        let path = request.uri().path();
        let is_it = |method: &String| match method.strip_suffix('/') {
            Some(_) => path.starts_with(method.as_str()),
            None => path == method,
        };
        !self.queue.config().enabled
            || self.express.iter().any(is_it)
            || Probing::is_on(request.extensions())
    }
}
