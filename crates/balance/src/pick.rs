//! Which channel takes a request: a pure function of what the meters show.

use steadfast_core::{Meter, Reading, Standing};

/// A channel to claim, and what its meter showed when it was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) index: usize,
    pub(crate) seen: Reading,
}

/// What a scan over all channels found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scan {
    /// The best channel, if any may be picked.
    pub(crate) choice: Option<Choice>,
    /// Requests in flight on all of them.
    pub(crate) in_flight: u64,
}

/// Ranks of channels that may be picked: a better class wins over any cost.
const OPEN: u64 = 0;
const RESERVE: u64 = 1;
const AVOIDED: u64 = 2;

/// Scans all channels, beginning at `start` and going round, for the least loaded one of the best
/// class. The first of equals wins, so a `start` that moves breaks ties by rotation.
///
/// `cap`, if given, passes over channels that have as many in flight.
#[inline]
pub(crate) fn scan(
    meters: &[Meter],
    start: usize,
    avoided: impl Fn(usize) -> bool,
    cap: Option<u32>,
) -> Scan {
    let cap = cap.unwrap_or(u32::MAX);
    let mut best = u64::MAX;
    let mut found = Scan {
        choice: None,
        in_flight: 0,
    };
    let mut look = |index: usize, meter: &Meter| {
        let seen = meter.read();
        found.in_flight += u64::from(seen.in_flight());
        let open = seen.standing() == Standing::Open && !avoided(index);
        let class = if open {
            Some(OPEN)
        } else {
            class(seen, avoided(index))
        };
        if let Some(class) = class.filter(|_| seen.in_flight() < cap) {
            let rank = (class << 40) | seen.cost();
            if rank < best {
                best = rank;
                found.choice = Some(Choice { index, seen });
            }
        }
    };
    // Two plain loops: one over both ranges asks at every channel which of them it is in.
    let (before, from) = meters.split_at(start);
    for (index, meter) in from.iter().enumerate() {
        look(start + index, meter);
    }
    for (index, meter) in before.iter().enumerate() {
        look(index, meter);
    }
    found
}

/// The class of a channel that isn't like any other; none if it may not be picked.
#[cold]
fn class(seen: Reading, avoided: bool) -> Option<u64> {
    match seen.standing() {
        Standing::Shut | Standing::Condemned => None,
        _ if avoided => Some(AVOIDED),
        Standing::Reserve if !seen.on_trial() => Some(RESERVE),
        _ => Some(OPEN),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::MeterOwner;

    use super::*;

    struct Channel {
        meter: Meter,
        owner: MeterOwner,
    }

    fn channels<const N: usize>(in_flight: [u32; N]) -> Vec<Channel> {
        let channel = |open| {
            let meter = Meter::new();
            (0..open).for_each(|_| meter.enter());
            let owner = meter.owner();
            Channel { meter, owner }
        };
        in_flight.into_iter().map(channel).collect()
    }

    fn meters(channels: &[Channel]) -> Vec<Meter> {
        let meter = |channel: &Channel| channel.meter.clone();
        channels.iter().map(meter).collect()
    }

    fn pick(channels: &[Channel], start: usize, avoid: &[usize]) -> Option<usize> {
        scan(&meters(channels), start, |i| avoid.contains(&i), None)
            .choice
            .map(|choice| choice.index)
    }

    /// B2: the least loaded one, wherever the scan begins; a charge counts like requests.
    #[test]
    fn least_loaded_wins() {
        let channels = channels([3, 1, 2]);
        for start in 0..3 {
            assert_eq!(pick(&channels, start, &[]), Some(1));
        }
        channels[1].owner.set_charge(25);
        assert_eq!(pick(&channels, 0, &[]), Some(2));
    }

    /// B2: ties go round with the start, never to the lowest index.
    #[test]
    fn ties_rotate() {
        let channels = channels([0, 0, 0, 0]);
        for start in 0..4 {
            assert_eq!(pick(&channels, start, &[]), Some(start));
        }
    }

    /// B2: open before reserve before avoided, whatever they cost; shut and condemned never.
    #[test]
    fn classes_come_before_costs() {
        let channels = channels([90, 10, 0, 0, 0]);
        channels[1].owner.set_standing(Standing::Reserve);
        channels[3].owner.set_standing(Standing::Shut);
        channels[4].owner.condemn("gone");
        assert_eq!(
            pick(&channels, 0, &[2]),
            Some(0),
            "open, though the busiest"
        );
        channels[0].owner.set_standing(Standing::Shut);
        assert_eq!(pick(&channels, 0, &[2]), Some(1), "reserve before avoided");
        channels[1].owner.set_standing(Standing::Shut);
        assert_eq!(
            pick(&channels, 0, &[2]),
            Some(2),
            "avoided when nothing else is left"
        );
        channels[2].owner.set_standing(Standing::Shut);
        assert_eq!(
            pick(&channels, 0, &[2]),
            None,
            "never a shut or condemned one"
        );
    }

    /// P5: a reserve channel on trial ranks as open, for one claim.
    #[test]
    fn a_trial_counts_as_open_once() {
        let channels = channels([1, 0]);
        channels[1].owner.set_standing(Standing::Reserve);
        assert_eq!(pick(&channels, 0, &[]), Some(0));
        channels[1].owner.grant_trial();
        assert_eq!(pick(&channels, 0, &[]), Some(1));
        channels[1].meter.claim(channels[1].meter.read()).unwrap();
        assert_eq!(pick(&channels, 0, &[]), Some(0));
    }

    /// B7: with a cap, a channel at its maximum is passed over.
    #[test]
    fn the_cap_is_kept() {
        let channels = channels([25, 24]);
        let scan_with = |cap| scan(&meters(&channels), 0, |_| false, cap);
        assert_eq!(scan_with(Some(25)).choice.unwrap().index, 1);
        assert_eq!(scan_with(Some(24)).choice, None);
        assert_eq!(scan_with(None).in_flight, 49);
    }

    /// B3: demand is what is in flight, wherever it is; a charge is none.
    #[test]
    fn demand_is_what_is_in_flight() {
        let channels = channels([3, 4, 5]);
        channels[0].owner.set_charge(100);
        channels[1].owner.set_standing(Standing::Reserve);
        channels[2].owner.set_standing(Standing::Shut);
        let read = |i: usize| channels[i].meter.read();
        assert_eq!(scan(3, 0, read, |_| true, Some(1)).in_flight, 12);
    }
}
