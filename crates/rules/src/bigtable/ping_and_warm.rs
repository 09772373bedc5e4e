//! PingAndWarm, as a probe.

use http::{HeaderName, HeaderValue};
use steadfast_core::{ConfigError, Place, Prepared, Probe};
use steadfast_stall::UnaryProbe;
use tonic::body::Body;

/// Google's routing header: which instance a call is for, percent-encoded.
const ROUTING: HeaderName = HeaderName::from_static("x-goog-request-params");

/// Asks BigTable's `PingAndWarm` about one instance: to warm a new channel, and to see whether a silent one answers.
///
/// It carries no credentials: put a layer that adds them below the one that asks.
#[derive(Clone, Debug)]
pub struct PingAndWarm(UnaryProbe);

impl PingAndWarm {
    /// About the instance with this full name, `projects/{project}/instances/{instance}`.
    ///
    /// # Errors
    /// A name of another form.
    pub fn new(instance: &str) -> Result<Self, ConfigError> {
        let parts: Vec<_> = instance.split('/').collect();
        let named = |part: &str| !part.is_empty();
        let routing = HeaderValue::try_from(format!("name={}", instance.replace('/', "%2F")));
        match (&*parts, routing) {
            (["projects", project, "instances", name], Ok(routing))
                if named(project) && named(name) =>
            {
                // PingAndWarmRequest.name: field 1, a string.
                let mut message = Vec::new();
                prost::encoding::string::encode(1, &instance.to_owned(), &mut message);
                let method = "/google.bigtable.v2.Bigtable/PingAndWarm";
                Ok(Self(
                    UnaryProbe::new(method, &message).with_header(ROUTING, routing),
                ))
            }
            _ => {
                let form = "projects/{project}/instances/{instance}";
                Err(ConfigError::new("instance", instance, form))
            }
        }
    }
}

impl Probe for PingAndWarm {
    type Body = Body;

    fn prepare(&self, place: &Place) -> Prepared<Body> {
        self.0.prepare(place)
    }
}
