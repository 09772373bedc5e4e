//! What Spanner's streams ask for after a break.

use googleapis_tonic_google_spanner_v1::google::spanner::v1::{
    ExecuteSqlRequest, PartialResultSet, ReadRequest, ResultSetMetadata, Transaction,
    TransactionOptions, TransactionSelector, transaction_selector::Selector,
};
use prost::Message;
use steadfast_resume::{Pass, Progress, Rest, Rule};
use steadfast_rules::spanner::{ExecuteStreamingSql, StreamingRead};

fn query() -> ExecuteSqlRequest {
    ExecuteSqlRequest {
        session: "projects/p/instances/i/databases/d/sessions/s".into(),
        sql: "SELECT a FROM b".into(),
        partition_token: b"partition".into(),
        seqno: 7,
        ..ExecuteSqlRequest::default()
    }
}

fn read() -> ReadRequest {
    ReadRequest {
        table: "b".into(),
        columns: vec!["a".into()],
        limit: 8,
        partition_token: b"partition".into(),
        ..ReadRequest::default()
    }
}

fn results(token: &str) -> PartialResultSet {
    PartialResultSet {
        resume_token: token.into(),
        ..PartialResultSet::default()
    }
}

fn begin(rule: &dyn Rule, request: &impl Message) -> Box<dyn Progress> {
    rule.begin(&request.encode_to_vec()).unwrap()
}

fn deliver(progress: &mut dyn Progress, results: &PartialResultSet) {
    let passed = progress.message(&results.encode_to_vec()).unwrap();
    assert_eq!(passed, Pass::AsIs);
}

#[track_caller]
fn asked<M: Message + Default>(rest: &Rest) -> M {
    match rest {
        Rest::Send { requests, first } if first.is_empty() && requests.len() == 1 => {
            M::decode(&requests[0][..]).unwrap()
        }
        other => panic!("no plain request: {other:?}"),
    }
}

fn selector(selector: Selector) -> Option<TransactionSelector> {
    Some(TransactionSelector {
        selector: Some(selector),
    })
}

/// R9: the methods.
#[test]
fn the_methods() {
    let sql = "/google.spanner.v1.Spanner/ExecuteStreamingSql";
    assert_eq!(ExecuteStreamingSql.method(), sql);
    let read = "/google.spanner.v1.Spanner/StreamingRead";
    assert_eq!(StreamingRead.method(), read);
}

/// R9: before the first message the same bytes are sent again, with a token of the caller's too.
#[test]
fn nothing_delivered() {
    let request = ExecuteSqlRequest {
        resume_token: b"mine".into(),
        ..query()
    };
    let mut progress = begin(&ExecuteStreamingSql, &request);
    let same = Rest::request(request.encode_to_vec());
    assert_eq!(progress.rest().unwrap(), same);
    let mut progress = begin(&StreamingRead, &read());
    let same = Rest::request(read().encode_to_vec());
    assert_eq!(progress.rest().unwrap(), same);
}

/// R9: after a message with a token it goes on from there, and all else is asked for as before.
#[test]
fn after_a_token() {
    let mut progress = begin(&ExecuteStreamingSql, &query());
    deliver(&mut *progress, &results("one"));
    deliver(&mut *progress, &results("two"));
    let expected = ExecuteSqlRequest {
        resume_token: b"two".into(),
        ..query()
    };
    assert_eq!(
        asked::<ExecuteSqlRequest>(&progress.rest().unwrap()),
        expected
    );
    // The next attempt breaks at once.
    assert_eq!(
        asked::<ExecuteSqlRequest>(&progress.rest().unwrap()),
        expected
    );

    let mut progress = begin(&StreamingRead, &read());
    deliver(&mut *progress, &results("one"));
    let expected = ReadRequest {
        resume_token: b"one".into(),
        ..read()
    };
    assert_eq!(asked::<ReadRequest>(&progress.rest().unwrap()), expected);
}

/// R9: a token of the caller's own is replaced.
#[test]
fn a_token_of_the_caller() {
    let request = ExecuteSqlRequest {
        resume_token: b"a long one of the caller".into(),
        ..query()
    };
    let mut progress = begin(&ExecuteStreamingSql, &request);
    deliver(&mut *progress, &results("new"));
    let Rest::Send { requests, .. } = progress.rest().unwrap() else {
        panic!("it goes on");
    };
    let gone = !requests[0].windows(6).any(|window| window == b"caller");
    assert!(gone, "the old token is sent too");
}

