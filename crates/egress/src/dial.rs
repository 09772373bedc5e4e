//! One dial, from the endpoint to a channel that has had its peer's first answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::uri::Scheme;
use steadfast_core::{BoxError, ChannelId, Meter, Metered, Place};
use tokio::{sync::watch, time::timeout};
use tonic::transport::{Channel, Endpoint};

use crate::{
    calm::Calm,
    connector::Once,
    error::{DialError, DialStage},
    io::First,
    link::Link,
    service::EgressChannel,
};

/// What a dial needs to know, all of it at its start.
pub(crate) struct Dialling {
    pub(crate) id: ChannelId,
    pub(crate) place: Place,
    pub(crate) endpoint: Endpoint,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) budget: Duration,
    pub(crate) calm: Arc<Mutex<Calm>>,
}

/// Why a dial ended, before it is known what was tried.
type Failure = (String, Option<BoxError>);

impl Dialling {
    pub(crate) async fn run(self) -> Result<Metered<EgressChannel>, DialError> {
        let (id, place) = (self.id, self.place.clone());
        let meter = Meter::new();
        let owner = meter.owner();
        let link = Link::new(id, place.clone(), owner, self.keepalive, self.calm);
        let link = Arc::new(link);
        let (tell, first) = watch::channel(First::Waiting(Vec::new()));
        let connector = Once::new(&self.endpoint, Arc::clone(&link), tell);
        let connecting = connect(&self.endpoint, connector, &link, first.clone());
        let result = match timeout(self.budget, connecting).await {
            Ok(result) => result,
            Err(_) => Err((too_late(&link, &first, self.budget), None)),
        };
        let failure = match result {
            Ok(channel) if link.live() => {
                let channel = EgressChannel::new(channel, link);
                return Ok(Metered::made(id, place, meter, channel));
            }
            Ok(_) => ("the connection ended at once".to_owned(), end(&link)),
            Err(failure) => failure,
        };
        let facts = link.facts();
        let error = DialError {
            place,
            uri: self.endpoint.uri().clone(),
            addresses: facts.addresses.clone(),
            stage: facts.stage,
            budget: self.budget,
            what: failure.0,
            cause: failure.1,
        };
        drop(facts);
        tracing::debug!(channel = %id, %error, "dial failed");
        Err(error)
    }
}

async fn connect(
    endpoint: &Endpoint,
    connector: Once,
    link: &Link,
    mut first: watch::Receiver<First>,
) -> Result<Channel, Failure> {
    let connected = endpoint.connect_with_connector(connector).await;
    let stage = link.facts().stage;
    if stage != DialStage::Settings {
        let what = if stage == DialStage::Tls {
            "no TLS connection"
        } else {
            "no connection"
        };
        return connected.map_err(|error| (what.to_owned(), Some(error.into())));
    }
    // tonic is done when it has sent its preface; whether HTTP/2 is spoken here, the peer must say.
    // An error only says that the socket is gone: then what was said last counts.
    let _ = first
        .wait_for(|first| !matches!(first, First::Waiting(_)))
        .await;
    let said = first.borrow().clone();
    match (said, connected) {
        (First::Settings, connected) => {
            connected.map_err(|error| ("no HTTP/2 connection".to_owned(), Some(error.into())))
        }
        (First::Waiting(bytes), connected) if bytes.is_empty() => {
            let what = "no SETTINGS: the peer accepted the connection, said nothing and closed it";
            let cause = connected.err().map(Into::into);
            Err((what.to_owned(), cause.or_else(|| end(link))))
        }
        (First::Other(bytes) | First::Waiting(bytes), connected) => {
            let bytes = bytes.escape_ascii();
            let what = format!("the peer answered with no HTTP/2 SETTINGS but with \"{bytes}\"");
            Err((what, connected.err().map(Into::into)))
        }
    }
}

fn end(link: &Link) -> Option<BoxError> {
    link.end().map(|end| BoxError::from(&*end))
}

fn too_late(link: &Link, first: &watch::Receiver<First>, budget: Duration) -> String {
    match (link.facts().stage, &*first.borrow()) {
        (DialStage::Resolve, _) => format!("no answer from the resolver within {budget:?}"),
        (DialStage::Tls, _) => format!(
            "no TLS connection within {budget:?}: accepted the connection and did not finish the \
             handshake"
        ),
        (DialStage::Settings, First::Waiting(said)) if !said.is_empty() => format!(
            "no SETTINGS within {budget:?}: accepted the connection and said only \"{}\"",
            said.escape_ascii()
        ),
        (DialStage::Settings, _) => {
            format!("no SETTINGS within {budget:?}: accepted the connection and said nothing")
        }
        _ => format!("no TCP connection within {budget:?}"),
    }
}

/// Why this endpoint can't be dialled at all, if so.
pub(crate) fn refused(endpoint: &Endpoint) -> Option<&'static str> {
    let uri = endpoint.uri();
    let unix = uri.host() == Some("tonic") && uri.port().is_none();
    if unix && uri.scheme() == Some(&Scheme::HTTP) {
        // All that an endpoint shows of a unix socket.
        return Some(
            "an http or https URI: unix sockets aren't dialled (a host named `tonic` needs its port)",
        );
    }
    match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => None,
        Some(scheme) if *scheme == Scheme::HTTPS => (!crate::tls::built_in()).then_some(
            "an http URI: for https enable the feature `tls-ring` or `tls-aws-lc`, and `tls-native-roots` \
             or `tls-webpki-roots`; without them tonic would speak clear text",
        ),
        _ => Some("an absolute http or https URI"),
    }
}
