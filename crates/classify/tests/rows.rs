//! Every row of the failure surface, with tonic's `server` feature; without it in `feature-tests`.

mod surface;

/// The package's dev-dependencies switch tonic's feature on.
const SERVER: bool = true;
