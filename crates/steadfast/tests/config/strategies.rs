//! Arbitrary configurations.

use std::time::Duration;

use proptest::{option, prelude::*};
use steadfast::{
    AttemptsPer, BalanceConfig, BalanceStrategy as Pick, Config, DeadlineConfig, EgressConfig,
    Keepalive, PenaltyConfig, PenaltyMode, ResumeConfig, ResumeOn, RetryConfig, RetryOn,
    StallConfig,
};

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..40_u32, 2 => 0..20_000_u32, 1 => any::<u32>(), 1 => Just(u32::MAX), 1 => Just(1_u32 << 31)]
}

fn time() -> impl Strategy<Value = Duration> {
    let some = |most: u64| (0..most).prop_map(Duration::from_millis);
    let year = Duration::from_secs(31_557_600);
    prop_oneof![
        4 => some(5_000),
        4 => some(600_000),
        2 => some(400 * 24 * 3_600_000),
        1 => any::<u64>().prop_map(Duration::from_secs),
        1 => any::<u64>().prop_map(Duration::from_nanos),
        1 => Just(Duration::MAX),
        1 => Just(Duration::ZERO),
        1 => Just(year),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("one".to_owned()), Just("another".to_owned())]
}

fn strategy() -> impl Strategy<Value = Pick> {
    prop_oneof![
        Just(Pick::LeastLoaded),
        Just(Pick::PowerOfTwo),
        Just(Pick::RoundRobin),
    ]
}

prop_compose! {
    fn balance()(
        name in name(),
        (min, initial, max) in (number(), number(), number()),
        sorted in any::<bool>(),
        (min_requests, max_requests, resize_step, refresh_step) in (number(), number(), number(), number()),
        (resize_interval, age_jitter, drain_limit, connect_budget) in (time(), time(), time(), time()),
        (strategy, grow_on_demand, assumed_streams) in (strategy(), any::<bool>(), number()),
        (max_age, wait_for_ready) in (option::of(time()), option::of(time())),
    ) -> BalanceConfig {
        let mut sizes = [min, initial, max];
        let mut requests = [min_requests, max_requests];
        // Most would be refused for their order alone.
        if sorted {
            sizes.sort_unstable();
            requests.sort_unstable();
        }
        let [min, initial, max] = sizes.map(|size| size as usize);
        BalanceConfig {
            name,
            initial,
            min,
            max,
            min_requests: requests[0],
            max_requests: requests[1],
            strategy,
            grow_on_demand,
            assumed_streams,
            resize_interval,
            resize_step: resize_step as usize,
            max_age,
            age_jitter,
            refresh_step: refresh_step as usize,
            drain_limit,
            connect_budget,
            wait_for_ready,
        }
    }
}

prop_compose! {
    fn penalty()(
        (enabled, name) in (any::<bool>(), name()),
        mode in prop_oneof![Just(PenaltyMode::Flat), Just(PenaltyMode::Reserve)],
        weight in option::of(number()),
        (window, trickle) in (time(), time()),
        (step, cap) in (number(), number()),
        (linear_decay, occupancy) in any::<(bool, bool)>(),
    ) -> PenaltyConfig {
        PenaltyConfig {
            enabled,
            name,
            mode,
            weight,
            window,
            step,
            cap,
            linear_decay,
            occupancy,
            trickle,
        }
    }
}

prop_compose! {
    fn egress()(
        (stream_window, connection_window) in (number(), number()),
        (max_frame_size, max_header_list_size) in (option::of(number()), option::of(number())),
        keepalive in option::of((time(), time())),
        reset_streams in number(),
        (reset_stream_duration, connect_budget) in (time(), time()),
    ) -> EgressConfig {
        EgressConfig {
            stream_window,
            connection_window,
            max_frame_size,
            max_header_list_size,
            keepalive: keepalive.map(|(interval, timeout)| Keepalive::new(interval, timeout)),
            reset_streams: reset_streams as usize,
            reset_stream_duration,
            connect_budget,
        }
    }
}

prop_compose! {
    fn stall()(
        (enabled, probes, alone) in any::<(bool, bool, bool)>(),
        name in name(),
        (silence, answer, prepare) in (time(), time(), time()),
        (reprobe, reprobe_most) in (time(), time()),
        (most_percent, strikes, ring) in (number(), number(), number()),
        (strike_window, dead_after, replace_every) in (time(), time(), time()),
        (tick, tolerance) in (time(), time()),
        resets in option::of(number()),
    ) -> StallConfig {
        StallConfig {
            enabled,
            name,
            silence,
            answer,
            prepare,
            probes,
            alone,
            reprobe,
            reprobe_most,
            most_percent,
            strikes,
            strike_window,
            dead_after,
            replace_every,
            resets: resets.map(|resets| resets as usize),
            tick,
            tolerance,
            ring: ring as usize,
        }
    }
}

