//! Settings from and to a file, in any serde format that describes itself.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error, MapAccess, Visitor},
    ser::SerializeMap,
};
use steadfast_core::ConfigError;

use super::{Config, access, names, settings, value::Written};

const PRESET: &str = "preset";

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        let top = Reader {
            path: "",
            found: &mut found,
        };
        top.deserialize(deserializer)?;
        let mut config = Self::default();
        // First of all: what else is set is set on top of it, wherever it stands.
        if let Some((_, Found::Text(name))) = found.iter().find(|(path, _)| path == PRESET) {
            config = preset(name).map_err(D::Error::custom)?;
        }
        for (path, found) in found.iter().filter(|(path, _)| path != PRESET) {
            config.take(path, found).map_err(D::Error::custom)?;
        }
        Ok(config)
    }
}

fn preset(name: &str) -> Result<Config, ConfigError> {
    match name {
        "default" => Ok(Config::default()),
        "bigtable" => Ok(Config::bigtable()),
        _ => Err(ConfigError::new(PRESET, name, "default or bigtable")),
    }
}

impl Config {
    fn take(&mut self, path: &str, found: &Found) -> Result<(), String> {
        let text = match found {
            Found::Text(text) => text,
            Found::Nothing if is_section(path) => return Ok(()),
            Found::Nothing => return Err(format!("{path} is an empty table, and no section")),
        };
        match names::look_up(path, str::to_owned) {
            Ok(Some(path)) => access::set(self, path, text)
                .map_err(|range| ConfigError::new(path, text, range).to_string()),
            Ok(None) => Ok(()),
            Err(_) if is_section(path) => Err(format!("{path} is a section, and {text:?} is none")),
            Err(_) if !is_section(path.split('.').next().unwrap_or_default()) => {
                let known = names::SECTIONS.join(", ");
                Err(format!("{path} is no setting: the sections are {known}"))
            }
            Err(hint) => Err(format!("{path} is no setting: {hint}")),
        }
    }
}

fn is_section(path: &str) -> bool {
    let inside = |setting: &str| {
        let rest = setting.strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    access::paths().into_iter().any(inside)
}

/// What stands at a path.
#[derive(Debug)]
enum Found {
    Text(String),
    /// A table without entries.
    Nothing,
}

/// Reads what is at `path`, tables with all that is in them.
struct Reader<'a> {
    path: &'a str,
    found: &'a mut Vec<(String, Found)>,
}

impl Reader<'_> {
    fn text<E: Error>(self, text: impl ToString) -> Result<(), E> {
        if self.path.is_empty() {
            return Err(E::custom("a configuration is a table of sections"));
        }
        let found = Found::Text(text.to_string());
        self.found.push((self.path.to_owned(), found));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            "" => f.write_str("a table of sections"),
            path => write!(f, "a value or a table for {path}"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = match self.path {
                "" => key,
                section => format!("{section}.{key}"),
            };
            if seen.contains(&path) {
                return Err(A::Error::custom(format!("{path} is given twice")));
            }
            map.next_value_seed(Reader {
                path: &path,
                found: self.found,
            })?;
            seen.push(path);
        }
        if seen.is_empty() && !self.path.is_empty() {
            self.found.push((self.path.to_owned(), Found::Nothing));
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.text(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.text(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.text(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.text(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.text(value)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.text("none")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.text("none")
    }
}

impl Serialize for Config {
    /// Every setting, those at their defaults too. What is off is written as `none`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<(&str, Written)> = settings::with_all(&mut self.clone(), |settings| {
            let written = settings.iter();
            written
                .filter_map(|(path, value)| Some((*path, value.written()?)))
                .collect()
        });
        if self.egress.keepalive.is_none() {
            entries.retain(|(path, _)| !path.starts_with("egress.keepalive."));
        }
        Table {
            entries: &entries,
            skip: 0,
        }
        .serialize(serializer)
    }
}

/// Entries of one section, whose paths all begin with the same `skip` bytes.
struct Table<'a> {
    entries: &'a [(&'static str, Written)],
    skip: usize,
}

impl Serialize for Table<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let name = |path: &'static str| path[self.skip..].split_once('.');
        for chunk in self
            .entries
            .chunk_by(|(a, _), (b, _)| match (name(a), name(b)) {
                (Some((a, _)), Some((b, _))) => a == b,
                _ => false,
            })
        {
            let Some((path, value)) = chunk.first() else {
                continue;
            };
            match name(path) {
                None => map.serialize_entry(&path[self.skip..], value)?,
                Some((section, _)) => map.serialize_entry(
                    section,
                    &Table {
                        entries: chunk,
                        skip: self.skip + section.len() + 1,
                    },
                )?,
            }
        }
        map.end()
    }
}
