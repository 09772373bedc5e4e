//! `sim pickers` against figures that were had with a model of the same kind, written by someone else.

use steadfast_lab::sim::pickers::{Case, Counted, Picker, p99};

/// B1, B2: ten channels at 90 % load. Counting to the body's end and picking the least loaded channel keeps p99
/// far below what counting to the headers does; each within 15 % of the figure that the other model gave.
#[test]
fn the_pickers_take_what_they_took_elsewhere() {
    let expected = [
        (Picker::LeastLoaded, Counted::Body, 10.4),
        (Picker::LeastLoaded, Counted::Headers, 29.0),
        (Picker::PowerOfTwo, Counted::Body, 16.6),
        (Picker::Random, Counted::Body, 76.0),
    ];
    for (picker, counted, expected) in expected {
        let case = Case {
            picker,
            counted,
            channels: 10,
            rho: 0.9,
        };
        let p99 = p99(case);
        println!("{case}: {p99:.1}, elsewhere {expected}");
        let off = (p99 / expected - 1.0).abs();
        assert!(off < 0.15, "{case}: {p99} instead of about {expected}");
    }
}
