//! What is known of one connection, shared by its dial, its socket and its channel.
//!
//! It decides when the channel is condemned: at the first sign that the connection is gone or going,
//! whoever sees it. It never closes the connection: open responses live on as long as they can.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use steadfast_classify::{call_error, deepest_cause, enhance_your_calm};
use steadfast_core::{ChannelId, MeterOwner, Outcome, Place};

use crate::{
    calm::Calm,
    error::DialStage,
    observe::{self, disconnected, socket_error},
};

/// GOAWAY's ENHANCE_YOUR_CALM.
const CALM: u32 = 11;

#[derive(Debug)]
pub(crate) struct Link {
    id: ChannelId,
    place: Place,
    owner: MeterOwner,
    /// The connection's own keepalive interval, if it has one.
    keepalive: Option<Duration>,
    calm: Arc<Mutex<Calm>>,
    facts: Mutex<Facts>,
}

/// Plain data; no lock is held over a waker, a log line or the meter.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) stage: DialStage,
    /// Where the dial went: all that the name resolved to, then the one that was connected.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The dial succeeded: the end of the connection counts.
    live: bool,
    /// The last handle of the channel went.
    released: bool,
    /// This side closed its half in order.
    shut: bool,
    /// Why the connection ended or is ending: the label, and the text for people. The first stays.
    end: Option<(&'static str, Arc<str>)>,
    gone: bool,
}

