//! The one list of all settings: under which path each stands in a file, and where it is in [`Config`].
//! Files and the environment are read by it, so that they can't differ.

use steadfast_balance::BalanceConfig;
use steadfast_egress::EgressConfig;
use steadfast_penalty::PenaltyConfig;
use steadfast_resume::{ResumeConfig, ResumeOn};
use steadfast_retry::{DeadlineConfig, RetryConfig, RetryOn};
use steadfast_stall::StallConfig;

use super::{
    Config,
    value::{Switch, Value},
};

/// A setting's path and its value.
pub(super) type Setting<'a> = (&'static str, &'a mut dyn Value);

/// Hands all settings to `f`, those of a section one after the other.
///
/// A field that a layer's crate adds doesn't compile here until it has its line. It also belongs into
/// `docs/steadfast.example.toml`.
pub(super) fn with_all<R>(config: &mut Config, f: impl FnOnce(&mut [Setting<'_>]) -> R) -> R {
    let Config {
        balance,
        penalty,
        stall,
        resume,
        retry,
        deadline,
        egress,
    } = config;
    let BalanceConfig {
        name,
        initial,
        min,
        max,
        min_requests,
        max_requests,
        strategy,
        grow_on_demand,
        assumed_streams,
        resize_interval,
        resize_step,
        max_age,
        age_jitter,
        refresh_step,
        drain_limit,
        connect_budget,
        wait_for_ready,
    } = balance;
    let PenaltyConfig {
        enabled,
        name: _, // follows balance.name
        mode,
        weight,
        window,
        step,
        cap,
        linear_decay,
        occupancy,
        trickle,
    } = penalty;
    let StallConfig {
        enabled: stall_enabled,
        name: _, // follows balance.name
        silence,
        answer,
        prepare,
        probes,
        alone: _, // a pool is never alone
        reprobe,
        reprobe_most,
        most_percent,
        strikes,
        strike_window,
        dead_after,
        replace_every,
        resets: _, // follows egress.reset_streams
        tick,
        tolerance,
        ring,
    } = stall;
    let ResumeConfig {
        enabled: resume_enabled,
        name: _, // follows balance.name
        gap_timeout,
        max_attempts,
        attempts_per,
        header_timeout,
        resume_on,
        backoff: resume_backoff,
        backoff_max: resume_backoff_max,
        message_limit,
        request_limit: resume_request_limit,
        budget: resume_budget,
        budget_percent: resume_budget_percent,
        budget_per_second: resume_budget_per_second,
    } = resume;
    let ResumeOn {
        dial_failed: resume_dial_failed,
        never_processed,
        connection_lost: resume_connection_lost,
        refused,
        reset: resume_reset,
        goaway,
        no_status: resume_no_status,
        unavailable: resume_unavailable,
        quarantine: resume_quarantine,
    } = resume_on;
    let RetryConfig {
        enabled: retry_enabled,
        name: _, // follows balance.name
        attempts,
        resends,
        retry_on,
        attempt_timeout,
        backoff,
        backoff_max,
        request_limit,
        reply_limit,
        budget,
        budget_percent,
        budget_per_second,
    } = retry;
    let RetryOn {
        dial_failed,
        unprocessed,
        connection_lost,
        reset,
        no_status,
        unavailable,
        quarantine,
        timeout,
    } = retry_on;
    let DeadlineConfig {
        default: default_deadline,
    } = deadline;
    let EgressConfig {
        stream_window,
        connection_window,
        max_frame_size,
        max_header_list_size,
        keepalive,
        reset_streams,
        reset_stream_duration,
        connect_budget: _, // follows balance.connect_budget
    } = egress;
    let mut switch = Switch {
        on: keepalive.is_some(),
    };
    let mut kept = keepalive.unwrap_or_default();
    let result = f(&mut [
        ("balance.name", name),
        ("balance.initial", initial),
        ("balance.min", min),
        ("balance.max", max),
        ("balance.min_requests", min_requests),
        ("balance.max_requests", max_requests),
        ("balance.strategy", strategy),
        ("balance.grow_on_demand", grow_on_demand),
        ("balance.assumed_streams", assumed_streams),
        ("balance.resize_interval", resize_interval),
        ("balance.resize_step", resize_step),
        ("balance.max_age", max_age),
        ("balance.age_jitter", age_jitter),
        ("balance.refresh_step", refresh_step),
        ("balance.drain_limit", drain_limit),
        ("balance.connect_budget", connect_budget),
        ("balance.wait_for_ready", wait_for_ready),
        ("penalty.enabled", enabled),
        ("penalty.mode", mode),
        ("penalty.weight", weight),
        ("penalty.window", window),
        ("penalty.step", step),
        ("penalty.cap", cap),
        ("penalty.linear_decay", linear_decay),
        ("penalty.occupancy", occupancy),
        ("penalty.trickle", trickle),
        ("stall.enabled", stall_enabled),
        ("stall.silence", silence),
        ("stall.answer", answer),
        ("stall.prepare", prepare),
        ("stall.probes", probes),
        ("stall.reprobe", reprobe),
        ("stall.reprobe_most", reprobe_most),
        ("stall.most_percent", most_percent),
        ("stall.strikes", strikes),
        ("stall.strike_window", strike_window),
        ("stall.dead_after", dead_after),
        ("stall.replace_every", replace_every),
        ("stall.tick", tick),
        ("stall.tolerance", tolerance),
        ("stall.ring", ring),
        ("resume.enabled", resume_enabled),
        ("resume.gap_timeout", gap_timeout),
        ("resume.max_attempts", max_attempts),
        ("resume.attempts_per", attempts_per),
        ("resume.header_timeout", header_timeout),
        ("resume.backoff", resume_backoff),
        ("resume.backoff_max", resume_backoff_max),
        ("resume.message_limit", message_limit),
        ("resume.request_limit", resume_request_limit),
        ("resume.budget", resume_budget),
        ("resume.budget_percent", resume_budget_percent),
        ("resume.budget_per_second", resume_budget_per_second),
        ("resume.resume_on.dial_failed", resume_dial_failed),
        ("resume.resume_on.never_processed", never_processed),
        ("resume.resume_on.connection_lost", resume_connection_lost),
        ("resume.resume_on.refused", refused),
        ("resume.resume_on.reset", resume_reset),
        ("resume.resume_on.goaway", goaway),
        ("resume.resume_on.no_status", resume_no_status),
        ("resume.resume_on.unavailable", resume_unavailable),
        ("resume.resume_on.quarantine", resume_quarantine),
        ("retry.enabled", retry_enabled),
        ("retry.attempts", attempts),
        ("retry.resends", resends),
        ("retry.attempt_timeout", attempt_timeout),
        ("retry.backoff", backoff),
        ("retry.backoff_max", backoff_max),
        ("retry.request_limit", request_limit),
        ("retry.reply_limit", reply_limit),
        ("retry.budget", budget),
        ("retry.budget_percent", budget_percent),
        ("retry.budget_per_second", budget_per_second),
        ("retry.retry_on.dial_failed", dial_failed),
        ("retry.retry_on.unprocessed", unprocessed),
        ("retry.retry_on.connection_lost", connection_lost),
        ("retry.retry_on.reset", reset),
        ("retry.retry_on.no_status", no_status),
        ("retry.retry_on.unavailable", unavailable),
        ("retry.retry_on.quarantine", quarantine),
        ("retry.retry_on.timeout", timeout),
        ("deadline.default", default_deadline),
        ("egress.stream_window", stream_window),
        ("egress.connection_window", connection_window),
        ("egress.max_frame_size", max_frame_size),
        ("egress.max_header_list_size", max_header_list_size),
        ("egress.reset_streams", reset_streams),
        ("egress.reset_stream_duration", reset_stream_duration),
        ("egress.keepalive", &mut switch),
        ("egress.keepalive.interval", &mut kept.interval),
        ("egress.keepalive.timeout", &mut kept.timeout),
    ]);
    *keepalive = switch.on.then_some(kept);
    result
}
