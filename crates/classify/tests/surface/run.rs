//! Provokes rows and compares.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::{
    HANG, PATIENCE,
    call::{self, Sight},
    chain::fits,
    row::Row,
};

/// How often a race is run: enough to see more than one of its outcomes, most of the time.
const ROUNDS: usize = 20;

/// Provokes each row and fails with all that differs. The rows run side by side, for most of the time is
/// spent waiting for what doesn't come.
///
/// # Panics
/// If a row wasn't seen, or not shown by generated clients, as the table has it.
pub(crate) async fn check(rows: Vec<Row>, server: bool) {
    let mut calls = JoinSet::new();
    for (number, row) in rows.iter().enumerate() {
        let rounds = if row.race() { ROUNDS } else { 1 };
        for _ in 0..rounds {
            let row = row.clone();
            calls.spawn(async move { (number, Ok(call::observed(&row).await)) });
        }
        let hangs = row.shown[usize::from(server)]
            .iter()
            .any(|shown| shown.ends_with("PENDING"));
        let bound = if hangs { PATIENCE } else { HANG };
        let methods: &[bool] = match row.body {
            Some(_) => &[],
            None => &[false, true],
        };
        for &streaming in methods {
            let row = row.clone();
            calls
                .spawn(async move { (number, Err(call::generated(&row, streaming, bound).await)) });
        }
    }
    let mut wrong = Vec::new();
    let mut races: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
    while let Some(done) = calls.join_next().await {
        let (number, result) = done.unwrap();
        let row = &rows[number];
        match result {
            Ok(sight) => {
                if row.race() {
                    let seen = format!("{:?}: {}", sight.outcome, sight.line);
                    *races.entry(number).or_default().entry(seen).or_default() += 1;
                }
                wrong.extend(compare_sight(row, &sight));
            }
            Err(shown) => wrong.extend(compare_shown(row, &shown, server)),
        }
    }
    for (number, seen) in races {
        for (line, times) in seen {
            println!("race {}: {times} × {line}", rows[number].id);
        }
    }
    println!("{} rows, tonic's server feature: {server}", rows.len());
    wrong.sort();
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The line decides which of the row's possibilities it is, and that decides the outcome.
pub(crate) fn compare_sight(row: &Row, sight: &Sight) -> Option<String> {
    let right = row
        .lists(&sight.line)
        .is_some_and(|seen| seen.outcome == sight.outcome && fits(seen.cause, &sight.cause));
    (!right).then(|| format!("{}: {sight:?}, expected {:?}", row.id, row.seen))
}

/// A pattern that names no method is for both.
pub(crate) fn compare_shown(row: &Row, shown: &str, server: bool) -> Option<String> {
    let expected = &row.shown[usize::from(server)];
    let (_, bare) = shown.split_once(' ')?;
    let right = expected
        .iter()
        .any(|pattern| fits(pattern, bare) || fits(pattern, shown));
    (!right).then(|| format!("{}: shown {shown:?}, expected {expected:?}", row.id))
}
