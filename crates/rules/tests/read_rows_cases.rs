//! Google's public cases for the chunks of ReadRows: each through the tracker.
//!
//! They aren't part of this repository: `READ_ROWS_CASES` names the file, which Debian's package
//! `golang-google-cloud-dev` has. `.ci/run` fetches it.

#![cfg(feature = "bigtable")]

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsResponse,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
};
use prost::Message;
use serde_json::Value;
use steadfast_rules::bigtable::RowTracker;

const FILE: &str = "READ_ROWS_CASES";

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap()
}

fn chunk(case: &Value) -> CellChunk {
    let status = match (case["resetRow"].as_bool(), case["commitRow"].as_bool()) {
        (Some(true), _) => Some(RowStatus::ResetRow(true)),
        (_, Some(commit)) => Some(RowStatus::CommitRow(commit)),
        _ => None,
    };
    let number = |name: &str| match &case[name] {
        Value::String(text) => text.parse().unwrap(),
        value => value.as_i64().unwrap_or_default(),
    };
    let labels = case["labels"].as_array().cloned().unwrap_or_default();
    CellChunk {
        row_key: bytes(&case["rowKey"]),
        family_name: case["familyName"].as_str().map(str::to_owned),
        qualifier: case.get("qualifier").map(bytes),
        timestamp_micros: number("timestampMicros"),
        labels: labels
            .iter()
            .map(|it| it.as_str().unwrap().to_owned())
            .collect(),
        value: bytes(&case["value"]),
        value_size: number("valueSize") as i32,
        row_status: status,
    }
}

/// R9: rows are whole where Google's cases say so, and errors are where they say so.
#[test]
fn googles_cases() {
    let Some(path) = std::env::var_os(FILE) else {
        let line = format!("SKIPPED Google's ReadRows cases: {FILE} names no file");
        eprintln!("{line}");
        if let Some(log) = std::env::var_os("STEADFAST_SKIP_LOG") {
            use std::io::Write;
            let mut log = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(log)
                .unwrap();
            writeln!(log, "{line}").unwrap();
        }
        return;
    };
    let text = std::fs::read_to_string(&path).expect("the file can be read");
    let all: Value = serde_json::from_str(&text).unwrap();
    let cases = all["readRowsTests"].as_array().expect("cases");
    assert!(cases.len() >= 48, "{} cases", cases.len());
    for case in cases {
        let name = &case["description"];
        let results = case["results"].as_array().cloned().unwrap_or_default();
        let wanted: BTreeSet<_> = results
            .iter()
            .filter(|it| it["error"] != true)
            .map(|it| {
                it["rowKey"]
                    .as_str()
                    .unwrap_or_default()
                    .as_bytes()
                    .to_vec()
            })
            .collect();
        let fails = results.iter().any(|it| it["error"] == true);
        let chunks: Vec<_> = case["chunks"]
            .as_array()
            .unwrap()
            .iter()
            .map(chunk)
            .collect();
        // All in one response, and each in one of its own.
        for at_once in [chunks.len(), 1] {
            let mut tracker = RowTracker::new(false);
            let mut came = BTreeSet::new();
            let mut failed = false;
            for chunks in chunks.chunks(at_once) {
                let response = ReadRowsResponse {
                    chunks: chunks.to_vec(),
                    ..ReadRowsResponse::default()
                };
                failed |= tracker.response(&response.encode_to_vec()).is_err();
                came.extend(tracker.last_key().map(<[u8]>::to_vec));
                if failed {
                    break;
                }
            }
            failed |= tracker.end().is_err();
            assert_eq!(failed, fails, "{name}");
            assert_eq!(tracker.rows() as usize, wanted.len(), "{name}");
            assert_eq!(came.last(), wanted.last(), "{name}");
            if at_once == 1 {
                assert_eq!(came, wanted, "{name}");
            }
        }
    }
}
