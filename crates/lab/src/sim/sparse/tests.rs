//! The figures that the rules name, in virtual time: nothing here depends on how fast the machine is.

use std::time::Duration;

use super::{
    chart,
    row::{Discipline, Row, Variant},
    run::{self, GAPS, Options},
    tables,
};

use Discipline::{ExactZero, Guard, InService, OneRing, Reserve, Watermark};

const OPTIONS: Options = Options {
    length: Duration::from_secs(20),
    warm_up: run::WARM_UP,
    seed: 1,
};

fn sweep(discipline: Discipline, bulk: u32, window: u32) -> Row {
    run::sweep(OPTIONS, discipline, bulk, window)
}

fn near(what: &str, ours: f64, named: f64, tolerance: f64) {
    let off = (ours / named - 1.0).abs();
    assert!(
        off <= tolerance,
        "{what}: {ours:.2} for {named}, off by {off:.3}"
    );
}

/// A discipline, windows, and their medians beside 4, 8 and 16 busy flows.
type Named = (Discipline, &'static [u32], [&'static [f64]; 3]);

/// F2: the table of latencies by discipline, busy flows and window, within 5 %.
#[test]
fn the_table() {
    let rows: [Named; 5] = [
        (
            OneRing,
            &[1, 4, 8],
            [
                &[15.9, 16.2, 31.0],
                &[19.6, 27.6, 56.0],
                &[25.4, 52.4, 105.0],
            ],
        ),
        (
            ExactZero,
            &[1, 2, 4, 8],
            [
                &[13.0, 16.0, 16.2, 31.0],
                &[13.0, 19.6, 27.6, 56.0],
                &[13.0, 26.1, 52.4, 105.0],
            ],
        ),
        (
            InService(4),
            &[1, 4],
            [&[13.1, 13.9], &[19.6, 27.6], &[25.4, 52.4]],
        ),
        (
            Watermark(4),
            &[1, 2, 3, 4],
            [
                &[13.0, 13.0, 13.0, 13.0],
                &[13.0, 13.0, 13.0, 13.0],
                &[13.0, 13.0, 13.0, 13.0],
            ],
        ),
        (
            Watermark(4),
            &[5, 8],
            [&[19.5, 31.0], &[35.2, 56.0], &[65.5, 105.0]],
        ),
    ];
    for (discipline, windows, named) in rows {
        for (bulk, named) in [4, 8, 16].into_iter().zip(named) {
            for (window, named) in windows.iter().zip(named) {
                let row = sweep(discipline, bulk, *window);
                let what = format!("{discipline}, K={bulk}, W={window}");
                near(&what, row.p50_ms, *named, 0.05);
                near(&what, row.floor_ms, 12.4, 0.01);
                near(&what, row.total_per_s, 1290.0, 0.02);
            }
        }
    }
}

/// F2: below the watermark the 99th percentile is near the floor too, and the ratio to one ring is what is promised.
#[test]
fn the_promise() {
    for window in 1..=4 {
        let row = sweep(Watermark(4), 16, window);
        assert!(
            row.p50_ms <= 1.15 * row.floor_ms && row.p99_ms <= 1.5 * row.floor_ms,
            "{row:?}"
        );
        near("p99", row.p99_ms, 16.0, 0.2);
    }
    let ratio = sweep(OneRing, 16, 4).p50_ms / sweep(Watermark(4), 16, 4).p50_ms;
    assert!(ratio >= 3.5, "{ratio}");
    let cliff = sweep(Watermark(4), 16, 5);
    assert!(cliff.p50_ms >= 4.0 * cliff.floor_ms, "{cliff:?}");
}

/// F2: with a watermark of 1 a caller with one call always finds itself sparse, and one with two never; with 2, one
/// with two does.
#[test]
fn who_is_found_sparse() {
    for bulk in [4, 8, 16] {
        assert!(sweep(ExactZero, bulk, 1).rearm_share >= 0.99);
        for window in 2..=8 {
            let row = sweep(ExactZero, bulk, window);
            assert!(row.rearm_share <= 0.01, "{row:?}");
            assert_eq!(row.credit_end, 0);
        }
        assert!(sweep(Watermark(2), bulk, 2).rearm_share >= 0.99);
        assert!(sweep(Watermark(2), bulk, 3).rearm_share <= 0.01);
        assert!(sweep(Watermark(4), bulk, 4).rearm_share >= 0.99);
        assert!(sweep(Watermark(4), bulk, 5).rearm_share <= 0.01);
    }
}

/// F2: with the depth taken from what runs, everyone is sparse and the promise is broken.
#[test]
fn the_wrong_depth_fails() {
    let row = sweep(InService(4), 16, 1);
    assert!(row.rearm_share >= 0.99);
    assert!(row.p50_ms > 1.15 * row.floor_ms, "{row:?}");
    near(
        "as one ring",
        row.p50_ms,
        sweep(OneRing, 16, 1).p50_ms,
        0.02,
    );
}

