//! Which names are known: those of settings, those that were retired, and what is said of all others.

use std::sync::Once;

use super::access;

/// The sections that a configuration has.
pub(super) const SECTIONS: [&str; 7] = [
    "balance", "penalty", "stall", "resume", "retry", "deadline", "egress",
];

/// A setting that was taken out: it is accepted and ignored.
struct Retired {
    path: &'static str,
    replacement: &'static str,
    warned: Once,
}

static RETIRED: [Retired; 1] = [Retired {
    path: "balance.downscale_threshold",
    replacement: "nothing replaces it: balance.min_requests and balance.max_requests decide the size",
    warned: Once::new(),
}];

/// Fields of the layers that a whole stack takes from another setting.
const FOLLOWS: [(&str, &str); 6] = [
    ("penalty.name", "balance.name"),
    ("stall.name", "balance.name"),
    ("stall.resets", "egress.reset_streams"),
    ("resume.name", "balance.name"),
    ("retry.name", "balance.name"),
    ("egress.connect_budget", "balance.connect_budget"),
];

/// Fields of the layers that mean nothing in a whole stack, and why.
const APART: [(&str, &str); 1] = [("stall.alone", "it is for a channel without a pool")];

/// The path of the setting with this name, or none for a retired one. `spell` makes a name of a path.
/// The error says which name could be meant.
pub(super) fn look_up(
    name: &str,
    spell: fn(&str) -> String,
) -> Result<Option<&'static str>, String> {
    let paths = access::paths();
    if let Some(path) = paths.iter().find(|path| spell(path) == name) {
        return Ok(Some(path));
    }
    if let Some(retired) = RETIRED.iter().find(|retired| spell(retired.path) == name) {
        retired.warned.call_once(|| {
            let replacement = retired.replacement;
            tracing::warn!(
                setting = name,
                "this setting was retired and is ignored; {replacement}"
            );
        });
        return Ok(None);
    }
    if let Some((_, other)) = FOLLOWS.iter().find(|(path, _)| spell(path) == name) {
        return Err(format!("it follows {}", spell(other)));
    }
    if let Some((_, why)) = APART.iter().find(|(path, _)| spell(path) == name) {
        return Err((*why).to_owned());
    }
    let names = paths.into_iter().map(spell);
    let nearest = names.min_by_key(|known| distance(known, name));
    Err(format!("the nearest is {}", nearest.unwrap_or_default()))
}

/// How many characters have to be put in, taken out or changed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("min", "max", 2),
            ("kitten", "sitting", 3),
            ("window", "windows", 1),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    /// A retired name, one that follows another or one that means nothing must not be a setting's, and each
    /// has a section.
    #[test]
    fn names_are_of_one_kind() {
        let paths = access::paths();
        let retired = RETIRED.iter().map(|retired| retired.path);
        let follows = FOLLOWS.iter().map(|(path, _)| *path);
        let apart = APART.iter().map(|(path, _)| *path);
        for path in retired.chain(follows).chain(apart) {
            assert!(!paths.contains(&path), "{path}");
            assert!(
                SECTIONS.contains(&path.split('.').next().unwrap()),
                "{path}"
            );
        }
        for (_, other) in FOLLOWS {
            assert!(paths.contains(&other), "{other}");
        }
        let sections = paths.iter().map(|path| path.split('.').next().unwrap());
        let mut sections: Vec<_> = sections.collect();
        sections.dedup();
        assert_eq!(sections, SECTIONS);
    }
}
