//! Metrics.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::{Bound, Lane, SparseReading};

const CALLS: &str = "steadfast.sparse.calls";
const REFUSED: &str = "steadfast.sparse.refused";
const WAIT: &str = "steadfast.sparse.wait";
const RUNNING: &str = "steadfast.sparse.running";
const WAITING: &str = "steadfast.sparse.waiting";
const FLOWS: &str = "steadfast.sparse.flows";

/// The metrics of one layer, from the recorder that was there when it was built.
pub(crate) struct Metrics {
    name: String,
    calls: [Counter; 2],
    passed: Counter,
    wait: [Histogram; 2],
    running: [Gauge; 2],
    waiting: [Gauge; 2],
    flows: Gauge,
}

impl Metrics {
    pub(crate) fn new(name: &str) -> Self {
        describe();
        let both = [Lane::High, Lane::Bulk].map(Lane::label);
        let calls = |lane| counter!(CALLS, "pool" => name.to_owned(), "lane" => lane);
        Self {
            calls: both.map(calls),
            passed: calls("passed"),
            wait: both.map(|lane| histogram!(WAIT, "pool" => name.to_owned(), "lane" => lane)),
            running: both.map(|lane| gauge!(RUNNING, "pool" => name.to_owned(), "lane" => lane)),
            waiting: both.map(|lane| gauge!(WAITING, "pool" => name.to_owned(), "lane" => lane)),
            flows: gauge!(FLOWS, "pool" => name.to_owned()),
            name: name.to_owned(),
        }
    }

    /// A call got its place, at once or after it waited.
    pub(crate) fn granted(&self, lane: Lane, waited: Option<Duration>) {
        self.calls[lane as usize].increment(1);
        if let Some(time) = waited {
            self.wait[lane as usize].record(time);
        }
    }

    /// A call needed no place.
    pub(crate) fn passed(&self) {
        self.passed.increment(1);
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        counter!(REFUSED, "pool" => self.name.clone(), "reason" => reason).increment(1);
    }

    /// Sets the gauges from the state.
    pub(crate) fn publish(&self, reading: SparseReading) {
        for lane in [Lane::High, Lane::Bulk] {
            self.running[lane as usize].set(f64::from(reading.running[lane as usize]));
            self.waiting[lane as usize].set(f64::from(reading.waiting[lane as usize]));
        }
        self.flows
            .set(f64::from(u32::try_from(reading.flows).unwrap_or(u32::MAX)));
    }
}

impl Lane {
    fn label(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Bulk => "bulk",
        }
    }
}

impl Bound {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Total => "total",
        }
    }
}

fn describe() {
    describe_counter!(
        CALLS,
        Unit::Count,
        "Calls that got a place, by the lane they came from, and calls that needed none"
    );
    describe_counter!(
        REFUSED,
        Unit::Count,
        "Calls that were refused, by reason: flow, total, wait, deadline, key"
    );
    describe_histogram!(
        WAIT,
        Unit::Seconds,
        "How long calls waited for a place, those that did"
    );
    describe_gauge!(
        RUNNING,
        Unit::Count,
        "Places taken, as last looked at: every 100 ms while calls arrive, and when the last one ends"
    );
    describe_gauge!(WAITING, Unit::Count, "Calls that wait, likewise");
    describe_gauge!(FLOWS, Unit::Count, "Flows that have a call, likewise");
}
