//! What is left of an etcd watch.

#![cfg(feature = "etcd")]

mod etcd;

use std::sync::Arc;

use bytes::Bytes;
use etcd::*;
use proptest::{collection::vec, prelude::*};
use prost::Message;
use steadfast_resume::{BidiRule, Conversation, Pass, Rest};
use steadfast_rules::etcd::Watch;

fn create(key: &str) -> Create {
    Create {
        key: key.into(),
        ..Create::default()
    }
}

fn from(key: &str, start_revision: i64, watch_id: i64) -> Create {
    Create {
        start_revision,
        watch_id,
        ..create(key)
    }
}

fn told(id: i64, revision: i64) -> Response {
    Response {
        header: Some(Header { revision }),
        watch_id: id,
        ..Response::default()
    }
}

fn created(id: i64, revision: i64) -> Response {
    Response {
        created: true,
        ..told(id, revision)
    }
}

fn canceled(id: i64) -> Response {
    Response {
        canceled: true,
        ..told(id, 0)
    }
}

/// Events of these revisions, each of a key of its own.
fn events(id: i64, revisions: &[(i64, &str)]) -> Response {
    let event = |(mod_revision, key): &(i64, &str)| Event {
        kv: Some(KeyValue {
            key: key.as_bytes().to_vec(),
            mod_revision: *mod_revision,
            ..KeyValue::default()
        }),
    };
    Response {
        events: revisions.iter().map(event).collect(),
        ..told(id, revisions.last().map_or(0, |it| it.0))
    }
}

fn fragment(id: i64, revisions: &[(i64, &str)]) -> Response {
    Response {
        fragment: true,
        ..events(id, revisions)
    }
}

/// One stream.
struct Stream(Arc<dyn Conversation>);

impl Stream {
    fn new() -> Self {
        Self(Watch.begin())
    }

    fn asks(&self, asks: Asks) -> Option<Asks> {
        let request = Request { asks: Some(asks) };
        match self.0.sent(&request.encode_to_vec()).unwrap() {
            Pass::AsIs => request.asks,
            Pass::Instead(other) => Request::decode(other).unwrap().asks,
            Pass::Withhold => None,
        }
    }

    fn create(&self, create: Create) {
        let asks = Asks::Create(create);
        assert_eq!(self.asks(asks.clone()), Some(asks));
    }

    /// The caller cancels; the id that is sent.
    fn cancel(&self, watch_id: i64) -> i64 {
        match self.asks(Asks::Cancel(Cancel { watch_id })) {
            Some(Asks::Cancel(cancel)) => cancel.watch_id,
            other => panic!("{other:?}"),
        }
    }

    /// What the caller gets of a response.
    fn gets(&self, response: &Response) -> Option<Response> {
        match self.0.received(&response.encode_to_vec()).unwrap() {
            Pass::AsIs => Some(response.clone()),
            Pass::Instead(other) => Some(Response::decode(other).unwrap()),
            Pass::Withhold => None,
        }
    }

    /// It comes as it is.
    fn passes(&self, response: Response) {
        assert_eq!(self.gets(&response), Some(response));
    }

    /// It breaks: what is sent, and what the caller gets before that.
    fn breaks(&self) -> (Vec<Asks>, Vec<Response>) {
        let Rest::Send { requests, first } = self.0.rest().unwrap() else {
            panic!("it can't go on")
        };
        let request = |bytes: Bytes| Request::decode(bytes).unwrap().asks.unwrap();
        let response = |bytes: Bytes| Response::decode(bytes).unwrap();
        let requests = requests.into_iter().map(request).collect();
        (requests, first.into_iter().map(response).collect())
    }

    /// The same where only watches are made again.
    fn again(&self) -> Vec<Create> {
        let (requests, first) = self.breaks();
        assert_eq!(first, []);
        let create = |asks| match asks {
            Asks::Create(create) => create,
            other => panic!("{other:?}"),
        };
        requests.into_iter().map(create).collect()
    }
}

/// R9: each watch goes on behind what was delivered of it: its last event, word of progress, its own beginning, or the
/// revision at which it was made.
#[test]
fn each_watch_at_its_next_revision() {
    let stream = Stream::new();
    for watch in [
        create("now"),
        from("then", 7, 0),
        create("events"),
        create("quiet"),
    ] {
        stream.create(watch);
    }
    for id in 0..4 {
        stream.passes(created(id, 100));
    }
    stream.passes(events(2, &[(101, "a"), (103, "b")]));
    stream.passes(told(3, 140));
    // Word for all is for none.
    stream.passes(told(-1, 200));
    let again = [
        from("now", 101, 0),
        from("then", 7, 1),
        from("events", 104, 2),
        from("quiet", 141, 3),
    ];
    assert_eq!(stream.again(), again);
    // It breaks again before an answer came, and once more after one event.
    assert_eq!(stream.again(), again);
    for id in 0..4 {
        assert_eq!(stream.gets(&created(id, 150)), None, "it is told once");
    }
    stream.passes(events(1, &[(120, "a")]));
    let after = [
        from("now", 101, 0),
        from("then", 121, 1),
        from("events", 104, 2),
        from("quiet", 141, 3),
    ];
    assert_eq!(stream.again(), after);
}

