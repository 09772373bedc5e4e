//! What is left of Spanner's streams.

#![cfg(feature = "spanner")]

use proptest::{collection::vec, prelude::*};
use prost::Message;
use steadfast_resume::{Pass, Rest, Rule};
use steadfast_rules::spanner::{ExecuteStreamingSql, StreamingRead};

/// `google.spanner.v1.ExecuteSqlRequest`, in part.
#[derive(Clone, PartialEq, Message)]
struct Sql {
    #[prost(string, tag = "1")]
    session: String,
    #[prost(string, tag = "3")]
    sql: String,
    #[prost(bytes = "vec", tag = "8")]
    resume_token: Vec<u8>,
    #[prost(int64, tag = "10")]
    seqno: i64,
}

/// `google.spanner.v1.ReadRequest`, in part.
#[derive(Clone, PartialEq, Message)]
struct Read {
    #[prost(string, tag = "3")]
    table: String,
    #[prost(int64, tag = "8")]
    limit: i64,
    #[prost(bytes = "vec", tag = "9")]
    resume_token: Vec<u8>,
}

/// `google.spanner.v1.PartialResultSet`, in part.
#[derive(Clone, PartialEq, Message)]
struct Results {
    #[prost(bool, tag = "3")]
    chunked_value: bool,
    #[prost(bytes = "vec", tag = "4")]
    resume_token: Vec<u8>,
    #[prost(bool, tag = "9")]
    last: bool,
}

fn sql() -> Sql {
    Sql {
        session: "s".into(),
        sql: "SELECT 1".into(),
        seqno: 7,
        ..Sql::default()
    }
}

fn message(token: &str, last: bool) -> Vec<u8> {
    let results = Results {
        resume_token: token.into(),
        last,
        ..Results::default()
    };
    results.encode_to_vec()
}

fn after(request: &Sql, messages: &[Vec<u8>]) -> Rest {
    let mut progress = ExecuteStreamingSql.begin(&request.encode_to_vec()).unwrap();
    for message in messages {
        assert_eq!(progress.message(message).unwrap(), Pass::AsIs);
    }
    progress.end().unwrap();
    progress.rest().unwrap()
}

fn sent(rest: Rest) -> Sql {
    let Rest::Send { requests, first } = rest else {
        panic!("{rest:?}")
    };
    assert_eq!((requests.len(), first.len()), (1, 0));
    Sql::decode(&requests[0][..]).unwrap()
}

fn with(token: &str) -> Sql {
    Sql {
        resume_token: token.into(),
        ..sql()
    }
}

/// R9: before the first message the same again, after one with a token from there.
#[test]
fn by_token() {
    assert_eq!(sent(after(&sql(), &[])), sql());
    assert_eq!(sent(after(&with("own"), &[])), with("own"));
    assert_eq!(sent(after(&with("own"), &[message("a", false)])), with("a"));
    let two = [message("a", false), message("b", false)];
    assert_eq!(sent(after(&sql(), &two)), with("b"));
    let third = [message("", false), message("", false), message("c", false)];
    assert_eq!(sent(after(&sql(), &third)), with("c"));
}

/// R9: after messages without a token the stream can't go on, and why is said.
#[test]
fn without_a_token_it_cannot_go_on() {
    for messages in [
        vec![message("", false)],
        vec![message("a", false), message("", false)],
    ] {
        let Rest::Cannot(why) = after(&sql(), &messages) else {
            panic!("it can")
        };
        assert!(
            why.contains("no resume token") && why.contains("last 1 messages"),
            "{why}"
        );
    }
}

/// R9: what breaks after the last message is no failure.
#[test]
fn the_last_message_is_the_end() {
    for token in ["", "a"] {
        assert_eq!(after(&sql(), &[message(token, true)]), Rest::Complete);
    }
}

/// R9: a read has its token in another field.
#[test]
fn reads() {
    let read = Read {
        table: "t".into(),
        limit: 9,
        resume_token: "own".into(),
    };
    let mut progress = StreamingRead.begin(&read.encode_to_vec()).unwrap();
    progress.message(&message("a", false)).unwrap();
    let Rest::Send { requests, .. } = progress.rest().unwrap() else {
        panic!("it can go on")
    };
    let left = Read {
        resume_token: "a".into(),
        ..read
    };
    assert_eq!(Read::decode(&requests[0][..]).unwrap(), left);
    assert_eq!(
        StreamingRead.method(),
        "/google.spanner.v1.Spanner/StreamingRead"
    );
    assert_eq!(
        ExecuteStreamingSql.method(),
        "/google.spanner.v1.Spanner/ExecuteStreamingSql"
    );
}

proptest! {
    /// R8: any bytes are read, or are an error.
    #[test]
    fn any_bytes(request in vec(any::<u8>(), 0..60), messages in vec(vec(any::<u8>(), 0..60), 0..5)) {
        let mut good = with("own").encode_to_vec();
        if let Some(byte) = request.first() {
            good[0] = *byte;
        }
        for request in [request, good] {
            let Ok(mut progress) = ExecuteStreamingSql.begin(&request) else { continue };
            for message in &messages {
                let _ = progress.message(message);
            }
            let _ = progress.rest();
        }
    }
}
