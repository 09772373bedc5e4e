//! One line of the result.

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::contend::Measured;
use crate::contender::Contender;

/// One contender under one fault; also the shape of a row in the JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What went wrong.
    pub fault: Fault,
    /// Who read.
    pub contender: Contender,
    /// Reads that arrived each second.
    pub offered_rps: f64,
    /// Reads answered in full each second.
    pub rps: f64,
    /// Median latency, from the scheduled arrival.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// The longest.
    pub worst_ms: Option<f64>,
    /// The longest that a caller waited for the head of an answer, or for its next message, failed and unfinished reads included.
    pub worst_wait_ms: f64,
    /// Reads that took, or had been open for, more than a second.
    pub over_1s: u64,
    /// The same for ten seconds; null when the load is too short for a read to get that old.
    pub over_10s: Option<u64>,
    /// Reads that failed.
    pub errors: u64,
    /// Reads still open at the end, which count in the latencies with their age.
    pub unfinished: u64,
    /// Requests that a layer of the contender ended or refused by itself; null for contenders that have none.
    pub failed_locally: Option<u64>,
    /// Requests that were sent again.
    pub retried: Option<u64>,
    /// Reads that went on on another channel, or were asked for anew before anything came.
    pub resumed: Option<u64>,
    /// Channels that were put in quarantine.
    pub quarantined: Option<u64>,
    /// Of the calls since the fault began, the share that reached the faulty server; null when no server is faulty, or none was called.
    pub bad_share: Option<f64>,
    /// Connections at the end.
    pub channels: usize,
    /// CPU seconds of the contender's process during the load.
    pub cpu_s: f64,
    /// Its largest resident set.
    pub rss_mib: f64,
}

impl Row {
    pub(crate) fn new(
        fault: Fault,
        contender: Contender,
        rate: f64,
        seconds: f64,
        measured: &Measured,
        bad_share: Option<f64>,
    ) -> Self {
        let summary = &measured.summary;
        Self {
            fault,
            contender,
            offered_rps: rounded(rate),
            rps: rounded(summary.answered as f64 / seconds),
            p50_ms: summary.p50_ms.map(rounded),
            p99_ms: summary.p99_ms.map(rounded),
            p999_ms: summary.p999_ms.map(rounded),
            worst_ms: summary.worst_ms.map(rounded),
            worst_wait_ms: rounded(summary.worst_wait_ms),
            over_1s: summary.over_1s,
            over_10s: (seconds >= 10.0).then_some(summary.over_10s),
            errors: summary.errors,
            unfinished: summary.unfinished,
            failed_locally: measured.counts.map(|counts| counts.failed_locally),
            retried: measured.counts.map(|counts| counts.retried),
            resumed: measured.counts.map(|counts| counts.resumed),
            quarantined: measured.counts.map(|counts| counts.quarantined),
            bad_share: bad_share.map(|share| (share * 10_000.0).round() / 10_000.0),
            channels: measured.channels,
            cpu_s: rounded(measured.cpu_s),
            rss_mib: rounded(measured.rss_mib),
        }
    }
}

/// To hundredths: more digits than that are noise.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ledger::Ledger;

    fn row(seconds: f64) -> Row {
        let summary = Ledger::default().close(crate::clock::now());
        let measured = Measured {
            summary,
            channels: 4,
            counts: None,
            cpu_s: 0.123_456,
            rss_mib: 12.0,
        };
        Row::new(
            Fault::LazyScans,
            Contender::TonicBalance,
            100.0,
            seconds,
            &measured,
            None,
        )
    }

    #[test]
    fn a_short_run_cannot_say_what_took_ten_seconds() {
        assert_eq!(row(9.0).over_10s, None);
        assert_eq!(row(10.0).over_10s, Some(0));
    }

    #[test]
    fn names_in_json_are_those_of_the_command_line() {
        let json = serde_json::to_value(row(9.0)).unwrap();
        assert_eq!(
            (json["fault"].as_str(), json["contender"].as_str()),
            (Some("lazy-scans"), Some("tonic-balance"))
        );
        assert_eq!(json["cpu_s"].as_f64(), Some(0.12));
        assert!(json["bad_share"].is_null());
    }
}
