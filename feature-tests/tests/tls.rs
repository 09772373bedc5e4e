//! The rows of TLS, with and without tonic's `server` feature.
