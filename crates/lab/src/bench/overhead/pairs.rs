//! Ratios of figures that were measured in pairs.

use crate::bench::median;

/// The median of the ratios, and the interval that holds the true median with 95 % certainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    /// Of each pair, the first over the second.
    pub(super) fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut ratios: Vec<f64> = pairs.into_iter().map(|(one, other)| one / other).collect();
        ratios.sort_by(f64::total_cmp);
        let outside = outside(ratios.len());
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        Self {
            low: at(outside),
            high: at((ratios.len().saturating_sub(1)).saturating_sub(outside)),
            median: median(ratios),
        }
    }
}

/// How many of `count` values may be left out at each end so that the rest still spans the median with 95 %
/// certainty. Each value is below the median or above it, like the toss of a coin, so nothing is supposed about how
/// they are spread.
fn outside(count: usize) -> usize {
    // The chance that at most so many of the values are below the median.
    let (mut ways, mut below) = (0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0);
    let mut values = 0;
    loop {
        below += ways;
        if below > 0.025 || values >= count {
            return values.saturating_sub(1).min(count / 2);
        }
        ways *= (count - values) as f64 / (values + 1) as f64;
        values += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the sign test: of 9 pairs one may be left out at each end, of 20 five, of 5 none.
    #[test]
    fn as_many_are_left_out_as_the_table_says() {
        assert_eq!([5, 6, 9, 12, 20, 25].map(outside), [0, 0, 1, 2, 5, 7]);
    }

    #[test]
    fn a_ratio_stands_within_its_interval() {
        let pairs = (1..=9).map(|one| (f64::from(one), 10.0));
        let ratio = Ratio::of(pairs);
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.2, 0.5, 0.8));
    }
}
