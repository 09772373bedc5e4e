//! How long requests take that succeed.

use std::{collections::VecDeque, time::Duration};

/// How many of the last successes count.
const KEPT: usize = 100;

/// The median of the last successes' times, bodies included.
#[derive(Debug, Default)]
pub(crate) struct Typical(VecDeque<Duration>);

impl Typical {
    pub(crate) fn add(&mut self, time: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(time);
    }

    /// The median; none before the first success.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut times = [Duration::ZERO; KEPT];
        let known = &mut times[..self.0.len()];
        for (slot, time) in known.iter_mut().zip(&self.0) {
            *slot = *time;
        }
        let middle = known.len() / 2;
        (!known.is_empty()).then(|| *known.select_nth_unstable(middle).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P4: the median of the last 100.
    #[test]
    fn the_last_hundred_count() {
        let mut typical = Typical::default();
        assert_eq!(typical.median(), None);
        typical.add(Duration::from_secs(9));
        assert_eq!(typical.median(), Some(Duration::from_secs(9)));
        for ms in 1..=100 {
            typical.add(Duration::from_millis(ms));
        }
        assert_eq!(typical.median(), Some(Duration::from_millis(51)));
        (0..51).for_each(|_| typical.add(Duration::ZERO));
        assert_eq!(typical.median(), Some(Duration::ZERO));
    }
}
