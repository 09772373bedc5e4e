//! What a request says to the pool and what it can read back: B9's preferences and handle, S4's mark,
//! and the names that metrics and messages use.

mod support;

use std::{collections::HashSet, error::Error, fmt, sync::Arc, thread};

use http::Request;
use proptest::prelude::*;
use steadfast_core::{
    Abandoned, Attempt, Avoid, BoxError, ChannelId, ConfigError, Local, LocalKind, Outcome, Place,
    Prefer, Probe,
};
use support::Broken;

const KINDS: [LocalKind; 7] = [
    LocalKind::NoChannel,
    LocalKind::Quarantine,
    LocalKind::Drained,
    LocalKind::Closed,
    LocalKind::Deadline,
    LocalKind::Overload,
    LocalKind::Budget,
];

/// B9: the channels to avoid are a set.
#[test]
fn avoid_is_a_set() {
    let (a, b, c) = (ChannelId::next(), ChannelId::next(), ChannelId::next());
    let mut avoid = Avoid::new();
    assert!(avoid.is_empty() && !avoid.contains(a));
    avoid.add(a);
    avoid.add(b);
    avoid.add(a);
    assert!(avoid.contains(a) && avoid.contains(b) && !avoid.contains(c));
    assert!(!avoid.is_empty());
    assert_eq!(avoid, [a, b, b, a].into_iter().collect());
    assert!(Avoid::from_iter([]).is_empty());
}

/// B9: the preferences travel as request extensions, past any layer that passes those on.
#[test]
fn preferences_travel_in_the_request() {
    let (a, b) = (ChannelId::next(), ChannelId::next());
    let mut request = Request::new(());
    request.extensions_mut().insert(Prefer(a));
    request.extensions_mut().insert(Avoid::from_iter([b]));
    let request = request.map(|()| "another body");
    assert_eq!(request.extensions().get::<Prefer>(), Some(&Prefer(a)));
    assert!(request.extensions().get::<Avoid>().unwrap().contains(b));
}

/// B9: the sender's handle shows what the pool wrote into the clone that travelled, for failures too.
#[test]
fn an_attempt_is_read_by_its_sender() {
    let attempt = Attempt::new();
    let mut request = Request::new(());
    request.extensions_mut().insert(attempt.clone());
    assert_eq!(attempt.channel(), None);
    assert_eq!(attempt.place(), None);
    assert_eq!(attempt.outcome(), None);
    assert_eq!(attempt.abandoned(), None);

    let (id, place) = (ChannelId::next(), Place::new("http://one:80"));
    let in_pool = request.extensions().get::<Attempt>().unwrap().clone();
    in_pool.picked(id, place.clone());
    assert_eq!(attempt.channel(), Some(id));
    assert_eq!(attempt.place(), Some(place));
    assert_eq!(attempt.outcome(), None, "the head is not the end");
    attempt.abandon(Abandoned::GapTimeout);
    assert_eq!(in_pool.abandoned(), Some(Abandoned::GapTimeout));
    in_pool.ended(Outcome::ConnectionLost);
    drop(request);
    drop(in_pool);
    assert_eq!(attempt.outcome(), Some(Outcome::ConnectionLost));
    assert!(format!("{attempt:?}").contains("ConnectionLost"));
}

/// B9: a request that is picked again shows the channel that served it last.
#[test]
fn an_attempt_shows_the_last_pick() {
    let attempt = Attempt::new();
    let last = ChannelId::next();
    attempt.picked(ChannelId::next(), Place::new("one"));
    attempt.picked(last, Place::new("two"));
    assert_eq!(attempt.channel(), Some(last));
    assert_eq!(attempt.place(), Some(Place::new("two")));
}

/// An id names one channel for the life of the process, whichever thread makes it; larger is younger.
#[test]
fn ids_are_never_used_twice() {
    let mut seen = HashSet::new();
    thread::scope(|scope| {
        let make = || (0..1_000).map(|_| ChannelId::next()).collect::<Vec<_>>();
        let makers: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
        for maker in makers {
            let ids = maker.join().unwrap();
            assert!(ids.is_sorted_by_key(|id| id.get()));
            seen.extend(ids);
        }
    });
    assert_eq!(seen.len(), 4_000);
    let id = ChannelId::next();
    assert_eq!(id.to_string(), format!("#{}", id.get()));
    assert_eq!(format!("{id:?}"), format!("ChannelId({})", id.get()));
}

/// B12: a place is its name.
#[test]
fn a_place_is_its_name() {
    assert_eq!(Place::default(), Place::new("default"));
    assert_eq!(Place::from("a"), Place::from(String::from("a")));
    assert_ne!(Place::from("a"), Place::from("b"));
    assert_eq!(Place::from("a").as_str(), "a");
    assert_eq!(Place::from("a").to_string(), "a");
    assert_eq!(format!("{:?}", Place::from("a")), "Place(\"a\")");
}

/// S4: the mark is found on the error itself.
#[test]
fn a_mark_is_found_on_the_error_itself() {
    for kind in KINDS {
        let error: BoxError = Local::new(kind, "refused").into();
        assert_eq!(Local::find(&*error).unwrap().kind(), kind);
        let text = error.to_string();
        assert!(text.contains("refused") && text.contains(&kind.to_string()));
    }
}

