//! Helpers that the tests of this package share.
#![forbid(unsafe_code)]

pub mod bigtable;
pub mod echo;
pub mod scripts;
pub mod services;
pub mod stacks;
pub mod tap;
pub mod whole;

use std::time::Duration;

/// A bound on what should take milliseconds: a test that reaches it hangs.
pub const HANG: Duration = Duration::from_secs(20);

/// The settings of a pool without stall detection and retry: for tests of the layers below them. Their
/// servers are scripts that answer no probe, and what a call loses shows only where nothing is sent again.
#[must_use]
pub fn lower_layers() -> steadfast::Config {
    let mut config = steadfast::Config::default();
    config.stall.enabled = false;
    config.retry.enabled = false;
    config
}

/// Runs `future` to its end, or fails the test when it hangs.
///
/// # Panics
/// When it takes longer than [`HANG`].
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(HANG, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} took longer than {HANG:?}"),
    }
}

/// Whether `name` must be there, so that a test may not be skipped: it stands in `REQUIRE`, a list with
/// commas.
#[must_use]
pub fn required(name: &str) -> bool {
    std::env::var("REQUIRE").is_ok_and(|list| list.split(',').any(|item| item.trim() == name))
}

/// Says that a test, or a part of it, didn't run, on the terminal and in the file that
/// `STEADFAST_SKIP_LOG` names.
///
/// # Panics
/// When `name` is required.
pub fn skip(name: &str, what: &str, why: &str) {
    use std::io::Write;
    assert!(
        !required(name),
        "{what} needs {name}, which REQUIRE names, but {why}"
    );
    let line = format!("SKIPPED {what}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("STEADFAST_SKIP_LOG") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        if let Err(error) = written {
            eprintln!("the skip log can't be written: {error}");
        }
    }
}
