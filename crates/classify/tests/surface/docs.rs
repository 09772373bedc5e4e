//! `docs/failures.md` has the same rows as the table, with the same outcomes.

use std::collections::{BTreeMap, BTreeSet};

use super::row::Row;

const DOCS: &str = include_str!("../../../../docs/failures.md");

/// The outcomes of each row of the docs whose id is asked for.
fn documented(asked: impl Fn(&str) -> bool) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let cells = |line: &'static str| -> Vec<_> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    };
    DOCS.lines()
        .filter(|line| line.starts_with("| "))
        .map(cells)
        .filter(|cells| cells.len() == 4 && cells[0] != "id" && asked(cells[0]))
        .map(|cells| (cells[0], cells[3].split(", ").collect()))
        .collect()
}

/// The ids of the fenced block `ids`, in order.
fn listed() -> Vec<&'static str> {
    let (_, block) = DOCS.split_once("```ids").expect("the list of ids");
    let (block, _) = block.split_once("```").expect("the list's end");
    let ids = block.split([',', '\n']).map(str::trim);
    ids.filter(|id| !id.is_empty()).collect()
}

/// Compares the rows with the docs' list of ids, as far as they are asked for.
///
/// # Panics
/// If an id is in one of the two alone, or twice in either.
pub(crate) fn compare_ids(rows: &[Row], asked: impl Fn(&str) -> bool) {
    let mut listed = listed();
    listed.retain(|id| asked(id));
    listed.sort_unstable();
    let mut there: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    there.sort_unstable();
    let missing: Vec<_> = listed.iter().filter(|id| !there.contains(id)).collect();
    let unlisted: Vec<_> = there.iter().filter(|id| !listed.contains(id)).collect();
    assert!(
        listed == there,
        "without a row: {missing:?}, not in the docs' list: {unlisted:?}, or twice: {there:?}"
    );
}

/// `RST.7 before` is also `RST.n before`, and `Reset(7)` then `Reset(n)`.
fn general(id: &str) -> Option<(String, String)> {
    let (letter, rest) = id.split_once('.')?;
    let (which, phase) = match rest.split_once(' ') {
        Some((which, phase)) => (which, format!(" {phase}")),
        None => (rest, String::new()),
    };
    Some((format!("{letter}.n{phase}"), format!("({which})")))
}

fn outcomes(row: &Row, which: Option<&str>) -> BTreeSet<String> {
    let text = |outcome| match format!("{outcome:?}").as_str() {
        // Nothing comes at all.
        "Dropped" => "–".to_owned(),
        text => which.map_or_else(|| text.to_owned(), |which| text.replace(which, "(n)")),
    };
    row.seen.iter().map(|seen| text(seen.outcome)).collect()
}

/// Compares the rows with those of the docs whose id is asked for.
///
/// # Panics
/// If one is in the docs or the table alone, or has other outcomes there.
pub(crate) fn compare(rows: &[Row], asked: impl Fn(&str) -> bool) {
    let documented = documented(asked);
    let mut unseen: BTreeSet<_> = documented.keys().copied().collect();
    let mut wrong = Vec::new();
    for row in rows {
        let (id, which) = match general(&row.id) {
            Some((id, which)) if !documented.contains_key(row.id.as_str()) => (id, Some(which)),
            _ => (row.id.clone(), None),
        };
        let seen = outcomes(row, which.as_deref());
        match documented.get(id.as_str()) {
            Some(text) if seen.iter().map(String::as_str).eq(text.iter().copied()) => {}
            other => wrong.push(format!("{}: seen {seen:?}, documented {other:?}", row.id)),
        }
        unseen.remove(id.as_str());
    }
    wrong.extend(
        unseen
            .iter()
            .map(|id| format!("{id}: documented, and not in the table")),
    );
    assert!(
        wrong.is_empty(),
        "docs/failures.md differs\n{}",
        wrong.join("\n")
    );
}