/// R9: after a message without a token it can't be said what to ask for.
#[test]
fn after_a_message_without_a_token() {
    let mut progress = begin(&StreamingRead, &read());
    deliver(&mut *progress, &results(""));
    let Rest::Cannot(reason) = progress.rest().unwrap() else {
        panic!("the first message would come twice");
    };
    assert_eq!(reason, "no resume token was given for the last 1 messages");

    let mut progress = begin(&StreamingRead, &read());
    for token in ["one", "", ""] {
        deliver(&mut *progress, &results(token));
    }
    let Rest::Cannot(reason) = progress.rest().unwrap() else {
        panic!("two messages would come twice");
    };
    assert_eq!(reason, "no resume token was given for the last 2 messages");
    // The next token makes up for it.
    deliver(&mut *progress, &results("two"));
    assert_eq!(
        asked::<ReadRequest>(&progress.rest().unwrap()).resume_token,
        b"two"
    );
}

/// R9: a value in pieces makes no difference; the token alone counts.
#[test]
fn inside_a_value() {
    let piece = PartialResultSet {
        chunked_value: true,
        ..results("one")
    };
    let mut progress = begin(&StreamingRead, &read());
    deliver(&mut *progress, &piece);
    assert_eq!(
        asked::<ReadRequest>(&progress.rest().unwrap()).resume_token,
        b"one"
    );
}

/// R9: after what the server calls its last message nothing is sent, with a token or without.
#[test]
fn after_the_last_message() {
    for token in ["", "one"] {
        let last = PartialResultSet {
            last: true,
            ..results(token)
        };
        let mut progress = begin(&ExecuteStreamingSql, &query());
        deliver(&mut *progress, &results(""));
        deliver(&mut *progress, &last);
        assert_eq!(progress.rest().unwrap(), Rest::Complete);
    }
}

/// R9: a transaction that the request began isn't begun again: it is named.
#[test]
fn a_transaction_that_the_call_began() {
    let request = ExecuteSqlRequest {
        transaction: selector(Selector::Begin(TransactionOptions::default())),
        resume_token: b"a long one of the caller".into(),
        ..query()
    };
    let first = PartialResultSet {
        metadata: Some(ResultSetMetadata {
            transaction: Some(Transaction {
                id: b"seven".into(),
                ..Transaction::default()
            }),
            ..ResultSetMetadata::default()
        }),
        ..results("one")
    };
    let mut progress = begin(&ExecuteStreamingSql, &request);
    deliver(&mut *progress, &first);
    deliver(&mut *progress, &results("two"));
    let expected = ExecuteSqlRequest {
        transaction: selector(Selector::Id(b"seven".into())),
        resume_token: b"two".into(),
        ..query()
    };
    let rest = progress.rest().unwrap();
    assert_eq!(asked::<ExecuteSqlRequest>(&rest), expected);
    let Rest::Send { requests, .. } = rest else {
        panic!("it goes on");
    };
    assert_eq!(
        requests[0].len(),
        expected.encoded_len(),
        "fields are sent twice"
    );

    let mut progress = begin(&ExecuteStreamingSql, &request);
    deliver(&mut *progress, &results("one"));
    let rest = progress.rest().unwrap();
    assert!(matches!(rest, Rest::Cannot(_)), "{rest:?}");
}

/// R9: a transaction of another kind stays as it is.
#[test]
fn a_transaction_that_was_there() {
    let kinds = [
        Selector::Id(b"seven".into()),
        Selector::SingleUse(TransactionOptions::default()),
    ];
    for kind in kinds {
        let request = ReadRequest {
            transaction: selector(kind),
            ..read()
        };
        let mut progress = begin(&StreamingRead, &request);
        deliver(&mut *progress, &results("one"));
        let expected = ReadRequest {
            resume_token: b"one".into(),
            ..request
        };
        assert_eq!(asked::<ReadRequest>(&progress.rest().unwrap()), expected);
    }
}

/// R9: of a transaction field that comes twice the last kind counts, as in any protobuf message.
#[test]
fn a_transaction_in_two_parts() {
    let begun = selector(Selector::Begin(TransactionOptions::default()));
    let there = selector(Selector::Id(b"seven".into()));
    let of = |transaction| ReadRequest {
        transaction,
        ..ReadRequest::default()
    };
    let request = [of(begun).encode_to_vec(), of(there.clone()).encode_to_vec()].concat();
    let mut progress = StreamingRead.begin(&request).unwrap();
    deliver(&mut *progress, &results("one"));
    let rest: ReadRequest = asked(&progress.rest().unwrap());
    assert_eq!(rest.transaction, there);
}

/// R8: what can't be read is an error.
#[test]
fn what_cannot_be_read() {
    let broken: &[u8] = b"\x12\x05\x01";
    assert!(ExecuteStreamingSql.begin(broken).is_err());
    assert!(StreamingRead.begin(broken).is_err());
    let mut progress = begin(&StreamingRead, &read());
    assert!(progress.message(broken).is_err());
    let number_for_a_token = b"\x20\x01";
    assert!(progress.message(number_for_a_token).is_err());
}
