//! Metrics and events.

use metrics::{SharedString, Unit, counter, describe_counter};
use steadfast_core::{ChannelId, Outcome};

const PENALTY: &str = "steadfast.penalty";

/// Describes the metric to the recorder that is there when a layer is built.
pub(crate) fn describe() {
    describe_counter!(
        PENALTY,
        Unit::Count,
        "Failures that were held against a channel, by cause"
    );
}

/// A failure was held against a channel.
pub(crate) fn penalised(pool: &SharedString, channel: ChannelId, cause: Outcome) {
    counter!(PENALTY, "pool" => pool.clone(), "cause" => cause.label()).increment(1);
    tracing::debug!(%pool, %channel, %cause, "a failure is held against the channel");
}
