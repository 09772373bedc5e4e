//! Every row of the failure surface, with tonic's `server` feature; without it in `feature-tests`.

mod surface;
#[path = "surface/tests.rs"]
mod tests;

/// The package's dev-dependencies switch tonic's feature on; the row of resets shows whether it is so.
const SERVER: bool = true;
