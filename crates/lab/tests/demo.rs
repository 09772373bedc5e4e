//! A short demo, with helper processes and all.

use std::path::PathBuf;

use steadfast_lab::contender::Contender;
use steadfast_lab::demo::{self, Fault, JsonFile, Options, Report};
use steadfast_lab::places::Servers;
use steadfast_lab::rows::Rows;

const KEYS: [&str; 21] = [
    "fault",
    "contender",
    "offered_rps",
    "rps",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "worst_ms",
    "worst_wait_ms",
    "failed_locally",
    "retried",
    "resumed",
    "quarantined",
    "over_1s",
    "over_10s",
    "errors",
    "unfinished",
    "bad_share",
    "channels",
    "cpu_s",
    "rss_mib",
];

fn options(faults: &[Fault]) -> Options {
    Options {
        program: PathBuf::from(env!("CARGO_BIN_EXE_steadfast-lab")),
        servers: Servers::Embedded,
        emulator: None,
        faults: faults.to_vec(),
        contenders: vec![Contender::Channel, Contender::TonicBalance],
        seconds: 1.0,
        rate: Some(100.0),
        rows: Rows {
            count: 200,
            seed: 1,
        },
    }
}

async fn report(options: &Options) -> Report {
    let mut report = Report::default();
    demo::run(options, &mut report, std::future::pending())
        .await
        .unwrap();
    report
}

#[tokio::test]
async fn a_frozen_server_shows_in_every_figure_and_the_rows_have_their_keys() {
    let report = report(&options(&[Fault::Frozen])).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    JsonFile::open(&path).unwrap().write(&report.rows).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rows = json.as_array().expect("an array of rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let mut keys: Vec<_> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = KEYS.to_vec();
        keys.sort_unstable();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(
            (row["fault"].as_str(), row["offered_rps"].as_f64()),
            (Some("frozen"), Some(100.0))
        );
        assert!(row["over_10s"].is_null());
    }
    let [channel, balance] = &report.rows[..] else {
        panic!("{report}")
    };
    assert!(
        channel.unfinished > 60,
        "everything after the fault is stuck: {report}"
    );
    assert!(
        channel.worst_ms.is_some_and(|worst| worst > 1000.0),
        "{report}"
    );
    assert_eq!(channel.bad_share, Some(1.0), "{report}");
    assert_eq!(balance.channels, 10);
    assert!(
        balance
            .bad_share
            .is_some_and(|share| share > 0.0 && share < 0.9),
        "{report}"
    );
}

#[tokio::test]
async fn a_failing_server_answers_with_errors_and_what_cannot_be_shown_is_skipped() {
    let report = report(&options(&[Fault::LazyScans, Fault::Failing])).await;
    assert_eq!(
        report
            .skipped
            .iter()
            .map(|skipped| skipped.fault)
            .collect::<Vec<_>>(),
        [Fault::LazyScans],
        "{report}"
    );
    let channel = &report.rows[0];
    assert!(channel.errors > 60 && channel.unfinished == 0, "{report}");
    assert!(report.to_string().contains("--rows"), "{report}");
}

#[tokio::test]
async fn what_is_done_to_one_connection_and_to_all_shows() {
    let faults = [Fault::Freeze, Fault::Mute, Fault::Goaway, Fault::Restart];
    let options = Options {
        contenders: vec![Contender::Channel],
        seconds: 2.5,
        ..options(&faults)
    };
    let report = report(&options).await;
    let [freeze, mute, goaway, restart] = &report.rows[..] else {
        panic!("{report}")
    };
    for silent in [freeze, mute] {
        assert!(silent.unfinished > 150, "{report}");
        assert!(silent.worst_wait_ms > 1_900.0, "{report}");
    }
    assert_eq!(goaway.unfinished, 0, "clients connect again: {report}");
    assert!(goaway.errors < 10 && goaway.rps > 80.0, "{report}");
    assert!(restart.errors > 50, "while it is away: {report}");
    assert!(
        restart.rps > 50.0,
        "a plain channel dials again by itself: {report}"
    );
    assert!(report.rows.iter().all(|row| row.bad_share.is_none()));
}

#[tokio::test]
async fn an_interruption_keeps_what_was_measured() {
    let mut kept = Report::default();
    demo::run(
        &options(&[Fault::None, Fault::Frozen]),
        &mut kept,
        tokio::time::sleep(std::time::Duration::from_millis(3300)),
    )
    .await
    .unwrap();
    assert!(kept.interrupted);
    assert!((1..4).contains(&kept.rows.len()), "{kept}");
    let row = &kept.rows[0];
    assert_eq!(
        (row.errors, row.unfinished, row.bad_share),
        (0, 0, None),
        "{kept}"
    );
    assert!(row.rps > 90.0, "{kept}");
}
