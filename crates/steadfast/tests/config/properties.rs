//! Properties of all configurations.

use std::{cell::Cell, sync::Once, time::Duration};

use proptest::prelude::*;
use steadfast::{
    Config, EgressConfig, PenaltyConfig, Pool, ResumeConfig, RetryConfig, StallConfig,
};
use tokio::{runtime::Builder, time::timeout};

use super::{
    URI, build, env, file, line, paths, stack,
    strategies::{config, good},
    variable,
};

/// Far more than closing takes.
const TOO_LONG: Duration = Duration::from_secs(10);

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_can_be_built_of_what_validates_and_of_nothing_else(config in config()) {
        prop_assert_eq!(build(config.clone()).map(drop), config.validate());
    }

    /// What is written is read as the same, but for what follows another setting.
    #[test]
    fn written_and_read(config in good()) {
        prop_assert_eq!(config.validate(), Ok(()));
        let mut same = config.clone();
        same.penalty.name = PenaltyConfig::default().name;
        let stall = StallConfig::default();
        (same.stall.name, same.stall.resets, same.stall.alone) = (stall.name, stall.resets, stall.alone);
        same.resume.name = ResumeConfig::default().name;
        same.retry.name = RetryConfig::default().name;
        same.egress.connect_budget = EgressConfig::default().connect_budget;
        let text = toml::to_string(&config).unwrap();
        prop_assert_eq!(file(&text), Ok(same.clone()), "{}", text);
        let json = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), same);
    }

    /// What a layer takes from another's settings is not what was set for it itself; all else is.
    #[test]
    fn what_follows_another_setting(config in good()) {
        let pool = build(config.clone()).unwrap();
        let name = config.balance.name.clone();
        let penalty = PenaltyConfig { name: name.clone(), ..config.penalty }
            .following(config.balance.max_requests);
        prop_assert_eq!(pool.penalty().config(), &penalty);
        // A connection puts up with what it remembers, and with a thousand in any case.
        let resets = Some(config.egress.reset_streams.max(1_000));
        let stall = StallConfig { name: name.clone(), resets, alone: false, ..config.stall };
        prop_assert_eq!(pool.stall().config(), &stall);
        let resume = ResumeConfig { name: name.clone(), ..config.resume };
        prop_assert_eq!(pool.resume().config(), &resume);
        let retry = RetryConfig { name, ..config.retry };
        prop_assert_eq!(pool.retry().config(), &retry);
    }

    /// Hostile text is refused or taken, and never a panic.
    #[test]
    fn any_text(index in any::<prop::sample::Index>(), text in "[ -~]{0,12}|[0-9]{1,30}(s|h|years|)|\\PC{0,4}") {
        let paths: Vec<_> = paths().into_iter().collect();
        let path = index.get(&paths);
        if let Ok(config) = env(&[(&variable(path), &text)]) {
            prop_assert!(build(config).is_ok());
        }
        let _ = file(&line(path, &text));
        let _ = file(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// No sum of long times overflows once the pool runs, either: it dials a server that answers with a
    /// failure and a port where nobody listens, so that channels are kept, aged, charged, dialled again
    /// and drained. The pool's tasks run on this thread, where their panics are counted.
    #[test]
    fn what_validates_runs(config in good()) {
        count_panics();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = stack::failing();
            for uri in [server.uri(), URI.to_owned()] {
                let pool = Pool::builder(uri).config(config.clone()).without_env().build().unwrap();
                // It may wait for a year: enough that it began to.
                let call = stack::call(pool.clone());
                let _ = timeout(Duration::from_millis(20), call).await;
                let closed = timeout(TOO_LONG, pool.close(Duration::ZERO)).await;
                assert!(closed.is_ok());
            }
        });
        drop(runtime);
        prop_assert_eq!(PANICS.get(), 0);
    }
}

thread_local! {
    /// This thread's panics, those of spawned tasks too, which nobody else hears of.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}
