//! Settings from the environment.

use std::{ffi::OsStr, sync::LazyLock};

use steadfast_core::ConfigError;

use super::{Config, access, names};

const PREFIX: &str = "STEADFAST_";

/// A variable that was given, its setting, and its text.
struct Given {
    variable: &'static str,
    path: &'static str,
    text: String,
}

impl Config {
    /// The defaults with what the environment says: [`Config::with_env`].
    ///
    /// # Errors
    /// As [`Config::with_env`].
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::default().with_env()
    }

    /// The same with what the process's environment says: a variable for each setting, `STEADFAST_` and
    /// its path in capitals, such as `STEADFAST_BALANCE_MAX=100` or
    /// `STEADFAST_EGRESS_KEEPALIVE_INTERVAL=30s`.
    ///
    /// A pool does this when it is built, so it need not be called; see
    /// [`PoolBuilder::without_env`](crate::PoolBuilder::without_env). A stack of one's own doesn't: call it
    /// and give the layers the parts.
    ///
    /// A variable overrides what is set in code or in a file, for every pool of the process. Those whose
    /// name begins with `STEADFAST_` but not with a section's are left alone.
    ///
    /// # Errors
    /// A variable that names no setting of its section, can't be understood, or takes a setting out of its
    /// range: variable, value and range. Also a setting that was out of its range before.
    pub fn with_env(self) -> Result<Self, ConfigError> {
        // Not `vars`: it panics on a variable that isn't Unicode, whoever's it is.
        self.with_vars(std::env::vars_os())
    }

    /// The same with what these variables say, each a name and a value: [`Config::with_env`] for an
    /// environment that isn't the process's.
    ///
    /// ```
    /// use steadfast::Config;
    ///
    /// let config = Config::default().with_vars([("STEADFAST_BALANCE_MAX", "100")])?;
    /// assert_eq!(config.balance.max, 100);
    ///
    /// let error = Config::default().with_vars([("STEADFAST_BALANCE_MAX", "many")]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"STEADFAST_BALANCE_MAX is "many"; allowed is a whole number, 4 to 10000"#,
    /// );
    /// # Ok::<(), steadfast::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Config::with_env`].
    pub fn with_vars<N, V>(
        mut self,
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigError>
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let before = self.validate();
        let given = given(vars)?;
        for Given {
            variable,
            path,
            text,
        } in &given
        {
            access::set(&mut self, path, text)
                .map_err(|range| ConfigError::new(variable, text, range))?;
        }
        match self.validate() {
            Err(error) if before.is_ok() => Err(blame(&error, &given)),
            validated => validated.map(|()| self),
        }
    }
}

/// The variables that are settings, in the order of the settings' list.
fn given<N, V>(vars: impl IntoIterator<Item = (N, V)>) -> Result<Vec<Given>, ConfigError>
where
    N: AsRef<OsStr>,
    V: AsRef<OsStr>,
{
    let mut given = Vec::new();
    for (name, value) in vars {
        let Some(name) = name.as_ref().to_str().filter(|name| is_ours(name)) else {
            continue;
        };
        let path = names::look_up(name, spell).map_err(|hint| {
            ConfigError::new(
                "environment",
                name,
                format!("the name of a setting: {hint}"),
            )
        })?;
        if let Some((variable, path)) = path.and_then(variable) {
            let text = value.as_ref().to_string_lossy().into_owned();
            given.push(Given {
                variable,
                path,
                text,
            });
        }
    }
    given.sort_by_key(|given| VARIABLES.iter().position(|(_, path)| *path == given.path));
    contradiction(&given).map_or(Ok(given), Err)
}

/// A section that is switched off and has a setting.
fn contradiction(given: &[Given]) -> Option<ConfigError> {
    given.iter().find_map(|section| {
        let inside = |other: &&Given| {
            let rest = other.path.strip_prefix(section.path);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let Given { variable, text, .. } = section;
        let other = given.iter().find(inside)?.variable;
        Some(ConfigError::new(
            variable,
            text,
            format!("either this or {other}"),
        ))
    })
}

/// An error of a layer in the words of the environment that led to it.
fn blame(error: &ConfigError, given: &[Given]) -> ConfigError {
    if let Some(own) = given.iter().find(|given| given.path == error.field()) {
        return ConfigError::new(own.variable, &own.text, error.range());
    }
    // The range depends on another setting, which was good before the environment changed it.
    let section = error.field().split('.').next();
    let near = given
        .iter()
        .filter(|given| given.path.split('.').next() == section);
    let set: Vec<_> = near
        .map(|given| format!("{}={}", given.variable, given.text))
        .collect();
    let range = format!("{} with {}", error.range(), set.join(" and "));
    ConfigError::new(error.field(), Verbatim(error.value()), range)
}

/// A value that is text already.
struct Verbatim<'a>(&'a str);

impl std::fmt::Debug for Verbatim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|name| {
        names::SECTIONS.iter().any(|section| {
            let rest = name.strip_prefix(&*section.to_uppercase());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    })
}

/// The variable of a path.
fn spell(path: &str) -> String {
    format!("{PREFIX}{}", path.to_uppercase().replace('.', "_"))
}

/// All variables, each with its path: an error's field lives as long as the process.
static VARIABLES: LazyLock<Vec<(String, &'static str)>> = LazyLock::new(|| {
    let paths = access::paths().into_iter();
    paths.map(|path| (spell(path), path)).collect()
});

fn variable(path: &str) -> Option<(&'static str, &'static str)> {
    let (variable, path) = VARIABLES.iter().find(|(_, known)| *known == path)?;
    Some((variable, path))
}