impl Link {
    pub(crate) fn new(
        id: ChannelId,
        place: Place,
        owner: MeterOwner,
        keepalive: Option<Duration>,
        calm: Arc<Mutex<Calm>>,
    ) -> Self {
        let facts = Mutex::new(Facts {
            stage: DialStage::Connect,
            addresses: Vec::new(),
            live: false,
            released: false,
            shut: false,
            end: None,
            gone: false,
        });
        Self {
            id,
            place,
            owner,
            keepalive,
            calm,
            facts,
        }
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        // Plain data that no panic can leave half-written.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dial came as far as this.
    pub(crate) fn reached(&self, stage: DialStage, addresses: Option<Vec<SocketAddr>>) {
        tracing::debug!(channel = %self.id, place = %self.place, %stage, ?addresses, "dial");
        let mut facts = self.facts();
        facts.stage = stage;
        if let Some(addresses) = addresses {
            facts.addresses = addresses;
        }
    }

    /// The dial succeeded. False if the connection is gone already.
    pub(crate) fn live(&self) -> bool {
        let mut facts = self.facts();
        facts.live = !facts.gone && facts.end.is_none();
        let (live, addresses) = (facts.live, facts.addresses.clone());
        drop(facts);
        if live {
            tracing::info!(channel = %self.id, place = %self.place, ?addresses, "connected");
        }
        live
    }

    /// Why the connection ended, for people, if it did.
    pub(crate) fn end(&self) -> Option<Arc<str>> {
        self.facts().end.as_ref().map(|(_, text)| Arc::clone(text))
    }

    /// The last handle of the channel went: the connection ends when its last response does.
    pub(crate) fn released(&self) {
        self.facts().released = true;
    }

    /// This side closes its half.
    pub(crate) fn shut(&self) {
        self.facts().shut = true;
    }

    /// The peer allows this many streams at a time from now on.
    pub(crate) fn allows(&self, streams: u32) {
        tracing::debug!(channel = %self.id, place = %self.place, streams, "stream limit");
        self.owner.meter().set_stream_limit(Some(streams));
    }

    /// The peer closed the connection.
    pub(crate) fn closed_by_peer(&self) {
        self.ends("unknown", "connection closed: the peer closed it");
    }

    /// The socket failed.
    pub(crate) fn failed(&self, error: &io::Error) {
        self.ends(socket_error(error), &format!("connection closed: {error}"));
    }

    /// The peer sent GOAWAY.
    pub(crate) fn told_to_go(&self, code: u32, debug: &str) {
        let word = observe::goaway(code);
        self.ends(word, &format!("connection closed: {word} {debug:?}"));
        if code == CALM {
            self.asked_for_calm();
        }
    }

    /// tonic wants to dial anew: it knows that the connection is of no more use. Why, for people.
    pub(crate) fn wants_redial(&self) -> Arc<str> {
        self.ends("unknown", "connection closed: it takes no more requests");
        self.end().unwrap_or_else(|| "connection closed".into())
    }

    /// A call ended with this error of the transport, which may say that the connection is gone.
    pub(crate) fn seen(&self, error: tonic::transport::Error) -> tonic::transport::Error {
        match call_error(&error) {
            // Through TLS, the only sight of a GOAWAY.
            Outcome::Unprocessed if enhance_your_calm(&error) => {
                self.told_to_go(CALM, "");
            }
            // A request that its connection didn't take: there is no other reason for it here.
            Outcome::NeverSent | Outcome::ConnectionLost => {
                let cause = deepest_cause(&error);
                self.ends("unknown", &format!("connection closed: {cause}"));
            }
            _ => {}
        }
        error
    }

    /// The socket is dropped: the connection is gone.
    pub(crate) fn gone(&self) {
        let facts = self.facts();
        let (label, text) = if facts.released {
            (
                "subchannel shutdown",
                "connection closed: the channel was dropped",
            )
        } else if facts.shut {
            (
                "unknown",
                "connection closed: by this side, for a breach of HTTP/2",
            )
        } else {
            // hyper drops the socket as it is when a PING isn't answered in time, and only then.
            (
                "connection timed out",
                "connection closed: keepalive expired",
            )
        };
        drop(facts);
        self.ends(label, text);
        let mut facts = self.facts();
        facts.gone = true;
        let (live, end) = (facts.live, facts.end.clone());
        drop(facts);
        if let Some((label, text)) = end
            && live
        {
            tracing::info!(channel = %self.id, place = %self.place, reason = %text, "disconnected");
            disconnected(label);
        }
    }

    fn ends(&self, label: &'static str, text: &str) {
        let text: Arc<str> = text.into();
        self.facts()
            .end
            .get_or_insert_with(|| (label, Arc::clone(&text)));
        self.owner.condemn(text);
    }

    fn asked_for_calm(&self) {
        let Some(used) = self.keepalive else {
            return;
        };
        let mut calm = self.calm.lock().unwrap_or_else(PoisonError::into_inner);
        let next = calm.asked(&self.place, used);
        drop(calm);
        if let Some(interval) = next {
            tracing::warn!(
                channel = %self.id, place = %self.place, ?used, ?interval,
                "the server asked for calm: keepalive of the place's next connections is rarer"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_core::Meter;
    use steadfast_testkit::peer::{Answer, Last, Peer, Script, Step};
    use tonic::{body::Body, transport::Endpoint};
    use tower::ServiceExt;

    /// A link that its socket told nothing, and the error of a call that `step` ended: as through TLS.
    async fn seen(step: Step) -> (Link, Option<Arc<str>>, Duration) {
        let peer = Peer::start(Script::always(Answer::steps([step]))).unwrap();
        let endpoint = Endpoint::from_shared(peer.uri()).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let error = channel.oneshot(http::Request::new(Body::empty())).await;
        let (meter, place) = (Meter::new(), Place::default());
        let (used, calm) = (Duration::from_secs(60), Arc::new(Mutex::default()));
        let owner = meter.owner();
        let link = Link::new(ChannelId::next(), place.clone(), owner, Some(used), calm);
        let error = link.seen(error.unwrap_err());
        assert!(std::error::Error::source(&error).is_some());
        let interval = link.calm.lock().unwrap().interval(&place, used);
        (link, meter.condemned_for(), interval)
    }

    #[tokio::test]
    async fn a_call_shows_what_became_of_the_connection() {
        let (once, twice) = (Duration::from_secs(60), Duration::from_secs(120));
        let (_, why, interval) = seen(Step::goaway(CALM, Last::Zero)).await;
        assert!(why.unwrap().contains("ENHANCE_YOUR_CALM"));
        assert_eq!(interval, twice);
        let (_, why, interval) = seen(Step::Fin).await;
        assert!(why.unwrap().starts_with("connection closed: "));
        assert_eq!(interval, once);
        // A stream's own end says nothing about the connection, nor about PINGs.
        for code in [7, 8, CALM] {
            let (link, why, interval) = seen(Step::Rst(code)).await;
            assert_eq!((why, interval), (None, once), "{link:?}");
        }
    }
}
