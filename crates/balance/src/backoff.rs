//! How long to wait before a channel is dialled again.

use std::time::Duration;

const FIRST: f64 = 1.0;
const FACTOR: f64 = 1.6;
const LONGEST: f64 = 30.0;
const JITTER: f64 = 0.2;

/// The wait after the n-th failed dial in a row (the first is 1): 1 s, times 1.6 each, at most 30 s,
/// give or take 20 %. These are gRPC's figures but for its longest wait of 120 s. `random` is in 0..1.
pub(crate) fn backoff(failures: u32, random: f64) -> Duration {
    let exponent = failures.saturating_sub(1).min(16).cast_signed();
    let wait = (FIRST * FACTOR.powi(exponent)).min(LONGEST);
    Duration::from_secs_f64(wait * (1.0 - JITTER + 2.0 * JITTER * random))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B6: 1 s, × 1.6, at most 30 s, ± 20 %.
    #[test]
    fn grows_to_its_bound() {
        let middle = |failures| backoff(failures, 0.5).as_secs_f64();
        assert!((middle(1) - 1.0).abs() < 1e-6);
        assert!((middle(2) - 1.6).abs() < 1e-6);
        assert!((middle(3) - 2.56).abs() < 1e-6);
        assert!((middle(20) - 30.0).abs() < 1e-6);
        assert!((middle(u32::MAX) - 30.0).abs() < 1e-6);
        assert!((backoff(1, 0.0).as_secs_f64() - 0.8).abs() < 1e-6);
        assert!((backoff(20, 0.999).as_secs_f64() - 36.0).abs() < 0.1);
    }

    /// B6: at most 10 dials in any minute, even with the shortest waits.
    #[test]
    fn ten_dials_a_minute_at_most() {
        let (mut at, mut dials) = (0.0, 1);
        for failures in 1.. {
            at += backoff(failures, 0.0).as_secs_f64();
            if at >= 60.0 {
                break;
            }
            dials += 1;
        }
        assert!(dials <= 10, "{dials}");
    }
}
