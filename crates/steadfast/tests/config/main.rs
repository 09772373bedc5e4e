//! X3: bad settings are refused by name; files and the environment say the same things; the example file is
//! what it says it is.

mod environment;
mod files;
mod names;
mod properties;
mod ranges;
mod stack;
mod strategies;

use std::collections::BTreeSet;

use steadfast::{Config, ConfigError, EgressConfig, Keepalive, Pool};

const URI: &str = "http://127.0.0.1:1";

fn build(config: Config) -> Result<Pool, ConfigError> {
    Pool::builder(URI).config(config).without_env().build()
}

fn file(text: &str) -> Result<Config, String> {
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

fn env(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::default().with_vars(vars.iter().copied())
}

/// The paths of all settings, as the written form has them, with a keepalive and without.
fn paths() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for keepalive in [Some(Keepalive::default()), None] {
        let config = Config {
            egress: EgressConfig::default().with_keepalive(keepalive),
            ..Config::default()
        };
        collect("", &toml::Table::try_from(config).unwrap(), &mut paths);
    }
    paths
}

fn collect(section: &str, table: &toml::Table, paths: &mut BTreeSet<String>) {
    for (key, value) in table {
        match value {
            toml::Value::Table(table) => collect(&format!("{section}{key}."), table, paths),
            _ => drop(paths.insert(format!("{section}{key}"))),
        }
    }
}

fn variable(path: &str) -> String {
    format!("STEADFAST_{}", path.to_uppercase().replace('.', "_"))
}

/// A file with one setting.
fn line(path: &str, value: &str) -> String {
    format!("{path} = {value:?}")
}