prop_compose! {
    fn resume_on()(
        (dial_failed, never_processed, connection_lost) in any::<(bool, bool, bool)>(),
        (refused, reset, goaway) in any::<(bool, bool, bool)>(),
        (no_status, unavailable, quarantine) in any::<(bool, bool, bool)>(),
    ) -> ResumeOn {
        ResumeOn {
            dial_failed,
            never_processed,
            connection_lost,
            refused,
            reset,
            goaway,
            no_status,
            unavailable,
            quarantine,
        }
    }
}

prop_compose! {
    fn resume()(
        (enabled, budget, progress) in any::<(bool, bool, bool)>(),
        name in name(),
        (gap_timeout, header_timeout, max_attempts) in (time(), time(), number()),
        resume_on in resume_on(),
        (backoff, backoff_max) in (time(), time()),
        (message_limit, request_limit) in (number(), number()),
        (budget_percent, budget_per_second) in (number(), number()),
    ) -> ResumeConfig {
        ResumeConfig {
            enabled,
            name,
            gap_timeout,
            max_attempts,
            attempts_per: if progress { AttemptsPer::Progress } else { AttemptsPer::Stream },
            header_timeout,
            resume_on,
            backoff,
            backoff_max,
            message_limit: message_limit as usize,
            request_limit: request_limit as usize,
            budget,
            budget_percent,
            budget_per_second,
        }
    }
}

prop_compose! {
    fn retry_on()(
        (dial_failed, unprocessed, connection_lost, reset) in any::<(bool, bool, bool, bool)>(),
        (no_status, unavailable, quarantine, timeout) in any::<(bool, bool, bool, bool)>(),
    ) -> RetryOn {
        RetryOn {
            dial_failed,
            unprocessed,
            connection_lost,
            reset,
            no_status,
            unavailable,
            quarantine,
            timeout,
        }
    }
}

prop_compose! {
    fn retry()(
        (enabled, budget) in any::<(bool, bool)>(),
        name in name(),
        (attempts, resends) in (number(), number()),
        retry_on in retry_on(),
        attempt_timeout in option::of(time()),
        (backoff, backoff_max) in (time(), time()),
        (request_limit, reply_limit) in (number(), number()),
        (budget_percent, budget_per_second) in (number(), number()),
    ) -> RetryConfig {
        RetryConfig {
            enabled,
            name,
            attempts,
            resends,
            retry_on,
            attempt_timeout,
            backoff,
            backoff_max,
            request_limit: request_limit as usize,
            reply_limit: reply_limit as usize,
            budget,
            budget_percent,
            budget_per_second,
        }
    }
}

prop_compose! {
    fn deadline()(default in option::of(time())) -> DeadlineConfig {
        DeadlineConfig { default }
    }
}

/// Each section is at its defaults half of the time, so that more of the others are good.
pub(crate) fn config() -> impl Strategy<Value = Config> {
    // Boxed: seven sections by value are larger than a test's stack.
    let balance = prop_oneof![Just(BalanceConfig::default()), balance()].boxed();
    let penalty = prop_oneof![Just(PenaltyConfig::default()), penalty()].boxed();
    let stall = prop_oneof![Just(StallConfig::default()), stall()].boxed();
    let resume = prop_oneof![Just(ResumeConfig::default()), resume()].boxed();
    let retry = prop_oneof![Just(RetryConfig::default()), retry()].boxed();
    let deadline = prop_oneof![Just(DeadlineConfig::default()), deadline()].boxed();
    let egress = prop_oneof![Just(EgressConfig::default()), egress()].boxed();
    (balance, penalty, stall, resume, retry, deadline, egress).prop_map(
        |(balance, penalty, stall, resume, retry, deadline, egress)| Config {
            balance,
            penalty,
            stall,
            resume,
            retry,
            deadline,
            egress,
        },
    )
}

