//! What became of each read: latencies from the scheduled arrival, errors, and the calls that were still open at the end.
//!
//! A latency starts when the read was *scheduled*, so a sender that falls behind shows in it. A call that never ended counts with its age: leaving it
//! out would make the worst contender look best.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The longest latency that is told apart, in microseconds: a day. A longer one would count as this, and no load is that long.
const LONGEST: u64 = 24 * 3600 * 1_000_000;

/// The books of one load.
#[derive(Debug)]
pub struct Ledger {
    open: BTreeMap<u64, Open>,
    next: u64,
    micros: Histogram<u64>,
    answered: u64,
    errors: u64,
    over_1s: u64,
    over_10s: u64,
    worst_wait: Duration,
}

/// An open read.
#[derive(Debug, Clone, Copy)]
struct Open {
    scheduled: Instant,
    /// Since when its caller waits: its arrival, or the last message.
    waits: Instant,
}

/// The books, closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Reads that were answered in full.
    pub answered: u64,
    /// Reads that ended with an error, or with too few rows.
    pub errors: u64,
    /// Reads still open at the end.
    pub unfinished: u64,
    /// Median latency; none when nothing was answered or left open. Answered and unfinished reads count, errors don't: failing fast isn't being fast.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// The longest.
    pub worst_ms: Option<f64>,
    /// How many took, or had been open for, more than a second.
    pub over_1s: u64,
    /// The same for ten seconds.
    pub over_10s: u64,
    /// The longest that a caller waited for the head of an answer, or for its next message, or still waits; failed
    /// reads count too.
    pub worst_wait_ms: f64,
}

impl Default for Ledger {
    fn default() -> Self {
        let micros = Histogram::new_with_bounds(1, LONGEST, 3)
            .expect("the bounds are in order and three digits are within what a histogram offers");
        Self {
            open: BTreeMap::new(),
            next: 0,
            micros,
            answered: 0,
            errors: 0,
            over_1s: 0,
            over_10s: 0,
            worst_wait: Duration::ZERO,
        }
    }
}

impl Ledger {
    /// Opens a read and returns its number.
    pub fn arrive(&mut self, scheduled: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        let waits = scheduled;
        self.open.insert(number, Open { scheduled, waits });
        number
    }

    /// Something of its answer came: the head, a message.
    pub fn received(&mut self, number: u64, now: Instant) {
        if let Some(read) = self.open.get_mut(&number) {
            let waited = now.saturating_duration_since(read.waits);
            read.waits = now;
            self.worst_wait = self.worst_wait.max(waited);
        }
    }

    /// Closes a read that was answered in full.
    pub fn answered(&mut self, number: u64, now: Instant) {
        self.received(number, now);
        if let Some(read) = self.open.remove(&number) {
            self.answered += 1;
            self.record(now.saturating_duration_since(read.scheduled));
        }
    }

    /// Closes a read that failed.
    pub fn failed(&mut self, number: u64, now: Instant) {
        self.received(number, now);
        self.errors += u64::from(self.open.remove(&number).is_some());
    }

    /// Counts an error of a read that isn't measured.
    pub fn failed_unmeasured(&mut self) {
        self.errors += 1;
    }

    /// How many reads are open.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Counts what is open with its age and closes the books; reads that end later no longer count.
    pub fn close(&mut self, now: Instant) -> Summary {
        let numbers: Vec<u64> = self.open.keys().copied().collect();
        numbers
            .into_iter()
            .for_each(|number| self.received(number, now));
        let open = std::mem::take(&mut self.open);
        for read in open.values() {
            self.record(now.saturating_duration_since(read.scheduled));
        }
        let quantile = |q: f64| {
            (!self.micros.is_empty()).then(|| milliseconds(self.micros.value_at_quantile(q)))
        };
        Summary {
            answered: self.answered,
            errors: self.errors,
            unfinished: open.len() as u64,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            worst_ms: quantile(1.0),
            over_1s: self.over_1s,
            over_10s: self.over_10s,
            worst_wait_ms: self.worst_wait.as_secs_f64() * 1000.0,
        }
    }

    fn record(&mut self, latency: Duration) {
        self.micros
            .saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
        self.over_1s += u64::from(latency > Duration::from_secs(1));
        self.over_10s += u64::from(latency > Duration::from_secs(10));
    }
}

fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn ms(value: Option<f64>) -> f64 {
        value.expect("something was recorded")
    }

    #[test]
    fn a_latency_starts_at_the_scheduled_arrival() {
        let start = clock::now();
        let mut ledger = Ledger::default();
        let scheduled = start + Duration::from_millis(100);
        let number = ledger.arrive(scheduled);
        ledger.answered(number, scheduled + Duration::from_millis(30));
        let summary = ledger.close(start + Duration::from_secs(1));
        assert!((ms(summary.p50_ms) - 30.0).abs() < 0.1, "{summary:?}");
        assert_eq!(
            (summary.answered, summary.unfinished, summary.errors),
            (1, 0, 0)
        );
    }

    #[test]
    fn what_is_open_at_the_end_counts_with_its_age() {
        let start = clock::now();
        let mut ledger = Ledger::default();
        for second in [0, 1, 9] {
            ledger.arrive(start + Duration::from_secs(second));
        }
        let summary = ledger.close(start + Duration::from_secs(11));
        assert_eq!((summary.answered, summary.unfinished), (0, 3));
        assert_eq!((summary.over_1s, summary.over_10s), (3, 1));
        assert!(
            (ms(summary.worst_ms) - 11_000.0).abs() < 11.0,
            "{summary:?}"
        );
    }

    #[test]
    fn an_error_is_counted_but_is_no_latency() {
        let start = clock::now();
        let mut ledger = Ledger::default();
        let number = ledger.arrive(start);
        ledger.failed(number, start);
        ledger.failed(number, start);
        let summary = ledger.close(start + Duration::from_secs(5));
        assert_eq!(
            (summary.errors, summary.unfinished, summary.over_1s),
            (1, 0, 0)
        );
        assert_eq!(summary.p50_ms, None);
    }

    #[test]
    fn the_longest_wait_is_between_two_messages() {
        let start = clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut ledger = Ledger::default();
        let steady = ledger.arrive(start);
        let silent = ledger.arrive(start);
        for second in 1..=5 {
            ledger.received(steady, at(second * 1000));
        }
        ledger.answered(steady, at(5500));
        ledger.received(silent, at(100));
        ledger.failed(silent, at(2400));
        let left = ledger.arrive(at(4000));
        ledger.received(left, at(4500));
        let summary = ledger.close(at(6000));
        assert!((summary.worst_wait_ms - 2300.0).abs() < 1.0, "{summary:?}");
        let mut ledger = Ledger::default();
        ledger.arrive(start);
        assert!((ledger.close(at(9000)).worst_wait_ms - 9000.0).abs() < 1.0);
    }

    #[test]
    fn a_read_that_ends_after_the_close_changes_nothing() {
        let start = clock::now();
        let mut ledger = Ledger::default();
        let number = ledger.arrive(start);
        let before = ledger.close(start + Duration::from_secs(1));
        ledger.answered(number, start + Duration::from_secs(60));
        assert_eq!(before.unfinished, 1);
        assert_eq!(ledger.close(start + Duration::from_secs(61)).answered, 0);
    }
}
