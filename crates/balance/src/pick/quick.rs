//! The common pick: a look at the costs and at nothing else.

use steadfast_core::{Meter, Reading};

use super::{Choice, Scan};

/// The bits that an open rank leaves free.
const POSITION: u64 = (1 << 28) - 1;

/// The least loaded channel, beginning at `start` and going round, if it is open and has room: what
/// [`super::scan`] finds then, in a fifth of the time, since nothing but the cost is looked at until the end. Nothing
/// if it isn't.
#[inline]
pub(super) fn least_loaded(meters: &[Meter], start: usize, assumed_streams: u32) -> Option<Scan> {
    let (before, from) = meters.split_at(start);
    let mut found = Lowest::default();
    found.look(from, 0);
    found.look(before, from.len() as u64);
    // One on trial may be the better choice: the full scan weighs them.
    if found.all_ranks & Reading::TRIAL_RANK != 0 {
        return None;
    }
    let (best, in_flight) = (found.rank, found.in_flight);
    let index = start + (best & POSITION) as usize;
    let index = if index < meters.len() {
        index
    } else {
        index - meters.len()
    };
    let seen = meters.get(index)?.read();
    (seen.is_open() && seen.has_room(assumed_streams)).then_some(Scan {
        choice: Some(Choice { index, seen }),
        in_flight,
        full: false,
    })
}

/// What a look at the costs alone finds.
struct Lowest {
    /// The lowest rank, with its position.
    rank: u64,
    /// All ranks, one over the other.
    all_ranks: u64,
    in_flight: u64,
}

impl Default for Lowest {
    fn default() -> Self {
        Self {
            rank: u64::MAX,
            all_ranks: 0,
            in_flight: 0,
        }
    }
}

impl Lowest {
    /// Looks at these too, whose positions go on from `position`.
    #[inline]
    fn look(&mut self, meters: &[Meter], position: u64) {
        let (mut in_flight, mut all_ranks) = (0, 0);
        let mut rank = |meter: &Meter, position| {
            let seen = meter.read();
            in_flight += u64::from(seen.in_flight());
            let rank = seen.open_rank();
            all_ranks |= rank;
            rank | position
        };
        // Four minima at a time: with one, each waits for the one before.
        let mut best = [self.rank; 4];
        let (fours, rest) = meters.as_chunks::<4>();
        let mut next = position;
        for four in fours {
            for (best, (meter, offset)) in best.iter_mut().zip(four.iter().zip(0..)) {
                *best = (*best).min(rank(meter, next + offset));
            }
            next += 4;
        }
        for meter in rest {
            best[0] = best[0].min(rank(meter, next));
            next += 1;
        }
        self.rank = best.into_iter().min().unwrap_or(u64::MAX);
        self.all_ranks |= all_ranks;
        self.in_flight += in_flight;
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::Standing;

    use super::{
        super::{
            Rules, scan,
            tests::{Channel, RULES},
        },
        *,
    };

    proptest::proptest! {
        /// B2: the quick scan finds what the full one does, or nothing.
        #[test]
        fn the_quick_scan_agrees(
            loads in proptest::collection::vec((0_u32..5, 0_u32..4, 0_u8..6), 1..12),
            start in proptest::prelude::any::<proptest::sample::Index>(),
            assumed in 1_u32..6,
        ) {
            let channels: Vec<Channel> = loads.iter().map(|_| Channel::new(0)).collect();
            for (channel, (open, charge, standing)) in channels.iter().zip(&loads) {
                (0..*open).for_each(|_| channel.meter.enter());
                channel.owner.set_charge(*charge);
                match standing {
                    3 => {
                        channel.owner.set_standing(Standing::Reserve);
                        channel.owner.grant_trial();
                    }
                    4 => channel.owner.set_standing(Standing::Reserve),
                    5 => channel.owner.set_standing(Standing::Shut),
                    _ => {}
                }
            }
            let meters: Vec<Meter> = channels.iter().map(|channel| channel.meter.clone()).collect();
            let start = start.index(meters.len());
            let rules = Rules { assumed_streams: assumed, ..RULES };
            let full = scan(&meters, (start, start), |_| false, rules);
            if let Some(quick) = least_loaded(&meters, start, assumed) {
                proptest::prop_assert_eq!(quick.choice, full.choice);
                proptest::prop_assert_eq!(quick.in_flight, full.in_flight);
            } else {
                // Then the least loaded one of the open ones is full, or none is open, or one is on trial.
                let trial = meters.iter().any(|meter| meter.read().on_trial());
                let open = meters.iter().filter(|meter| meter.read().is_open());
                let least = open.min_by_key(|meter| meter.read().cost());
                let full = least.is_none_or(|meter| {
                    let least = meter.read().cost();
                    meters.iter().any(|other| {
                        let seen = other.read();
                        seen.is_open() && seen.cost() == least && !seen.has_room(assumed)
                    })
                });
                proptest::prop_assert!(full || trial);
            }
        }
    }
}