/// R9: a watch that wasn't answered yet is made again as it was asked for, and told when it is made.
#[test]
fn unanswered_watches() {
    let stream = Stream::new();
    stream.create(create("a"));
    stream.create(from("b", 5, 9));
    assert_eq!(stream.again(), [create("a"), from("b", 5, 9)]);
    stream.passes(created(0, 10));
    assert_eq!(stream.again(), [from("a", 11, 0), from("b", 5, 9)]);
    assert_eq!(stream.gets(&created(0, 12)), None);
    stream.passes(created(9, 12));
    assert_eq!(stream.again(), [from("a", 11, 0), from("b", 5, 9)]);
}

/// R9: the caller knows its watches by the ids that it was told first, whatever the server calls them later.
#[test]
fn new_ids_are_mapped_back() {
    let stream = Stream::new();
    for (id, key) in ["a", "b", "c"].into_iter().enumerate() {
        stream.create(create(key));
        stream.passes(created(id as i64, 10));
    }
    assert_eq!(stream.cancel(0), 0);
    stream.passes(canceled(0));
    assert_eq!(stream.again(), [from("b", 11, 1), from("c", 11, 2)]);
    // A server that goes by its own count.
    assert_eq!(stream.gets(&created(0, 20)), None);
    assert_eq!(stream.gets(&created(1, 20)), None);
    assert_eq!(
        stream.gets(&events(0, &[(21, "b")])),
        Some(events(1, &[(21, "b")]))
    );
    assert_eq!(
        stream.gets(&events(1, &[(22, "c")])),
        Some(events(2, &[(22, "c")]))
    );
    assert_eq!(stream.gets(&told(0, 30)), Some(told(1, 30)));
    assert_eq!(stream.cancel(2), 1);
    assert_eq!(stream.gets(&canceled(1)), Some(canceled(2)));
    // A new one that the server gives an id that the caller knows as another's.
    stream.create(create("d"));
    assert_eq!(stream.gets(&created(1, 40)), Some(created(3, 40)));
    assert_eq!(
        stream.gets(&events(1, &[(41, "d")])),
        Some(events(3, &[(41, "d")]))
    );
    assert_eq!(stream.again(), [from("b", 31, 1), from("d", 42, 3)]);
}

/// R9: a cancelled watch isn't made again; one whose end the caller waits for ends.
#[test]
fn cancelled_watches_are_left_out() {
    let stream = Stream::new();
    for (id, key) in ["a", "b"].into_iter().enumerate() {
        stream.create(create(key));
        stream.passes(created(id as i64, 10));
    }
    stream.cancel(0);
    assert!(stream.0.is_owed());
    // What comes before the end is delivered.
    stream.passes(events(0, &[(11, "a")]));
    let (requests, first) = stream.breaks();
    assert_eq!(requests, [Asks::Create(from("b", 11, 1))]);
    let end = Response {
        header: None,
        ..canceled(0)
    };
    assert_eq!(first, [end]);
    // By the server, too: compacted meanwhile.
    assert_eq!(stream.gets(&created(1, 90)), None);
    let compacted = Response {
        compact_revision: 50,
        ..canceled(1)
    };
    stream.passes(compacted);
    assert_eq!(stream.breaks(), (Vec::new(), Vec::new()));
}

/// R9: a watch that can't be made is told so; and one that can't be made again has ended.
#[test]
fn refused_watches() {
    let refused = |id| Response {
        canceled: true,
        ..created(id, 10)
    };
    let stream = Stream::new();
    stream.create(create("a"));
    stream.passes(refused(-1));
    stream.create(create("b"));
    stream.passes(created(0, 10));
    assert_eq!(stream.again(), [from("b", 11, 0)]);
    let end = Response {
        created: false,
        ..refused(0)
    };
    assert_eq!(stream.gets(&refused(-1)), Some(end));
    assert_eq!(stream.again(), []);
}

