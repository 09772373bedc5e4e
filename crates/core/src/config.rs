//! The error of a setting that is out of its range.

use std::{error::Error, fmt, ops::RangeInclusive};

/// A setting that can't be used: names the field, the value and the range that is allowed. It is
/// raised when a layer or a pool is built, never later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    field: &'static str,
    value: String,
    range: String,
}

impl ConfigError {
    /// An error for `field`, whose `value` isn't in `range`.
    #[must_use]
    pub fn new(field: &'static str, value: impl fmt::Debug, range: impl Into<String>) -> Self {
        Self {
            field,
            value: format!("{value:?}"),
            range: range.into(),
        }
    }

    /// Whether a setting is in its range, both ends included. The error writes it as `low to high`.
    ///
    /// # Errors
    /// The value is outside.
    pub fn check<T: PartialOrd + fmt::Debug>(
        field: &'static str,
        value: T,
        range: RangeInclusive<T>,
    ) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        let text = format!("{:?} to {:?}", range.start(), range.end());
        Err(Self::new(field, value, text))
    }

    /// The field, with the layer's name before it, such as `balance.max`.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The value that was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What is allowed.
    #[must_use]
    pub fn range(&self) -> &str {
        &self.range
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            range,
        } = self;
        write!(f, "{field} is {value}; allowed is {range}")
    }
}

impl Error for ConfigError {}