/// The same with values that are all in their ranges, whose ends are as likely as all between them.
pub(crate) fn good() -> impl Strategy<Value = Config> {
    config().prop_map(|mut config| {
        let (ms, second) = (Duration::from_millis(1), Duration::from_secs(1));
        let (hour, day, year) = (3600 * second, 86_400 * second, 31_557_600 * second);
        let balance = &mut config.balance;
        // No more dials than a test's machine has ports for.
        balance.max = balance.max.clamp(1, 10_000);
        balance.min = balance.min.clamp(1, balance.max.min(20));
        balance.initial = balance.initial.clamp(balance.min, balance.max.min(20));
        balance.max_requests = balance.max_requests.clamp(1, 1_000_000);
        balance.min_requests = balance.min_requests.clamp(1, balance.max_requests);
        balance.assumed_streams = balance.assumed_streams.clamp(1, 65_534);
        balance.resize_step = balance.resize_step.clamp(1, 10_000);
        balance.refresh_step = balance.refresh_step.clamp(1, 10_000);
        balance.resize_interval = balance.resize_interval.clamp(second, year);
        balance.max_age = balance.max_age.map(|age| age.clamp(second, year));
        balance.age_jitter = balance.age_jitter.min(year);
        balance.drain_limit = balance.drain_limit.min(year);
        balance.connect_budget = balance.connect_budget.clamp(ms, hour / 6);
        balance.wait_for_ready = balance.wait_for_ready.map(|wait| wait.min(year));
        let penalty = &mut config.penalty;
        penalty.weight = penalty.weight.map(|weight| weight.clamp(1, 1_000_000));
        penalty.step = penalty.step.min(1_000_000);
        penalty.cap = penalty
            .cap
            .clamp(penalty.weight.unwrap_or(balance.max_requests), 1_000_000);
        penalty.window = penalty.window.clamp(ms, hour);
        penalty.trickle = penalty.trickle.clamp(10 * ms, hour);
        let egress = &mut config.egress;
        egress.stream_window = egress.stream_window.clamp(1, (1 << 31) - 1);
        egress.connection_window = egress.connection_window.clamp(1, (1 << 31) - 1);
        egress.max_frame_size = egress
            .max_frame_size
            .map(|size| size.clamp(16_384, 16_777_215));
        egress.max_header_list_size = egress
            .max_header_list_size
            .map(|size| size.clamp(1, (1 << 31) - 1));
        egress.keepalive = egress.keepalive.map(|kept| {
            Keepalive::new(kept.interval.clamp(ms, hour), kept.timeout.clamp(ms, hour))
        });
        egress.reset_streams = egress.reset_streams.min(1 << 20);
        egress.reset_stream_duration = egress.reset_stream_duration.min(hour);
        let stall = &mut config.stall;
        stall.tick = stall.tick.clamp(ms, second);
        stall.silence = stall.silence.clamp(stall.tick * 2, hour);
        stall.answer = stall.answer.clamp(ms, hour);
        stall.prepare = stall.prepare.clamp(ms, hour);
        stall.reprobe = stall.reprobe.clamp(ms, hour);
        stall.reprobe_most = stall.reprobe_most.clamp(stall.reprobe, hour);
        stall.strike_window = stall.strike_window.clamp(second, day);
        stall.dead_after = stall.dead_after.clamp(second, day);
        stall.replace_every = stall.replace_every.clamp(second, day);
        stall.tolerance = stall.tolerance.clamp(stall.tick, hour);
        stall.most_percent = stall.most_percent.min(100);
        stall.strikes = stall.strikes.clamp(1, 1_000);
        stall.ring = stall.ring.clamp(16, 1_000_000);
        let resume = &mut config.resume;
        resume.gap_timeout = resume.gap_timeout.clamp(ms, hour);
        resume.max_attempts = resume.max_attempts.clamp(1, 100);
        resume.header_timeout = resume.header_timeout.clamp(ms, day);
        resume.backoff = resume.backoff.min(hour / 60);
        resume.backoff_max = resume.backoff_max.clamp(resume.backoff, hour);
        resume.message_limit = resume.message_limit.clamp(1, 1 << 30);
        resume.request_limit = resume.request_limit.min(1 << 30);
        resume.budget_percent = resume.budget_percent.min(1_000);
        resume.budget_per_second = resume.budget_per_second.min(1_000_000);
        let retry = &mut config.retry;
        retry.attempts = retry.attempts.clamp(1, 100);
        retry.resends = retry.resends.min(1_000);
        retry.attempt_timeout = retry.attempt_timeout.map(|time| time.clamp(ms, hour));
        retry.backoff = retry.backoff.min(hour / 60);
        retry.backoff_max = retry.backoff_max.clamp(retry.backoff, hour);
        retry.request_limit = retry.request_limit.min(1 << 30);
        retry.reply_limit = retry.reply_limit.min(1 << 30);
        retry.budget_percent = retry.budget_percent.min(1_000);
        retry.budget_per_second = retry.budget_per_second.min(1_000_000);
        let deadline = &mut config.deadline;
        deadline.default = deadline.default.map(|time| time.clamp(ms, year));
        config
    })
}
