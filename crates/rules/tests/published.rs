//! Google's own acceptance cases for ReadRows chunks. They aren't part of this repository: `STEADFAST_READROWS_JSON`
//! names their file, which `.ci/run` fetches with Debian's package `golang-google-cloud-dev`.

use std::{fs, io::Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsResponse,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
};
use prost::Message;
use serde_json::Value;
use steadfast_rules::bigtable::Chunks;

fn skip(why: &str) {
    let line = format!("SKIPPED the published cases of ReadRows: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("STEADFAST_SKIP_LOG") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.expect("the skip log can be written");
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    Some(STANDARD.decode(text).expect("bytes are base64"))
}

fn chunk(json: &Value) -> CellChunk {
    let flag = |name: &str| json[name].as_bool().filter(|set| *set);
    let labels = json["labels"].as_array().into_iter().flatten();
    let timestamp = json["timestampMicros"].as_str().unwrap_or("0");
    let commit = flag("commitRow").map(RowStatus::CommitRow);
    CellChunk {
        row_key: bytes(&json["rowKey"]).unwrap_or_default(),
        family_name: json["familyName"].as_str().map(Into::into),
        qualifier: bytes(&json["qualifier"]),
        timestamp_micros: timestamp.parse().expect("a number"),
        labels: labels
            .map(|label| label.as_str().expect("text").into())
            .collect(),
        value: bytes(&json["value"]).unwrap_or_default(),
        value_size: json["valueSize"].as_i64().unwrap_or(0) as i32,
        row_status: flag("resetRow").map(RowStatus::ResetRow).or(commit),
    }
}

/// R9: each published case gives the rows that it names, and is refused where it is an error.
#[test]
fn the_published_cases() {
    let Some(path) = std::env::var_os("STEADFAST_READROWS_JSON") else {
        return skip("STEADFAST_READROWS_JSON names no file");
    };
    let text = fs::read_to_string(&path).expect("the file is readable");
    let file: Value = serde_json::from_str(&text).expect("the file is JSON");
    let cases = file["readRowsTests"].as_array().expect("a list of cases");
    assert!(
        cases.len() >= 40,
        "only {} cases in {}",
        cases.len(),
        path.display()
    );
    for case in cases {
        let name = &case["description"];
        let mut chunks = Chunks::new(false);
        let mut delivered = case["chunks"].as_array().into_iter().flatten();
        let refused = delivered.try_for_each(|json| {
            let response = ReadRowsResponse {
                chunks: vec![chunk(json)],
                ..ReadRowsResponse::default()
            };
            chunks.message(&response.encode_to_vec())
        });
        let broken = refused.is_err() || chunks.row_open();
        let results: Vec<_> = case["results"].as_array().into_iter().flatten().collect();
        let is_error = |result: &&&Value| result["error"].as_bool() == Some(true);
        assert_eq!(
            broken,
            results.iter().any(|result| is_error(&result)),
            "{name}"
        );
        let mut keys: Vec<_> = results
            .iter()
            .filter_map(|result| result["rowKey"].as_str())
            .collect();
        keys.dedup();
        assert_eq!(chunks.rows(), keys.len() as u64, "{name}");
        let last = chunks.last_key().map(String::from_utf8_lossy);
        assert_eq!(last.as_deref(), keys.last().copied(), "{name}");
    }
}
