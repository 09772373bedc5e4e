//! Every row of the failure surface, without tonic's `server` feature; with it in `steadfast-classify`.

#[path = "../../crates/classify/tests/surface/mod.rs"]
mod surface;
#[path = "../../crates/classify/tests/surface/table/mod.rs"]
mod table;
#[path = "../../crates/classify/tests/surface/tests.rs"]
mod tests;

/// The row of resets shows whether it is so.
const SERVER: bool = cfg!(feature = "server");

/// With TLS built in, one row is another: T9 instead of A5b.
const TLS: bool = cfg!(feature = "tls");
