//! The cases of `chunks.txt`: what `Chunks` makes of each stream of chunks, however it is cut into responses.

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    ReadRowsResponse,
    read_rows_response::{CellChunk, cell_chunk::RowStatus},
};
use prost::Message;
use steadfast_rules::bigtable::Chunks;

#[derive(Clone, Debug)]
enum Step {
    Chunk(CellChunk),
    Scanned(Vec<u8>),
}

impl Step {
    fn of(line: &str) -> Self {
        match line.split_at(1) {
            ("+", chunk) => Self::Chunk(chunk_of(chunk)),
            ("~", key) => Self::Scanned(key.trim().into()),
            _ => panic!("no step: {line}"),
        }
    }
}

fn chunk_of(words: &str) -> CellChunk {
    let mut chunk = CellChunk::default();
    for word in words.split_whitespace() {
        let (name, text) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "row" => chunk.row_key = text.into(),
            "fam" => chunk.family_name = Some(text.into()),
            "col" => chunk.qualifier = Some(text.into()),
            "at" => chunk.timestamp_micros = text.parse().unwrap(),
            "label" => chunk.labels.push(text.into()),
            "val" => chunk.value = text.into(),
            "size" => chunk.value_size = text.parse().unwrap(),
            "commit" => chunk.row_status = Some(RowStatus::CommitRow(true)),
            "reset" => chunk.row_status = Some(RowStatus::ResetRow(true)),
            _ => panic!("no part of a chunk: {word}"),
        }
    }
    chunk
}

struct Case {
    name: String,
    reversed: bool,
    steps: Vec<Step>,
    outcome: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let lines = include_str!("chunks.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[') {
            let (name, flags) = header.split_once(']').unwrap();
            cases.push(Case {
                name: name.into(),
                reversed: flags.trim() == "reversed",
                steps: Vec::new(),
                outcome: String::new(),
            });
            continue;
        }
        let case = cases.last_mut().expect("a header comes first");
        match line.strip_prefix("= ") {
            Some(outcome) => case.outcome = outcome.into(),
            None => case.steps.push(Step::of(line)),
        }
    }
    cases
}

/// What became of a stream, in the file's words.
fn outcome(chunks: &Chunks) -> String {
    let last = chunks.last_key().unwrap_or(b"-");
    let open = if chunks.row_open() { ", one open" } else { "" };
    let last = String::from_utf8_lossy(last);
    format!("{} rows, last {last}{open}", chunks.rows())
}

/// The steps as responses; `cuts` has a bit for each place between two steps where a new one begins. One with a
/// scanned key ends behind it.
fn responses(steps: &[Step], cuts: u32) -> Vec<ReadRowsResponse> {
    let mut responses = vec![ReadRowsResponse::default()];
    for (index, step) in steps.iter().enumerate() {
        let open = responses.last_mut().unwrap();
        if cuts >> index & 1 == 1 || !open.last_scanned_row_key.is_empty() {
            responses.push(ReadRowsResponse::default());
        }
        let open = responses.last_mut().unwrap();
        match step {
            Step::Chunk(chunk) => open.chunks.push(chunk.clone()),
            Step::Scanned(key) => open.last_scanned_row_key = key.clone(),
        }
    }
    responses
}

/// R9: every case ends as the file says, and a wrong chunk is refused where it comes and not later.
#[test]
fn each_case_ends_as_the_file_says() {
    let cases = cases();
    assert!(cases.len() > 70, "only {} cases were read", cases.len());
    for case in cases {
        let name = &case.name;
        let mut chunks = Chunks::new(case.reversed);
        let (last, before) = case.steps.split_last().expect("a case has steps");
        for step in before {
            for response in responses(std::slice::from_ref(step), 0) {
                let message = response.encode_to_vec();
                chunks
                    .message(&message)
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
        let message = responses(std::slice::from_ref(last), 0)[0].encode_to_vec();
        match chunks.message(&message) {
            Ok(()) => assert_eq!(outcome(&chunks), case.outcome, "{name}"),
            Err(error) => assert_eq!("refused", case.outcome, "{name}: {error}"),
        }
    }
}

/// R9: it makes no difference how the chunks are spread over responses.
#[test]
fn each_case_ends_the_same_however_it_is_cut() {
    for case in cases() {
        for cuts in 0..1 << case.steps.len() {
            let mut chunks = Chunks::new(case.reversed);
            let mut messages = responses(&case.steps, cuts).into_iter();
            let name = format!("{} cut at {cuts:b}", case.name);
            match messages.try_for_each(|response| chunks.message(&response.encode_to_vec())) {
                Ok(()) => assert_eq!(outcome(&chunks), case.outcome, "{name}"),
                Err(error) => assert_eq!("refused", case.outcome, "{name}: {error}"),
            }
        }
    }
}

/// R9: the rows of a response come before the key that it says was scanned, and keys are compared as bytes.
#[test]
fn a_response_with_rows_and_a_scanned_key() {
    let row = |key: &[u8]| CellChunk {
        row_key: key.into(),
        ..chunk_of("fam=f col=q commit")
    };
    let response = ReadRowsResponse {
        chunks: vec![row(b"a"), row(b"a\0"), row(b"\x7f"), row(b"\xff")],
        last_scanned_row_key: b"\xff\0".into(),
        ..ReadRowsResponse::default()
    };
    let mut chunks = Chunks::new(false);
    chunks.message(&response.encode_to_vec()).unwrap();
    assert_eq!(
        (chunks.rows(), chunks.last_key()),
        (4, Some(&b"\xff\0"[..]))
    );
}

/// R8: an error says what was wrong, and where.
#[test]
fn an_error_says_what_was_wrong() {
    let mut chunks = Chunks::new(false);
    let good = Step::of("+ row=bee fam=f col=q commit");
    let bad = Step::of("+ row=ant fam=f col=q commit");
    let message = responses(&[good, bad], 0)[0].encode_to_vec();
    let error = chunks.message(&message).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a wrong ReadRowsResponse: a row that isn't after the last one, after 1 rows"
    );
    let error = chunks.message(b"\x0a\x7f").unwrap_err();
    assert_eq!(
        error.to_string(),
        "a wrong ReadRowsResponse: it can't be read: a field is cut off"
    );
    let nameless = responses(&[Step::of("+ fam=f col=q commit")], 0);
    let error = chunks.message(&nameless[0].encode_to_vec()).unwrap_err();
    assert!(error.to_string().contains("without a key"), "{error}");
    let error = chunks.message(b"\xff").unwrap_err();
    assert!(std::error::Error::source(&error).is_some());
}
