//! The crates hang together as drawn in `docs/architecture.md`: an edge that isn't drawn there, or is
//! drawn and doesn't exist, fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata runs")
}

/// The lines of the fenced block with this name.
fn block(name: &str) -> Vec<String> {
    let path = root().join("docs/architecture.md");
    let text = fs::read_to_string(&path).expect("docs/architecture.md is there");
    let fence = format!("```{name}");
    let lines = text.lines().skip_while(|line| *line != fence).skip(1);
    let lines: Vec<String> = lines
        .take_while(|line| !line.starts_with("```"))
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty(), "no block {fence} in {}", path.display());
    lines
}

type Edges = BTreeMap<String, BTreeSet<String>>;

fn drawn(name: &str) -> Edges {
    let edge = |line: &String| {
        let (from, to) = line
            .split_once("->")
            .unwrap_or_else(|| panic!("no edge: {line}"));
        let to = to.split_whitespace().map(str::to_owned).collect();
        (from.trim().to_owned(), to)
    };
    block(name).iter().map(edge).collect()
}

/// A crate's name in the picture: the package's without the family's.
fn short(package: &str) -> &str {
    package.strip_prefix("steadfast-").unwrap_or(package)
}

/// The edges between crates of the workspace, of all targets and features.
fn edges(metadata: &Metadata, kinds: &[DependencyKind]) -> Edges {
    let members: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let to = |package: &Package| {
        let inside = |d: &&Dependency| members.contains(d.name.as_str());
        let dependencies = package.dependencies.iter().filter(inside);
        dependencies
            .filter(|d| kinds.contains(&d.kind))
            .map(|d| short(&d.name).to_owned())
            .collect()
    };
    let edges = metadata.packages.iter();
    edges
        .map(|package| (short(&package.name).to_owned(), to(package)))
        .collect()
}

/// What differs between the picture and the manifests, one line each.
fn differences(drawn: &Edges, real: &Edges) -> Vec<String> {
    let none = BTreeSet::new();
    let mut differences = Vec::new();
    for (from, to) in real {
        let allowed = drawn.get(from).unwrap_or(&none);
        if allowed.contains("*") {
            continue;
        }
        let undrawn = to.difference(allowed);
        differences.extend(undrawn.map(|to| format!("{from} -> {to} isn't drawn")));
        let gone = allowed.difference(to);
        differences.extend(gone.map(|to| format!("{from} -> {to} is drawn, but doesn't exist")));
    }
    let strangers = drawn.keys().filter(|from| !real.contains_key(*from));
    differences.extend(strangers.map(|from| format!("{from} is drawn, but is no crate")));
    differences
}

const NORMAL: [DependencyKind; 2] = [DependencyKind::Normal, DependencyKind::Build];
const DEVELOPMENT: [DependencyKind; 1] = [DependencyKind::Development];

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let real = edges(&metadata(), &NORMAL);
    let drawn = drawn("edges");
    let undrawn = real.keys().filter(|name| !drawn.contains_key(*name));
    let mut wrong: Vec<_> = undrawn.map(|name| format!("{name} isn't drawn")).collect();
    wrong.extend(differences(&drawn, &real));
    assert!(wrong.is_empty(), "docs/architecture.md: {wrong:#?}");
}

#[test]
fn dev_dependencies_are_as_drawn() {
    let real = edges(&metadata(), &DEVELOPMENT);
    let wrong = differences(&drawn("dev-edges"), &real);
    assert!(wrong.is_empty(), "docs/architecture.md: {wrong:#?}");
}

/// The picture itself may not allow what it is there to forbid.
#[test]
fn the_picture_has_no_sideways_edges() {
    let layers = ["balance", "penalty", "egress", "retry", "stall", "sparse"];
    let programs = ["lab", "tests", "examples"];
    for (from, to) in drawn("edges") {
        if programs.contains(&from.as_str()) {
            continue;
        }
        assert!(!to.contains("*"), "{from} may use any crate");
        assert!(!to.contains("testkit"), "{from} ships the test doubles");
        for program in programs {
            assert!(!to.contains(program), "{from} depends on a program");
        }
        if from != "steadfast" {
            for layer in layers.iter().chain(["steadfast"].iter()) {
                assert!(!to.contains(*layer), "{from} -> {layer} is sideways or up");
            }
        }
    }
}

/// Core's dependencies from outside: a fixed list, those in brackets only behind a feature or a flag.
#[test]
fn core_stays_small() {
    let allowed = block("core-dependencies");
    let metadata = metadata();
    let core = metadata
        .packages
        .iter()
        .find(|p| p.name == "steadfast-core");
    for dependency in &core.expect("core is there").dependencies {
        if dependency.kind == DependencyKind::Development {
            continue;
        }
        let conditional = dependency.optional || dependency.target.is_some();
        let name = if conditional {
            format!("[{}]", dependency.name)
        } else {
            dependency.name.clone()
        };
        let listed = allowed.contains(&name) || allowed.contains(&dependency.name);
        assert!(
            listed,
            "{name} isn't in core's list in docs/architecture.md"
        );
    }
}

/// No crate needs a patched dependency, or one that isn't from crates.io: users couldn't build it.
#[test]
fn nothing_is_patched() {
    let metadata = metadata();
    let manifests = metadata.packages.iter().map(|p| p.manifest_path.clone());
    let workspace = metadata.workspace_root.join("Cargo.toml");
    for manifest in manifests.chain([workspace]) {
        let text = fs::read_to_string(&manifest).expect("the manifest is readable");
        let patched = |line: &str| {
            let line = line.trim_start().trim_start_matches('[');
            line.starts_with("patch.") || line.starts_with("patch]") || line.starts_with("replace]")
        };
        assert!(
            !text.lines().any(patched),
            "{manifest} patches a dependency"
        );
    }
    for package in &metadata.packages {
        for dependency in &package.dependencies {
            let outside = dependency.path.is_none();
            let from = dependency
                .source
                .as_ref()
                .map(|source| source.repr.as_str());
            let registry = from.is_some_and(|from| from.ends_with("/crates.io-index"));
            assert!(
                !outside || registry,
                "{} takes {} from {from:?}",
                package.name,
                dependency.name
            );
        }
    }
}

/// The check itself: it finds an edge that isn't drawn, one that is gone, and a stranger.
#[test]
fn differences_are_found() {
    let edges = |text: &[(&str, &[&str])]| -> Edges {
        let set = |to: &&[&str]| to.iter().map(|&to| to.to_owned()).collect();
        text.iter()
            .map(|(from, to)| ((*from).to_owned(), set(to)))
            .collect()
    };
    let drawn = edges(&[("a", &["b"]), ("any", &["*"]), ("gone", &[])]);
    let real = edges(&[("a", &["c"]), ("any", &["a", "b"]), ("new", &["a"])]);
    let found = differences(&drawn, &real);
    assert_eq!(
        found,
        [
            "a -> c isn't drawn",
            "a -> b is drawn, but doesn't exist",
            "new -> a isn't drawn",
            "gone is drawn, but is no crate",
        ]
    );
}
