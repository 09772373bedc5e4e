//! Which channel takes a request: a pure function of what the meters show.

mod quick;

use steadfast_core::{Meter, Reading, Standing};

use crate::Strategy;

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
    /// Whether a channel was passed over because its streams are all taken: one may be free soon.
    pub(crate) full: bool,
}

/// What a pick goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) strategy: Strategy,
    /// The stream limit of a channel whose own isn't known.
    pub(crate) assumed_streams: u32,
    /// Passes over channels that have as many in flight, if given.
    pub(crate) cap: Option<u32>,
}

/// Ranks of channels that may be picked: a better class wins over any cost.
const OPEN: u64 = 0;
const RESERVE: u64 = 1;
const AVOIDED: u64 = 2;
const CLASS_SHIFT: u32 = 40;

/// What a pick takes. The quick scan decides where it can; `plain` says that the request avoids no
/// channel.
#[inline]
pub(crate) fn choose(
    meters: &[Meter],
    starts: (usize, usize),
    plain: bool,
    avoided: impl Fn(usize) -> bool,
    rules: Rules,
) -> Scan {
    let quick = plain && rules.strategy == Strategy::LeastLoaded && rules.cap.is_none();
    quick
        .then(|| quick::least_loaded(meters, starts.0, rules.assumed_streams))
        .flatten()
        .unwrap_or_else(|| scan(meters, starts, avoided, rules))
}