/// F3: the guard leaves bulk a fifth, and costs a lone caller nothing; without it bulk starves.
#[test]
fn the_guard() {
    let (with, without) = (run::serial(OPTIONS, 4), run::serial(OPTIONS, 0));
    assert!(with.bulk_share >= 0.18, "{with:?}");
    near("bulk's share", with.bulk_share, 0.2, 0.05);
    assert!(without.bulk_share < 0.001, "{without:?}");
    let (with, without) = (sweep(Guard(4), 8, 4), sweep(Guard(0), 8, 4));
    near("a lone caller", with.p50_ms, without.p50_ms, 0.01);
}

/// F4: long calls and a reserve.
#[test]
fn the_reserve() {
    let ring = run::long(OPTIONS, OneRing);
    let (none, one) = (
        run::long(OPTIONS, Reserve(0)),
        run::long(OPTIONS, Reserve(1)),
    );
    near("one ring", ring.p99_ms, 561.0, 0.2);
    near("no reserve", none.p99_ms, 129.0, 0.2);
    near("one place", one.p99_ms, 19.0, 0.2);
    assert!(one.p99_ms <= 25.0);
    let scans = |row: &Row| row.bulk_share * row.total_per_s;
    let cost = 1.0 - scans(&one) / scans(&none);
    near("what it costs bulk", cost, 0.04, 0.2);
}

/// F2: interactive callers with gaps stay near the floor.
#[test]
fn gaps() {
    for discipline in [ExactZero, Watermark(4)] {
        for gaps in GAPS {
            let row = run::with_gaps(OPTIONS, discipline, gaps);
            assert!(row.p50_ms <= 1.15 * row.floor_ms, "{row:?}");
        }
    }
}

/// F9: what a caller that plays the watermark takes: three quarters in the rules, less in this model.
#[test]
fn a_caller_that_shapes_its_traffic() {
    let row = run::shaped(OPTIONS, 4);
    near("its share", 1.0 - row.bulk_share, 0.75, 0.2);
    assert!(run::shaped(OPTIONS, 0).bulk_share < row.bulk_share);
}

/// F8: the throughput is that of one ring of flows.
#[test]
fn throughput() {
    for window in [1, 4, 8] {
        let (ours, ring) = (sweep(Watermark(4), 16, window), sweep(OneRing, 16, window));
        near("calls a second", ours.total_per_s, ring.total_per_s, 0.02);
    }
}

/// The same seed gives the same rows, another one others.
#[test]
fn runs_repeat() {
    let row = |seed| {
        let options = Options { seed, ..OPTIONS };
        format!("{:?}", run::sweep(options, Watermark(4), 8, 3))
    };
    assert_eq!(row(1), row(1));
    assert_ne!(row(1), row(2));
}

/// The file has the names that are documented, and the tables and the picture every cell.
#[test]
fn all_of_it_is_shown() {
    let options = Options {
        length: Duration::from_millis(200),
        warm_up: 1,
        seed: 1,
    };
    let mut announced = 0;
    let rows = run::all(options, |_| announced += 1);
    assert_eq!((rows.len(), announced), (run::ROWS, run::ROWS));
    let json = serde_json::to_value(&rows).unwrap();
    let mut names = Vec::new();
    for row in json.as_array().unwrap() {
        let row = row.as_object().unwrap();
        let mut keys: Vec<_> = row.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "aggressor_p50_ms",
                "bulk_flows",
                "bulk_share",
                "credit_end",
                "discipline",
                "floor_ms",
                "p50_ms",
                "p99_ms",
                "rearm_share",
                "total_per_s",
                "window",
            ]
        );
        let cell = format!(
            "{} {} {}",
            row["discipline"], row["bulk_flows"], row["window"]
        );
        assert!(!names.contains(&cell), "{cell} twice");
        names.push(cell);
    }
    for name in [
        "\"one-ring\" 16 1",
        "\"exact-zero\" 8 8",
        "\"watermark-2\" 4 2",
        "\"watermark-4\" 16 4",
        "\"in-service-4\" 16 1",
        "\"guard-4\" 8 1",
        "\"reserve-1\" 8 2",
        "\"watermark-4-walk\" 16 3",
    ] {
        assert!(names.iter().any(|cell| cell == name), "{name}");
    }
    let text = tables::text(&rows);
    for word in [
        "K=16",
        "in-service-4",
        "reserve-1",
        "bursts",
        "walk",
        "its share",
    ] {
        assert!(text.contains(word), "{word}");
    }
    assert!(!Variant::Plain.to_string().contains('-'));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.svg");
    chart::draw(&path, &rows).unwrap();
    let picture = std::fs::read_to_string(path).unwrap();
    for discipline in run::SWEEP {
        assert_eq!(
            picture.matches(&discipline.to_string()).count(),
            3,
            "{discipline}"
        );
    }
    chart::draw(folder.path(), &rows).unwrap_err();
}
