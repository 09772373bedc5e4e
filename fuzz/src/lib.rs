//! What is fuzzed: any bytes, from either side, through the message reader and each rule.
//!
//! An input is cut into records, each with its length before it in one byte. What must hold is asserted here, so that the
//! committed inputs can be replayed by a plain test.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use steadfast_resume::{BidiRule, MessageReader, Pass, Progress, Rest, Rule};
use steadfast_rules::{
    bigtable::ReadRows,
    etcd::Watch,
    spanner::{ExecuteStreamingSql, StreamingRead},
};

/// The records of an input.
fn records(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first()?;
        let (record, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        Some(record)
    })
}

/// The message reader: what goes on is what came, up to the last whole message, and no more than a message is held.
pub fn messages(data: &[u8]) {
    const LIMIT: usize = 200;
    let Some((first, data)) = data.split_first() else {
        return;
    };
    let encodings = ["identity", "gzip", "deflate", "zstd", "br"];
    let encoding = encodings[usize::from(*first) % encodings.len()];
    let mut head = HeaderMap::new();
    head.insert("grpc-encoding", HeaderValue::from_static(encoding));
    let mut reader = MessageReader::new(&head, LIMIT);
    let (mut came, mut gone) = (Vec::new(), Vec::new());
    for frame in records(data) {
        came.extend_from_slice(frame);
        let mut see = |message: &[u8]| {
            assert!(message.len() <= LIMIT);
            Ok(Pass::AsIs)
        };
        let read = reader.push(Bytes::copy_from_slice(frame), &mut see);
        gone.extend(std::iter::from_fn(|| reader.pop()).flatten());
        assert!(came.starts_with(&gone));
        if read.is_err() {
            return;
        }
        assert_eq!(gone.len() + reader.held(), came.len());
        assert!(reader.held() < LIMIT + 5);
    }
}

/// ReadRows.
pub fn read_rows(data: &[u8]) {
    stream(&ReadRows, data);
}

/// Spanner's two streams.
pub fn spanner(data: &[u8]) {
    stream(&ExecuteStreamingSql, data);
    stream(&StreamingRead, data);
}

/// The first record is the request, the others are messages; an empty one is a break.
fn stream(rule: &dyn Rule, data: &[u8]) {
    let mut records = records(data);
    let Ok(mut progress) = rule.begin(records.next().unwrap_or_default()) else {
        return;
    };
    for record in records {
        if record.is_empty() {
            if broke(rule, &mut *progress).is_none() {
                return;
            }
        } else if progress.message(record).is_err() {
            return;
        }
        let _ = progress.end();
    }
    broke(rule, &mut *progress);
}

/// What is asked for then can be asked for, and is the same when the next attempt breaks at once.
fn broke(rule: &dyn Rule, progress: &mut dyn Progress) -> Option<()> {
    let Ok(Rest::Send { requests, .. }) = progress.rest() else {
        return None;
    };
    let [request] = &requests[..] else {
        panic!("a stream has one request")
    };
    let mut again = rule.begin(request).expect("it can be read");
    assert!(!matches!(again.rest(), Ok(Rest::Cannot(_)) | Err(_)));
    match progress.rest() {
        Ok(Rest::Send { requests, first }) => {
            assert_eq!((&requests[0], first.len()), (request, 0));
        }
        other => panic!("{other:?} when nothing came"),
    }
    Some(())
}

/// etcd's watch: a record that begins with a 0 is the caller's, with a 1 the server's; an empty one is a break.
pub fn watch(data: &[u8]) {
    let conversation = Watch.begin();
    for record in records(data) {
        let done = match record.split_first() {
            Some((0, message)) => conversation.sent(message).map(drop),
            Some((_, message)) => conversation.received(message).map(drop),
            None => conversation.rest().map(|rest| {
                let Rest::Send { requests, .. } = rest else {
                    panic!("a watch can always go on")
                };
                // What is asked for then are requests.
                let again = Watch.begin();
                for request in requests {
                    again.sent(&request).expect("it can be read");
                }
            }),
        };
        let _ = conversation.is_owed();
        if done.is_err() {
            return;
        }
    }
}
