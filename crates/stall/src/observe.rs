//! Metrics and events.

use std::{sync::OnceLock, time::Duration};

use metrics::{Counter, Gauge, Histogram, SharedString, Unit, counter, gauge, histogram};
use steadfast_core::now;
use tokio::time::Instant;

use crate::{Action, ProbeResult};

/// The layer's metrics. The gauge is set from the state, never counted up and down.
#[derive(Debug)]
pub(crate) struct Metrics {
    pool: SharedString,
    handles: OnceLock<Handles>,
}

/// What is recorded so often that it isn't looked up each time.
#[derive(Debug)]
struct Handles {
    head: Histogram,
    body: Histogram,
    oldest: Gauge,
    failed_locally: Counter,
}

impl Metrics {
    pub(crate) fn new(pool: &str) -> Self {
        Self {
            pool: pool.to_owned().into(),
            handles: OnceLock::new(),
        }
    }

    /// Looked up at the first use, so that a recorder may be installed after the layer was built.
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| {
            describe();
            let pool = || self.pool.clone();
            Handles {
                head: histogram!("steadfast.wait", "pool" => pool(), "phase" => "headers"),
                body: histogram!("steadfast.wait", "pool" => pool(), "phase" => "body"),
                oldest: gauge!("steadfast.waiting.oldest", "pool" => pool()),
                failed_locally: counter!("steadfast.failed_locally", "pool" => pool()),
            }
        })
    }

    /// A caller no longer waits: for headers, or in the body.
    pub(crate) fn waited(&self, in_body: bool, time: Duration) {
        let handles = self.handles();
        if in_body {
            &handles.body
        } else {
            &handles.head
        }
        .record(time);
    }

    pub(crate) fn oldest(&self, waited: Duration) {
        self.handles().oldest.set(waited);
    }

    pub(crate) fn failed_locally(&self) {
        self.handles().failed_locally.increment(1);
    }

    /// A probe ended that began then.
    pub(crate) fn probed(&self, began: Instant) {
        let took = now().saturating_duration_since(began);
        histogram!("steadfast.probe.duration", "pool" => self.pool.clone()).record(took);
    }

    pub(crate) fn probe_ended(&self, result: ProbeResult) {
        let pool = self.pool.clone();
        counter!("steadfast.probe", "pool" => pool, "outcome" => result.label()).increment(1);
    }

    /// The policy decided something.
    pub(crate) fn decided(&self, action: Action) {
        let pool = self.pool.clone();
        match action {
            Action::Suspect(channel) => {
                tracing::debug!(%pool, %channel, "channel is suspect");
                counter!("steadfast.suspect", "pool" => pool).increment(1);
            }
            Action::Spare(channel, spared, share) => {
                let reason = spared.label();
                tracing::info!(%pool, %channel, reason, silent = share.silent, of = share.pool, "channel is silent, but spared");
                counter!("steadfast.quarantine", "pool" => pool, "enforced" => "false", "reason" => reason)
                    .increment(1);
            }
            Action::Quarantine(channel, share) => {
                tracing::info!(%pool, %channel, silent = share.silent, of = share.pool, "channel is in quarantine");
                counter!("steadfast.quarantine", "pool" => pool, "enforced" => "true", "reason" => "no_answer")
                    .increment(1);
            }
            Action::Restore(channel) => {
                tracing::info!(%pool, %channel, "channel is restored");
                counter!("steadfast.restore", "pool" => pool).increment(1);
            }
            Action::Replace(channel, cause) => {
                tracing::info!(%pool, %channel, %cause, "a replacement is asked for");
                counter!("steadfast.replace", "pool" => pool, "outcome" => "asked").increment(1);
            }
            Action::GiveUp(channel, streams) => {
                tracing::warn!(%pool, %channel, streams, "channel is given up: too many streams were dropped at once");
            }
            Action::LocalStall(late) => {
                tracing::warn!(%pool, ?late, "this process stood still");
                counter!("steadfast.local_stall", "pool" => pool).increment(1);
            }
            Action::Probe(_) | Action::Clear(_) => {}
        }
    }
}

impl Drop for Metrics {
    /// Nobody waits on a layer that is gone.
    fn drop(&mut self) {
        if let Some(handles) = self.handles.get() {
            handles.oldest.set(0.0);
        }
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_histogram!(
        "steadfast.wait",
        Unit::Seconds,
        "How long callers waited, for headers or for a frame of the body, in steps of a tick"
    );
    describe_gauge!(
        "steadfast.waiting.oldest",
        Unit::Seconds,
        "How long the caller has waited now that has waited longest"
    );
    describe_counter!(
        "steadfast.failed_locally",
        Unit::Count,
        "Calls that a layer refused or ended itself"
    );
    describe_histogram!(
        "steadfast.probe.duration",
        Unit::Seconds,
        "How long probes took, preparing included"
    );
    let counters = [
        ("steadfast.probe", "Probes, by what came of them"),
        (
            "steadfast.suspect",
            "Channels that fell silent while a caller waited",
        ),
        (
            "steadfast.quarantine",
            "Probes of suspects without an answer, by whether a quarantine followed",
        ),
        (
            "steadfast.restore",
            "Channels that answered again after a quarantine",
        ),
        (
            "steadfast.replace",
            "Replacements that were asked for, made, and failed",
        ),
        (
            "steadfast.local_stall",
            "Times that this process stood still",
        ),
    ];
    for (name, text) in counters {
        describe_counter!(name, Unit::Count, text);
    }
}
