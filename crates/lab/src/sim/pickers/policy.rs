//! Who picks. Least loaded is our pool's own pick; the others are written out here, over meters of the same kind.

use fastrand::Rng;
use steadfast::{Meter, Metered};
use steadfast_balance::bench::{Pick, Picker as Pool};

use super::Picker;

/// A request in flight on a channel, as the policy counts it, until it is dropped.
pub(super) enum Claim {
    /// Our pool's.
    Ours {
        _pick: Pick<usize>,
    },
    Plain(Meter),
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Self::Plain(meter) = self {
            meter.release();
        }
    }
}

/// A picker over channels that know their index.
pub(super) struct Policy {
    picker: Picker,
    pool: Pool<usize>,
    meters: Vec<Meter>,
    turn: usize,
}

impl Policy {
    pub(super) fn new(picker: Picker, channels: usize) -> Self {
        let channels: Vec<_> = (0..channels).map(Metered::new).collect();
        let meter = |channel: &Metered<usize>| {
            // No stream limit: the question is which channel, not what to do when all are full.
            channel.meter().set_stream_limit(Some(u32::MAX));
            channel.meter().clone()
        };
        Self {
            picker,
            meters: channels.iter().map(meter).collect(),
            pool: Pool::new(channels),
            turn: 0,
        }
    }

    /// Chooses a channel and counts a request on it.
    pub(super) fn pick(&mut self, random: &mut Rng) -> (usize, Claim) {
        let count = self.meters.len();
        let index = match self.picker {
            Picker::LeastLoaded => {
                let pick = self
                    .pool
                    .pick()
                    .expect("every channel is open and has room");
                return (*pick.service(), Claim::Ours { _pick: pick });
            }
            Picker::PowerOfTwo => {
                let first = random.usize(..count);
                let second = (first + random.usize(1..count)) % count;
                let cost = |index: &usize| self.meters[*index].read().cost();
                if cost(&first) <= cost(&second) {
                    first
                } else {
                    second
                }
            }
            Picker::RoundRobin => {
                self.turn = (self.turn + 1) % count;
                self.turn
            }
            Picker::Random => random.usize(..count),
        };
        let meter = self.meters[index].clone();
        meter.enter();
        (index, Claim::Plain(meter))
    }
}
