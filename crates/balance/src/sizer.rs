//! How many channels a pool should have: a pure function of the last interval's peak.
//!
//! The band of useful sizes runs from the peak shared out at `max_requests` a channel to the peak at
//! `min_requests`. Inside the band nothing changes; outside it the pool moves toward the band's middle
//! by a few channels at a time. A penalty's charge is no demand and never comes in here.

use crate::BalanceConfig;

/// Decides the size.
#[derive(Clone, Debug)]
pub(crate) struct Sizer {
    min: usize,
    max: usize,
    min_requests: u64,
    max_requests: u64,
    step: usize,
}

impl Sizer {
    pub(crate) fn new(config: &BalanceConfig) -> Self {
        Self {
            min: config.min,
            max: config.max,
            min_requests: config.min_requests.into(),
            max_requests: config.max_requests.into(),
            step: config.resize_step,
        }
    }

    /// The lowest and the highest useful size for a peak of requests in flight.
    pub(crate) fn band(&self, peak: u64) -> (usize, usize) {
        let size = |requests: u64| {
            let channels = peak.div_ceil(requests);
            usize::try_from(channels)
                .unwrap_or(usize::MAX)
                .clamp(self.min, self.max)
        };
        (size(self.max_requests), size(self.min_requests))
    }

    /// Channels to add (positive) or to remove (negative) after an interval with this peak.
    pub(crate) fn change(&self, size: usize, peak: u64) -> isize {
        let (low, high) = self.band(peak);
        if (low..=high).contains(&size) {
            return 0;
        }
        let target = low.midpoint(high);
        let step = self.step.min(target.abs_diff(size)).cast_signed();
        if target > size { step } else { -step }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bigtable() -> Sizer {
        Sizer::new(&BalanceConfig::bigtable())
    }

    /// B3: the band's ends are rounded up and held within min and max before the middle is taken,
    /// which is rounded down.
    #[test]
    fn band_and_middle() {
        let sizer = bigtable();
        assert_eq!(sizer.band(0), (4, 4));
        assert_eq!(sizer.band(26), (4, 26));
        assert_eq!(sizer.band(1_001), (41, 200));
        assert_eq!(sizer.band(1_000_000), (200, 200));
        // 41..=200 has its middle at 120: from 40, two steps up at most.
        assert_eq!(sizer.change(40, 1_001), 2);
        // The middle of (4, 5) is 4: from 6, both steps.
        assert_eq!(sizer.change(6, 5), -2);
        assert_eq!(sizer.change(6, 4), -2);
        // The middle of (4, 7) is 5 (rounded down): from 8, three are too many, two are allowed.
        assert_eq!(sizer.change(8, 7), -2);
        // A step never goes past the middle.
        let one_off = Sizer {
            min: 1,
            ..bigtable()
        };
        assert_eq!(one_off.change(2, 1), -1);
    }

    /// B3: inside the band nothing changes.
    #[test]
    fn inside_the_band_it_stays() {
        let sizer = bigtable();
        for size in 8..=200 {
            assert_eq!(sizer.change(size, 200), 0, "size {size}");
        }
        assert_eq!(sizer.change(7, 200), 2);
    }

    proptest! {
        /// B3: never under min, never over max, never more than the step, and never away from the band.
        #[test]
        fn stays_in_bounds(
            min in 1_usize..20,
            more in 0_usize..200,
            low in 1_u32..30,
            wider in 0_u32..50,
            step in 1_usize..5,
            peaks in proptest::collection::vec(0_u64..20_000, 1..50),
        ) {
            let config = BalanceConfig {
                min,
                max: min + more,
                initial: min,
                min_requests: low,
                max_requests: low + wider,
                resize_step: step,
                ..BalanceConfig::default()
            };
            prop_assert!(config.validate().is_ok());
            let sizer = Sizer::new(&config);
            let mut size = config.initial;
            for peak in peaks {
                let change = sizer.change(size, peak);
                prop_assert!(change.unsigned_abs() <= step);
                let (lowest, highest) = sizer.band(peak);
                prop_assert!(change <= 0 || size < lowest);
                prop_assert!(change >= 0 || size > highest);
                size = size.checked_add_signed(change).unwrap();
                prop_assert!((config.min..=config.max).contains(&size));
            }
        }

        /// B3: under a constant load the size settles, and stays for sixty intervals.
        #[test]
        fn constant_load_settles(peak in 0_u64..10_000, start in 4_usize..=200) {
            let sizer = bigtable();
            let mut size = start;
            for _ in 0..100 {
                size = size.checked_add_signed(sizer.change(size, peak)).unwrap();
            }
            for _ in 0..60 {
                prop_assert_eq!(sizer.change(size, peak), 0);
            }
        }
    }

    /// B3: over a seeded day of load that swings twice, the size turns at most twice more often than
    /// the load does.
    #[test]
    fn a_day_has_few_turns() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let sizer = bigtable();
            let (mut size, mut heading, mut turns) = (10_usize, 0_isize, 0);
            for minute in 0..24 * 60 {
                let phase = f64::from(minute) / (24.0 * 60.0) * std::f64::consts::TAU * 2.0;
                let load = 800.0 * (1.2 - phase.cos()) * (0.85 + 0.3 * random.f64());
                let change = sizer.change(size, load as u64);
                size = size.checked_add_signed(change).unwrap();
                if change != 0 && change.signum() != heading {
                    turns += 1;
                    heading = change.signum();
                }
            }
            // The load turns four times: up, down, up, down.
            assert!(turns <= 4 + 2, "seed {seed}: {turns} turns");
        }
    }
}
