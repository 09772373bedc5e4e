//! Documents that show code show the code that runs.

use std::{fs, path::Path};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Without the layout, which a page may break differently.
fn dense(code: &str) -> String {
    code.chars().filter(|it| !it.is_whitespace()).collect()
}

/// The page about a rule of one's own goes through the example, block by block.
#[test]
fn the_page_about_own_rules_shows_the_example() {
    let (page, example) = (
        read("docs/own-rule.md"),
        dense(&read("examples/examples/own_rule.rs")),
    );
    let blocks: Vec<_> = page
        .split("```rust,ignore\n")
        .skip(1)
        .map(|rest| rest.split("```").next().expect("it ends"))
        .collect();
    assert_eq!(blocks.len(), 4);
    // The last one is how any pool gets it.
    for block in &blocks[..3] {
        assert!(
            example.contains(&dense(block)),
            "not in the example:\n{block}"
        );
    }
}
