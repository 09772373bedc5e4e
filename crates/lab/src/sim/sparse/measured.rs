//! What was measured of one kind of flow.

use hdrhistogram::Histogram;

/// What was measured of one group, after the warm-up.
#[derive(Debug)]
pub(super) struct Measured {
    /// From arrival to end, in microseconds.
    latencies: Histogram<u64>,
    pub(super) calls: u64,
    pub(super) arrivals: u64,
    pub(super) rearmed: u64,
}

impl Measured {
    pub(super) fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000, 3);
        Self {
            latencies: latencies.expect("the bounds are in order"),
            calls: 0,
            arrivals: 0,
            rearmed: 0,
        }
    }

    pub(super) fn ended(&mut self, latency: u64) {
        self.calls += 1;
        self.latencies.saturating_record(latency / 1000);
    }

    /// A quantile of the latency, in milliseconds.
    pub(super) fn ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1000.0
    }
}
