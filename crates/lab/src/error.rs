//! The lab's error: one sentence that says what was tried, with which value, and what to do about it.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, in words for the person at the terminal.
#[derive(Debug)]
pub struct Error {
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A result of the lab.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a cause below it.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            source: None,
        }
    }

    /// An error with the cause that explains it; [`fmt::Display`] prints the causes too, down to the deepest.
    pub fn because(
        text: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            text: text.into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
