//! A setting by its path.

use super::{Config, settings::with_all, value::Value};

/// Where a section that is optional as a whole begins.
const KEEPALIVE: &str = "egress.keepalive.";

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
