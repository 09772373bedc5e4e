//! What a setting can hold, and how it is written in a file or a variable.

use std::{fmt, time::Duration};

use steadfast_balance::Strategy;
use steadfast_penalty::Mode;
use steadfast_resume::AttemptsPer;

/// What switches a setting off that can be off.
const NONE: &str = "none";

/// The value of one setting.
pub(super) trait Value {
    /// Takes the value that `text` says. The error is what it may be.
    fn parse(&mut self, text: &str) -> Result<(), String>;

    /// Takes a value that is beyond any range, if there is one.
    fn exceed(&mut self) {}

    /// How it is written in a file, if it is.
    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written>;
}

/// A value as it is written in a file.
#[cfg(feature = "serde")]
#[derive(Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub(super) enum Written {
    Flag(bool),
    Number(u64),
    Text(String),
}

impl Value for String {
    fn parse(&mut self, text: &str) -> Result<(), String> {
        text.clone_into(self);
        Ok(())
    }

    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written> {
        Some(Written::Text(self.clone()))
    }
}

impl Value for bool {
    fn parse(&mut self, text: &str) -> Result<(), String> {
        *self = text.parse().map_err(|_| "true or false".to_owned())?;
        Ok(())
    }

    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written> {
        Some(Written::Flag(*self))
    }
}

macro_rules! number {
    ($type:ty) => {
        impl Value for $type {
            fn parse(&mut self, text: &str) -> Result<(), String> {
                *self = text.parse().map_err(|_| "a whole number".to_owned())?;
                Ok(())
            }

            fn exceed(&mut self) {
                *self = Self::MAX;
            }

            #[cfg(feature = "serde")]
            fn written(&self) -> Option<Written> {
                u64::try_from(*self).ok().map(Written::Number)
            }
        }
    };
}

number!(u32);
number!(usize);

impl Value for Duration {
    fn parse(&mut self, text: &str) -> Result<(), String> {
        let kind = "a time with its unit, such as 5s or 1h 30m";
        *self = humantime::parse_duration(text).map_err(|_| kind.to_owned())?;
        Ok(())
    }

    fn exceed(&mut self) {
        *self = Self::MAX;
    }

    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written> {
        Some(Written::Text(humantime::format_duration(*self).to_string()))
    }
}

macro_rules! choice {
    ($type:ident: $($variant:ident),+) => {
        impl Value for $type {
            fn parse(&mut self, text: &str) -> Result<(), String> {
                let known = [$(Self::$variant),+];
                let found = known.into_iter().find(|choice| word(choice) == text);
                *self = found.ok_or_else(|| known.map(word).join(" or "))?;
                Ok(())
            }

            #[cfg(feature = "serde")]
            fn written(&self) -> Option<Written> {
                Some(Written::Text(word(self)))
            }
        }
    };
}

choice!(AttemptsPer: Stream, Progress);
choice!(Mode: Flat, Reserve);
choice!(Strategy: LeastLoaded, PowerOfTwo, RoundRobin);

/// A variant's name as files have it: `least_loaded`.
fn word(variant: impl fmt::Debug) -> String {
    let mut word = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

impl<V: Value + Default> Value for Option<V> {
    fn parse(&mut self, text: &str) -> Result<(), String> {
        *self = if text == NONE {
            None
        } else {
            let mut value = V::default();
            value
                .parse(text)
                .map_err(|kind| format!("{NONE}, or {kind}"))?;
            Some(value)
        };
        Ok(())
    }

    fn exceed(&mut self) {
        self.get_or_insert_default().exceed();
    }

    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written> {
        match self {
            Some(value) => value.written(),
            None => Some(Written::Text(NONE.to_owned())),
        }
    }
}

/// A section that can be off as a whole. Setting anything in it switches it on.
pub(super) struct Switch {
    pub(super) on: bool,
}

impl Value for Switch {
    fn parse(&mut self, text: &str) -> Result<(), String> {
        if text != NONE {
            return Err(format!("{NONE}, or the settings in it"));
        }
        self.on = false;
        Ok(())
    }

    #[cfg(feature = "serde")]
    fn written(&self) -> Option<Written> {
        (!self.on).then(|| Written::Text(NONE.to_owned()))
    }
}