/// S4: the mark is found through wrappers that keep their source, as a `Status` does, which holds it
/// behind an `Arc`.
#[test]
fn a_mark_is_found_through_wrappers() {
    #[derive(Debug)]
    struct LikeStatus(Arc<dyn Error + Send + Sync>);
    impl fmt::Display for LikeStatus {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("code: unavailable")
        }
    }
    impl Error for LikeStatus {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }
    let status = LikeStatus(Arc::new(Local::new(LocalKind::NoChannel, "none is ready")));
    let wrapped = Broken::around("auth layer", Broken::around("trace layer", status));
    assert_eq!(
        Local::find(&wrapped).map(Local::kind),
        Some(LocalKind::NoChannel)
    );
}

/// P2, S4: the server's errors carry no mark, and a wrapper that drops its source hides it.
#[test]
fn an_error_of_the_server_has_no_mark() {
    assert!(Local::find(&Broken::new("reset")).is_none());
    assert!(Local::find(&Broken::around("outer", Broken::new("inner"))).is_none());
}

/// B7: the mark keeps the last cause as its source; the outermost of two marks is the one found.
#[test]
fn a_mark_keeps_its_cause() {
    let inner = Local::new(LocalKind::Drained, "inner").because_of(Broken::new("connect failed"));
    let outer = Local::new(LocalKind::NoChannel, "outer").because_of(inner);
    assert_eq!(Local::find(&outer).unwrap().kind(), LocalKind::NoChannel);
    let inner = outer.source().unwrap();
    assert_eq!(Local::find(inner).unwrap().kind(), LocalKind::Drained);
    assert_eq!(inner.source().unwrap().to_string(), "connect failed");
    assert!(Local::new(LocalKind::Closed, "alone").source().is_none());
}

const OUTCOMES: [Outcome; 17] = [
    Outcome::Status(0),
    Outcome::Status(14),
    Outcome::Http(503),
    Outcome::DialFailed,
    Outcome::NeverSent,
    Outcome::Unprocessed,
    Outcome::ConnectionLost,
    Outcome::Protocol,
    Outcome::Reset(8),
    Outcome::GoAway(11),
    Outcome::NoStatus,
    Outcome::CutShort,
    Outcome::GapTimeout,
    Outcome::Timeout,
    Outcome::Local(LocalKind::Quarantine),
    Outcome::Dropped,
    Outcome::Other,
];

/// X5: each outcome has a label and a text of its own.
#[test]
fn outcomes_have_names_of_their_own() {
    let labels: HashSet<_> = OUTCOMES.iter().map(|o| o.label()).collect();
    assert_eq!(labels.len(), OUTCOMES.len());
    let texts: HashSet<_> = OUTCOMES.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), OUTCOMES.len());
    let kinds: HashSet<_> = KINDS.iter().map(ToString::to_string).collect();
    assert_eq!(kinds.len(), KINDS.len());
}

/// Only a status that is OK is a success.
#[test]
fn only_ok_is_ok() {
    for outcome in OUTCOMES {
        assert_eq!(outcome.is_ok(), outcome == Outcome::Status(0));
    }
}

proptest! {
    /// X5: labels are bounded: no code that a server makes up gets into one.
    #[test]
    fn labels_are_bounded(status in 1_u16.., http: u16, code: u32) {
        prop_assert_eq!(Outcome::Status(status).label(), "status");
        prop_assert_eq!(Outcome::Http(http).label(), "http");
        prop_assert_eq!(Outcome::Reset(code).label(), "reset");
        prop_assert_eq!(Outcome::GoAway(code).label(), "goaway");
    }
}

/// X3: a bad setting names its field, its value and what is allowed.
#[test]
fn a_bad_setting_names_itself() {
    let error = ConfigError::new("balance.max", 0, "1..=4096");
    assert_eq!(error.field(), "balance.max");
    assert_eq!(error.value(), "0");
    assert_eq!(error.range(), "1..=4096");
    assert_eq!(error.to_string(), "balance.max is 0; allowed is 1..=4096");
}

/// X3: both ends of a range are in it, and the error writes it with them.
#[test]
fn a_setting_is_in_its_range() {
    for good in [1, 5, 9] {
        assert_eq!(ConfigError::check("balance.max", good, 1..=9), Ok(()));
    }
    for bad in [0, 10] {
        let error = ConfigError::check("balance.max", bad, 1..=9).unwrap_err();
        let text = format!("balance.max is {bad}; allowed is 1 to 9");
        assert_eq!(error.to_string(), text);
    }
    let second = std::time::Duration::from_secs(1);
    let error = ConfigError::check("stall.tick", 2 * second, second / 1000..=second).unwrap_err();
    assert_eq!((error.value(), error.range()), ("2s", "1ms to 1s"));
}

/// B6: a closure is a probe, is told the place, and may fail to prepare.
#[tokio::test]
async fn a_closure_is_a_probe() {
    let probe = |place: &Place| {
        let uri = format!("{place}/grpc.health.v1.Health/Check");
        Ok::<_, BoxError>(Request::builder().uri(uri).body("")?)
    };
    let request = probe.prepare(&Place::new("http://one:80")).await.unwrap();
    assert_eq!(request.uri().host(), Some("one"));

    let fails = |_: &Place| Err::<Request<&'static str>, _>(Broken::new("no credentials").into());
    let error = fails.prepare(&Place::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "no credentials");
}

/// X6: an error that names itself as its source ends the search, not the process.
#[test]
fn a_circle_of_sources_ends() {
    #[derive(Debug)]
    struct Circle;
    impl std::fmt::Display for Circle {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("circle")
        }
    }
    impl std::error::Error for Circle {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(self)
        }
    }
    assert!(steadfast_core::Local::find(&Circle).is_none());
}
