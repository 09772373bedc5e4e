//! The one list of all settings: under which path each stands in a file, and where it is in [`Config`].
//! Files and the environment are read by it, so that they can't differ.

use steadfast_balance::BalanceConfig;
use steadfast_egress::EgressConfig;
use steadfast_penalty::PenaltyConfig;
use steadfast_retry::{DeadlineConfig, RetryConfig, RetryOn};
use steadfast_stall::StallConfig;

use super::{
    Config,
    value::{Switch, Value},
};

/// A setting's path and its value.
pub(super) type Setting<'a> = (&'static str, &'a mut dyn Value);

/// Where a section that is optional as a whole begins.
const KEEPALIVE: &str = "egress.keepalive.";

/// Hands all settings to `f`, those of a section one after the other.
///
/// A field that a layer's crate adds doesn't compile here until it has its line. It also belongs into
/// `docs/steadfast.example.toml`.
pub(super) fn with_all<R>(config: &mut Config, f: impl FnOnce(&mut [Setting<'_>]) -> R) -> R {
    let Config {
        balance,
        penalty,
        stall,
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

/// The paths of all settings.
pub(super) fn paths() -> Vec<&'static str> {
    with_all(&mut Config::default(), |settings| {
        settings.iter().map(|(path, _)| *path).collect()
    })
}

/// Sets one from its text. The error says what is allowed.
pub(super) fn set(config: &mut Config, path: &str, text: &str) -> Result<(), String> {
    if path.starts_with(KEEPALIVE) {
        config.egress.keepalive.get_or_insert_default();
    }
    let Err(kind) = on(config, path, |value| value.parse(text)).unwrap_or(Ok(())) else {
        return Ok(());
    };
    // The layers know the ranges: the one that is asked for is in the error of a value beyond it.
    let mut beyond = config.clone();
    on(&mut beyond, path, |value| value.exceed());
    Err(match beyond.joined() {
        Err(error) if error.field() == path => format!("{kind}, {}", error.range()),
        _ => kind,
    })
}

fn on<R>(config: &mut Config, path: &str, f: impl FnOnce(&mut dyn Value) -> R) -> Option<R> {
    with_all(config, |settings| {
        let (_, value) = settings.iter_mut().find(|(known, _)| *known == path)?;
        Some(f(&mut **value))
    })
}
