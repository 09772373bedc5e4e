//! X3: settings that are out of range are refused when the layer is built, with their name, value and range.

use std::time::Duration;

use steadfast_sparse::{Key, SparseConfig, SparseFlowLayer, Watermark};

/// A change to the default settings, and what is said of it: field, value and range.
type Row = (
    fn(&mut SparseConfig),
    &'static str,
    &'static str,
    &'static str,
);

const COUNT: &str = "1 to 1000000";
const TIME: &str = "1ms to 3600s";

/// X3: each setting, below and above its range.
#[test]
fn out_of_range() {
    let rows: [Row; 19] = [
        (|c| c.places = 0, "places", "0", COUNT),
        (|c| c.places = 1_000_001, "places", "1000001", COUNT),
        (|c| c.reserve = 16, "reserve", "16", "0 to 15"),
        (|c| (c.places, c.reserve) = (1, 1), "reserve", "1", "0 to 0"),
        (
            |c| c.watermark = Watermark::Calls(0),
            "watermark",
            "0",
            COUNT,
        ),
        (
            |c| c.watermark = Watermark::PlacesOver(0),
            "watermark",
            "0",
            COUNT,
        ),
        (
            |c| c.watermark = Watermark::Calls(1_000_001),
            "watermark",
            "1000001",
            COUNT,
        ),
        (|c| c.credits = 0, "credits", "0", COUNT),
        (|c| c.credits = 1_000_001, "credits", "1000001", COUNT),
        (
            |c| c.credit_decay = Some(Duration::ZERO),
            "credit_decay",
            "0ns",
            TIME,
        ),
        (|c| c.guard = Some(0), "guard", "0", COUNT),
        (|c| c.guard = Some(1_000_001), "guard", "1000001", COUNT),
        (
            |c| c.max_waiting_per_flow = 0,
            "max_waiting_per_flow",
            "0",
            COUNT,
        ),
        (|c| c.max_waiting = 0, "max_waiting", "0", COUNT),
        (
            |c| c.max_waiting = 1_000_001,
            "max_waiting",
            "1000001",
            COUNT,
        ),
        (
            |c| c.longest_wait = Some(Duration::ZERO),
            "longest_wait",
            "0ns",
            TIME,
        ),
        (
            |c| c.longest_wait = Some(Duration::from_secs(3601)),
            "longest_wait",
            "3601s",
            TIME,
        ),
        (
            |c| c.pushback = Duration::from_micros(999),
            "pushback",
            "999µs",
            TIME,
        ),
        (
            |c| c.pushback = Duration::from_secs(3601),
            "pushback",
            "3601s",
            TIME,
        ),
    ];
    for (change, field, value, range) in rows {
        let mut config = SparseConfig::default();
        change(&mut config);
        let error = SparseFlowLayer::client(config).unwrap_err();
        assert_eq!(error.field(), format!("sparse.{field}"));
        assert_eq!((error.value(), error.range()), (value, range), "{field}");
        assert!(error.to_string().contains(field) && error.to_string().contains(value));
    }
}

/// X3: what is just in range is taken.
#[test]
fn in_range() {
    let mut config = SparseConfig {
        places: 1,
        watermark: Watermark::Calls(1),
        credits: 1,
        guard: None,
        max_waiting_per_flow: 1,
        max_waiting: 1,
        credit_decay: Some(Duration::from_millis(1)),
        longest_wait: Some(Duration::from_secs(3600)),
        ..SparseConfig::default()
    };
    config.validate().unwrap();
    (config.places, config.reserve) = (1_000_000, 999_999);
    config.watermark = Watermark::PlacesOver(1_000_000);
    config.validate().unwrap();
    SparseConfig::default().validate().unwrap();
}

/// X3: the defaults are those that the rules name.
#[test]
fn defaults() {
    let config = SparseConfig::default();
    assert_eq!(config.watermark, Watermark::Calls(4));
    assert_eq!((config.credits, config.guard), (64, Some(4)));
    assert_eq!(
        (config.max_waiting_per_flow, config.max_waiting),
        (256, 4096)
    );
    assert_eq!(
        (config.reserve, config.longest_wait, config.credit_decay),
        (0, None, None)
    );
}

/// X3: so are names that can't be those of a header or a method.
#[test]
fn names() {
    let error = Key::metadata("no header").unwrap_err();
    assert_eq!(
        (error.field(), error.value()),
        ("sparse.key.metadata", "\"no header\"")
    );
    let layer = SparseFlowLayer::client(SparseConfig::default()).unwrap();
    for good in ["/a.B/", "/a.B/C"] {
        layer.with_express([good]).unwrap();
    }
    for bad in ["", "/", "//", "a.B/C", "/a.B", "//C", "/a.B/C/d"] {
        let error = layer.with_express(["/a.B/C", bad]).unwrap_err();
        assert_eq!(
            (error.field(), error.value()),
            ("sparse.express", &*format!("{bad:?}"))
        );
        assert_eq!(
            error.range(),
            "/package.Service/Method or /package.Service/"
        );
    }
}
