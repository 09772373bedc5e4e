//! Every row of the failure surface, with tonic's `server` feature; without it in `feature-tests`.

mod surface;
#[path = "surface/table/mod.rs"]
mod table;
#[path = "surface/tests.rs"]
mod tests;

/// The package's dev-dependencies switch tonic's feature on; the row of resets shows whether it is so.
const SERVER: bool = true;

/// Nothing here can switch TLS on; `feature-tests` can.
const TLS: bool = false;
