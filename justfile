# The commands of CONTRIBUTING.md. `just` alone lists them.

default:
    @just --list

# Formatting and lints.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# All tests, doctests included; `just test -p steadfast-core` for one crate.
test *arguments="--workspace":
    cargo test {{arguments}}

# Interleavings; in a target folder of its own, because the flag rebuilds everything.
loom:
    RUSTFLAGS="--cfg steadfast_loom" CARGO_TARGET_DIR=target/loom cargo test -p steadfast-core --release --test loom

# The docs, with warnings as errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# What CI runs; `just ci --long` with the long campaigns.
ci *arguments:
    .ci/run {{arguments}}

# Plain tonic, tonic's balance and Steadfast side by side.
demo *arguments:
    cargo run --release -p steadfast-lab -- demo {{arguments}}

# Benchmarks, where a crate has some.
bench *arguments="--workspace":
    cargo bench {{arguments}}
