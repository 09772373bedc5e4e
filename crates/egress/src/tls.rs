//! Whether tonic was built with TLS, by whichever crate's features.
//!
//! tonic shows it only by having, or not having, `Endpoint::tls_config`. A type's own function goes
//! before a trait's of the same name, so the name below means tonic's if there is one, else ours.

use tonic::transport::Endpoint;

trait Without {
    #[allow(dead_code, reason = "called when tonic is built without TLS")]
    fn tls_config() {}
}

impl Without for Endpoint {}

/// Tells the two apart by their number of arguments.
trait Configures<Arguments> {
    const TLS: bool;
}

impl<F: Fn()> Configures<()> for F {
    const TLS: bool = false;
}

impl<F: Fn(A, B) -> C, A, B, C> Configures<(A, B, C)> for F {
    const TLS: bool = true;
}

pub(crate) fn built_in() -> bool {
    fn of<Arguments, F: Configures<Arguments>>(_: F) -> bool {
        F::TLS
    }
    of(Endpoint::tls_config)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(any(feature = "tls-ring", feature = "tls-aws-lc"))]
    fn it_is_built_in_with_our_features() {
        assert!(super::built_in());
    }
}