/// Scans all channels, beginning at `start` and going round, for the best one of the best class. The
/// first of equals wins, so a `start` that moves breaks ties by rotation.
///
/// `second` is where the other one of two choices is looked for, and isn't `start`.
#[inline]
fn scan(
    meters: &[Meter],
    (start, second): (usize, usize),
    avoided: impl Fn(usize) -> bool,
    rules: Rules,
) -> Scan {
    let cap = rules.cap.unwrap_or(u32::MAX);
    let mut best = u64::MAX;
    // Whether an open channel is full only by what is assumed of it.
    let mut full_by_guess = false;
    let mut found = Scan {
        choice: None,
        in_flight: 0,
        full: false,
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
        let Some(class) = class else {
            return;
        };
        if !seen.has_room(rules.assumed_streams) {
            found.full = true;
            full_by_guess |= class == OPEN && seen.stream_limit().is_none();
            return;
        }
        let cost = match rules.strategy {
            Strategy::LeastLoaded => seen.cost(),
            // The two that were drawn come before all others, which count only when neither will do.
            Strategy::PowerOfTwo if index == start || index == second => seen.cost(),
            Strategy::PowerOfTwo => seen.cost() | 1 << (CLASS_SHIFT - 1),
            // The first one from the start on.
            Strategy::RoundRobin => 0,
        };
        let rank = (class << CLASS_SHIFT) | cost;
        if rank < best && seen.in_flight() < cap {
            best = rank;
            found.choice = Some(Choice { index, seen });
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
    // A guess sends no request to a channel in reserve: the call waits, and the pool grows.
    if full_by_guess && best >> CLASS_SHIFT == RESERVE {
        found.choice = None;
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

    pub(super) struct Channel {
        pub(super) meter: Meter,
        pub(super) owner: MeterOwner,
    }

    impl Channel {
        pub(super) fn new(open: u32) -> Self {
            let meter = Meter::new();
            (0..open).for_each(|_| meter.enter());
            let owner = meter.owner();
            Self { meter, owner }
        }
    }

    fn channels<const N: usize>(in_flight: [u32; N]) -> Vec<Channel> {
        in_flight.into_iter().map(Channel::new).collect()
    }

    pub(super) const RULES: Rules = Rules {
        strategy: Strategy::LeastLoaded,
        assumed_streams: 100,
        cap: None,
    };

    fn scan_with(channels: &[Channel], start: usize, avoid: &[usize], rules: Rules) -> Scan {
        let meters: Vec<Meter> = channels
            .iter()
            .map(|channel| channel.meter.clone())
            .collect();
        let second = (start + 1) % channels.len();
        scan(&meters, (start, second), |i| avoid.contains(&i), rules)
    }

    fn pick(channels: &[Channel], start: usize, avoid: &[usize]) -> Option<usize> {
        scan_with(channels, start, avoid, RULES)
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
        let scan_with = |cap| scan_with(&channels, 0, &[], Rules { cap, ..RULES });
        assert_eq!(scan_with(Some(25)).choice.unwrap().index, 1);
        assert_eq!(scan_with(Some(24)).choice, None);
        assert!(!scan_with(Some(24)).full, "a cap is no stream limit");
        assert_eq!(scan_with(None).in_flight, 49);
    }

    /// B8: a channel one below its stream limit is passed over while another has room, however busy; at
    /// a limit of 1 it takes one. When all are full none is picked, and the scan says why.
    #[test]
    fn full_channels_are_passed_over() {
        let channels = channels([9, 40]);
        channels[0].meter.set_stream_limit(Some(10));
        assert_eq!(pick(&channels, 0, &[]), Some(1));
        channels[0].meter.set_stream_limit(Some(11));
        assert_eq!(pick(&channels, 0, &[]), Some(0));
        channels[0].meter.set_stream_limit(Some(0));
        let tight = Rules {
            assumed_streams: 41,
            ..RULES
        };
        let scan = scan_with(&channels, 0, &[], tight);
        assert_eq!((scan.choice, scan.full, scan.in_flight), (None, true, 49));
        channels[1].meter.set_stream_limit(Some(1));
        assert_eq!(pick(&channels, 0, &[]), None);
        let idle = self::channels([0]);
        idle[0].meter.set_stream_limit(Some(1));
        assert_eq!(pick(&idle, 0, &[]), Some(0));
        idle[0].meter.enter();
        assert_eq!(pick(&idle, 0, &[]), None);
    }

    /// P5, B8: an assumed limit never sends a request to a channel in reserve, one that the server
    /// announced does.
    #[test]
    fn a_guess_sends_nothing_to_the_reserve() {
        let channels = channels([99, 0]);
        channels[1].owner.set_standing(Standing::Reserve);
        let scan = scan_with(&channels, 0, &[], RULES);
        assert_eq!((scan.choice, scan.full), (None, true));
        channels[0].meter.set_stream_limit(Some(100));
        assert_eq!(pick(&channels, 0, &[]), Some(1));
        channels[0].meter.set_stream_limit(None);
        channels[1].owner.grant_trial();
        assert_eq!(pick(&channels, 0, &[]), Some(1), "its trial is its own");
    }

    /// B2: power of two takes the less loaded one of the two that were drawn, and another one only when
    /// neither will do.
    #[test]
    fn power_of_two_compares_two() {
        let rules = Rules {
            strategy: Strategy::PowerOfTwo,
            ..RULES
        };
        let channels = channels([5, 3, 0, 4]);
        let pick = |start| {
            scan_with(&channels, start, &[], rules)
                .choice
                .unwrap()
                .index
        };
        assert_eq!(pick(0), 1);
        assert_eq!(pick(1), 2);
        assert_eq!(pick(3), 3, "3 and 0, though 2 is idle");
        channels[3].owner.set_standing(Standing::Shut);
        channels[0].owner.set_standing(Standing::Reserve);
        assert_eq!(pick(3), 2, "an open one before a reserve that was drawn");
    }

    /// B2: an open channel that wasn't drawn comes before a drawn one in reserve, whatever it costs.
    #[test]
    fn power_of_two_keeps_the_classes() {
        let rules = Rules {
            strategy: Strategy::PowerOfTwo,
            ..RULES
        };
        let channels = channels([0, 0, 90]);
        channels[0].owner.set_standing(Standing::Reserve);
        channels[1].owner.set_standing(Standing::Shut);
        let choice = scan_with(&channels, 0, &[], rules).choice;
        assert_eq!(choice.unwrap().index, 2);
    }

    /// B2: round robin takes the next one that may be picked, whatever it carries.
    #[test]
    fn round_robin_goes_round() {
        let rules = Rules {
            strategy: Strategy::RoundRobin,
            ..RULES
        };
        let channels = channels([9, 0, 5]);
        let pick = |start| {
            scan_with(&channels, start, &[], rules)
                .choice
                .unwrap()
                .index
        };
        assert_eq!([0, 1, 2].map(pick), [0, 1, 2]);
        channels[1].owner.set_standing(Standing::Reserve);
        assert_eq!([0, 1, 2].map(pick), [0, 2, 2]);
    }

    /// B3: demand is what is in flight, wherever it is; a charge is none.
    #[test]
    fn demand_is_what_is_in_flight() {
        let channels = channels([3, 4, 5]);
        channels[0].owner.set_charge(100);
        channels[1].owner.set_standing(Standing::Reserve);
        channels[2].owner.set_standing(Standing::Shut);
        let rules = Rules {
            cap: Some(1),
            ..RULES
        };
        assert_eq!(scan_with(&channels, 0, &[0, 1, 2], rules).in_flight, 12);
    }
}