/// R9: a revision in fragments is behind the watch with its last fragment; what had come of it doesn't come again.
#[test]
fn fragments() {
    let stream = Stream::new();
    stream.create(Create {
        fragment: true,
        ..create("f")
    });
    stream.passes(created(0, 10));
    let asked = |start_revision| Create {
        fragment: true,
        ..from("f", start_revision, 0)
    };
    stream.passes(fragment(0, &[(11, "a"), (12, "b"), (12, "c")]));
    stream.passes(fragment(0, &[(12, "d")]));
    assert_eq!(stream.again(), [asked(12)]);
    assert_eq!(stream.gets(&created(0, 12)), None);
    // From there in other fragments: b, c and d came, and e is new.
    let gets = stream.gets(&fragment(0, &[(12, "b"), (12, "c")])).unwrap();
    assert_eq!(
        gets,
        Response {
            events: Vec::new(),
            ..fragment(0, &[(12, "b")])
        }
    );
    // It breaks in the middle of what comes again.
    assert_eq!(stream.again(), [asked(12)]);
    assert_eq!(stream.gets(&created(0, 12)), None);
    let whole = events(0, &[(12, "b"), (12, "c"), (12, "d"), (12, "e"), (13, "b")]);
    assert_eq!(
        stream.gets(&whole),
        Some(events(0, &[(12, "e"), (13, "b")]))
    );
    assert_eq!(stream.again(), [asked(14)]);
    // A revision that is whole when the next one begins.
    assert_eq!(stream.gets(&created(0, 12)), None);
    stream.passes(fragment(0, &[(14, "a"), (15, "a")]));
    stream.passes(events(0, &[(15, "b")]));
    stream.passes(events(0, &[(16, "b")]));
    assert_eq!(stream.again(), [asked(17)]);
}

/// R9, R2: word of progress that the caller waits for is asked for again; while it waits for nothing, quiet is normal.
#[test]
fn progress_and_quiet() {
    let stream = Stream::new();
    assert!(!stream.0.is_owed());
    stream.create(create("a"));
    assert!(stream.0.is_owed());
    stream.passes(created(0, 10));
    assert!(!stream.0.is_owed());
    let asks = Asks::Progress(Progress {});
    assert_eq!(stream.asks(asks.clone()), Some(asks.clone()));
    assert!(stream.0.is_owed());
    let (requests, _) = stream.breaks();
    assert_eq!(requests, [Asks::Create(from("a", 11, 0)), asks]);
    assert_eq!(stream.gets(&created(0, 10)), None);
    stream.passes(told(-1, 20));
    assert!(!stream.0.is_owed());
}

/// R8: what a server must not say is an error.
#[test]
fn a_watch_that_was_not_asked_for() {
    let error = Watch
        .begin()
        .received(&created(0, 1).encode_to_vec())
        .unwrap_err();
    assert!(error.to_string().contains("wasn't asked for"), "{error}");
    let no_key = Response {
        events: vec![Event { kv: None }],
        ..told(0, 1)
    };
    Watch.begin().received(&no_key.encode_to_vec()).unwrap_err();
    assert_eq!(Watch.method(), "/etcdserverpb.Watch/Watch");
}

/// A server with one watched key in each revision's many, that breaks where it likes.
fn revisions() -> impl Strategy<Value = Vec<usize>> {
    vec(1..5_usize, 1..12)
}

proptest! {
    /// R9, R4: however its events are cut into messages, and wherever it breaks, each event comes once, in order.
    #[test]
    fn each_event_once(
        sizes in revisions(),
        sends in vec((1..8_usize, any::<bool>(), any::<bool>()), 1..40),
    ) {
        // The log: (revision, which of its events).
        let log: Vec<(i64, String)> = sizes
            .iter()
            .enumerate()
            .flat_map(|(at, size)| (0..*size).map(move |it| (at as i64 + 11, it.to_string())))
            .collect();
        let stream = Stream::new();
        stream.create(Create { fragment: true, ..create("k") });
        stream.passes(created(0, 10));
        let (mut at, mut got) = (0, Vec::new());
        // At last it goes on to the end.
        let to_the_end = std::iter::repeat_n((5, true, false), log.len());
        for (size, splits, breaks) in sends.into_iter().chain(to_the_end) {
            if breaks {
                let again = stream.again();
                let start = again[0].start_revision;
                prop_assert!(start > 10);
                at = log.iter().position(|it| it.0 >= start).unwrap_or(log.len());
                prop_assert_eq!(stream.gets(&created(0, 99)), None);
            }
            if at == log.len() {
                continue;
            }
            let mut end = (at + size).min(log.len());
            // Whole revisions, unless it is a fragment.
            let inside = |end: usize| end < log.len() && log[end].0 == log[end - 1].0;
            if !splits {
                while inside(end) {
                    end += 1;
                }
            }
            let part: Vec<_> = log[at..end].iter().map(|(it, key)| (*it, &**key)).collect();
            let message = match inside(end) {
                true => fragment(0, &part),
                false => events(0, &part),
            };
            let gets = stream.gets(&message).unwrap();
            let keys = gets.events.into_iter().map(|it| it.kv.unwrap());
            got.extend(keys.map(|it| (it.mod_revision, String::from_utf8(it.key).unwrap())));
            at = end;
        }
        prop_assert_eq!(got, log);
    }

    /// R8: any bytes from either side are read, or are an error.
    #[test]
    fn any_bytes(messages in vec((any::<bool>(), vec(any::<u8>(), 0..40)), 0..20)) {
        let stream = Stream::new();
        stream.create(create("k"));
        for (ours, message) in messages {
            let _ = match ours {
                true => stream.0.sent(&message),
                false => stream.0.received(&message),
            };
            let _ = stream.0.is_owed();
        }
        let _ = stream.0.rest();
    }
}
