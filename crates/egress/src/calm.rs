//! How often each place wants to be pinged, at most.
//!
//! Decides the keepalive interval of the next connection to a place. A server that ended a connection
//! with GOAWAY ENHANCE_YOUR_CALM gets half as many PINGs from then on (gRFC A8). It never shortens an
//! interval again, and never changes one of a connection that stands.

use std::{collections::HashMap, time::Duration};

use steadfast_core::Place;

/// The interval never grows beyond this: a keepalive that is rarer finds nothing in time.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Places remembered at most; beyond it any one is forgotten, and asks again for calm.
const MOST_PLACES: usize = 1024;

/// The intervals that places have asked for.
#[derive(Debug, Default)]
pub(crate) struct Calm(HashMap<Place, Duration>);

impl Calm {
    /// The interval for the next connection to `place`, `configured` if it asked for nothing.
    pub(crate) fn interval(&self, place: &Place, configured: Duration) -> Duration {
        self.0
            .get(place)
            .map_or(configured, |&own| own.max(configured))
    }

    /// `place` asked for calm on a connection that pinged every `used`. The new interval, if it changes:
    /// connections that were made alike and ended alike count as one.
    pub(crate) fn asked(&mut self, place: &Place, used: Duration) -> Option<Duration> {
        let doubled = used.saturating_mul(2).min(LONGEST.max(used));
        if self.interval(place, used) >= doubled {
            return None;
        }
        if self.0.len() >= MOST_PLACES
            && !self.0.contains_key(place)
            && let Some(any) = self.0.keys().next().cloned()
        {
            self.0.remove(&any);
        }
        self.0.insert(place.clone(), doubled);
        Some(doubled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn doubles_for_that_place_up_to_an_hour() {
        let (mut calm, place, other) = (Calm::default(), Place::new("a"), Place::new("b"));
        assert_eq!(calm.interval(&place, seconds(60)), seconds(60));
        let mut used = seconds(60);
        let mut seen = Vec::new();
        while let Some(next) = calm.asked(&place, used) {
            assert_eq!(calm.interval(&place, seconds(60)), next);
            used = next;
            seen.push(next.as_secs());
        }
        assert_eq!(seen, [120, 240, 480, 960, 1920, 3600]);
        assert_eq!(calm.interval(&other, seconds(60)), seconds(60));
    }

    #[test]
    fn connections_of_one_generation_count_once() {
        let (mut calm, place) = (Calm::default(), Place::new("a"));
        let asked: Vec<_> = (0..4).map(|_| calm.asked(&place, seconds(60))).collect();
        assert_eq!(asked, [Some(seconds(120)), None, None, None]);
        assert_eq!(calm.asked(&place, seconds(120)), Some(seconds(240)));
        assert_eq!(
            calm.asked(&place, seconds(60)),
            None,
            "one of the first generation"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut calm = Calm::default();
        for n in 0..MOST_PLACES + 10 {
            calm.asked(&Place::new(n.to_string()), seconds(60));
        }
        assert_eq!(calm.0.len(), MOST_PLACES);
    }
}
