//! The committed inputs of the fuzz targets, replayed.

// What is fuzzed: the package itself needs nightly.
#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a library there")]
mod fuzz;

use std::{fs, path::Path};

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let inputs =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut replayed = 0;
    for input in inputs {
        let path = input.unwrap().path();
        println!("{}", path.display());
        let whole = fs::read(path).unwrap();
        run(&whole);
        // And cut short.
        for length in 0..whole.len() {
            run(&whole[..length]);
        }
        replayed += 1;
    }
    assert!(replayed > 0, "no inputs in {}", folder.display());
}

/// R8: the reader.
#[test]
fn messages() {
    replay("messages", fuzz::messages);
}

/// R8, R9: BigTable's rule.
#[test]
fn read_rows() {
    replay("read_rows", fuzz::read_rows);
}

/// R8, R9: Spanner's.
#[test]
fn spanner() {
    replay("spanner", fuzz::spanner);
}

/// R8, R9: etcd's.
#[test]
fn watch() {
    replay("watch", fuzz::watch);
}
