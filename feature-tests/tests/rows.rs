//! Every row of the failure surface, without tonic's `server` feature; with it in `steadfast-classify`.

#[path = "../../crates/classify/tests/surface/mod.rs"]
mod surface;

/// The row of resets shows whether it is so.
const SERVER: bool = cfg!(feature = "server");
