//! The tests of the table, the same in both builds.

use std::collections::BTreeMap;

use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use steadfast_classify::call_error;
use steadfast_core::Outcome;

use crate::{
    SERVER, TLS,
    surface::{
        HANG,
        call::Sight,
        chain, docs,
        open::steps,
        row::Row,
        run::{check, compare_shown, compare_sight},
    },
    table,
};

/// A test for each part of the table, and all of its rows.
macro_rules! parts {
    ($($part:ident $((paused: $paused:literal))?),*) => {
        $(
            #[tokio::test(flavor = "current_thread" $(, start_paused = $paused)?)]
            async fn $part() {
                check(table::$part(), SERVER).await;
            }
        )*

        fn all() -> Vec<Row> {
            [$(table::$part()),*].concat()
        }
    };
}

// `resets` also tells which of the two builds this is: the codes of resets depend on the feature alone.
parts!(
    connecting,
    before_the_head,
    queues,
    over_time(paused: true),
    resets,
    after_the_head,
    unusual_answers,
    io_kinds
);

/// The races once more, on two threads, where they end in more ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn races() {
    let rows = all().into_iter().filter(Row::race).collect();
    check(rows, SERVER).await;
}

/// E2: a sender that knows already. Between a channel's readiness and its call there are microseconds, so
/// this asks hyper itself.
#[tokio::test]
async fn the_sender_knew_already() {
    let (client, server) = tokio::io::duplex(1024);
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client));
    let (mut sender, connection) = handshake.await.unwrap();
    drop((server, connection));
    let request = http::Request::new(Empty::<bytes::Bytes>::new());
    let sent = tokio::time::timeout(HANG, sender.send_request(request)).await;
    let error = sent.expect("it hangs").unwrap_err();
    let written = chain::written(&error);
    assert_eq!(
        written,
        "hyper(Canceled, is_canceled) > connection was not ready"
    );
    assert_eq!(call_error(&error), Outcome::NeverSent);
}

/// The lines of rows that end with an error.
fn errors(rows: &[Row]) -> impl Iterator<Item = (&Row, &'static str, Outcome)> {
    rows.iter().flat_map(|row| {
        let errors = row.seen.iter().filter(|seen| seen.line.contains(" > "));
        errors.map(move |seen| (row, seen.line, seen.outcome))
    })
}

/// A chain has the same outcome in every row.
#[test]
fn a_chain_has_one_outcome() {
    let rows = all();
    let mut known = BTreeMap::new();
    for (row, line, outcome) in errors(&rows) {
        let before = *known.entry(line).or_insert(outcome);
        assert_eq!(before, outcome, "{}: {line}", row.id);
    }
}

/// What a race brings only at times, another row brings for certain.
#[test]
fn no_chain_depends_on_luck() {
    let rows = all();
    let (races, certain): (Vec<_>, Vec<_>) = rows.iter().cloned().partition(Row::race);
    assert!(!races.is_empty());
    for (row, line, outcome) in errors(&races) {
        let found = errors(&certain)
            .any(|(_, other, result)| chain::fits(line, other) && result == outcome);
        assert!(found, "{}: {line}", row.id);
    }
}

/// All rows but TLS's, which need another build, and E2, which has no channel, are those of the docs.
#[test]
fn the_docs_have_the_same_rows() {
    docs::compare(&all(), is_here);
}

fn is_here(id: &str) -> bool {
    !id.starts_with('T') && id != "E2" && !(TLS && id == "A5b")
}

/// Each id of the list in the docs has its row, once, and no row is without its id there.
#[test]
fn no_row_is_missing() {
    docs::compare_ids(&all(), is_here);
}

/// A row that has the wrong class, or none, or shows something else, is seen.
#[test]
fn what_differs_is_seen() {
    let sight = Sight {
        outcome: Outcome::ConnectionLost,
        line: "a > b".to_owned(),
        cause: "b".to_owned(),
    };
    let row = |outcome, line, cause| table::answer("X", steps([])).seen(outcome, line, cause);
    let right = row(Outcome::ConnectionLost, "a > *", "b");
    assert_eq!(compare_sight(&right, &sight), None);
    for wrong in [
        row(Outcome::NeverSent, "a > *", "b"),
        row(Outcome::ConnectionLost, "a > *", "c"),
        row(Outcome::ConnectionLost, "a > c", "b"),
        table::answer("X", steps([])),
    ] {
        assert!(compare_sight(&wrong, &sight).is_some(), "{:?}", wrong.seen);
    }
    assert_eq!(compare_shown(&right, "unary OK", SERVER), None);
    assert!(compare_shown(&right, "unary Unknown", SERVER).is_some());
}

#[test]
fn patterns() {
    assert!(chain::fits("a*c|x", "abc") && chain::fits("a|x", "x") && chain::fits("*", ""));
    assert!(chain::fits("a*b*c", "a-b-b-c") && chain::fits("*b", "ab"));
    assert!(!chain::fits("a", "ab") && !chain::fits("a*c", "ab") && !chain::fits("a*bc*c", "abc"));
}
