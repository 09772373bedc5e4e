//! When reads arrive, and which: evenly spaced, with kinds and rows drawn from a seed, so that every contender gets the same ones.

use std::time::Duration;

/// Rows in a scan that is read at once.
pub const SCAN_ROWS: u32 = 100;
/// Rows in a scan that is read late: about 3 MiB, more than tonic's 2 MiB window for one stream.
pub const LAZY_ROWS: u32 = 3000;
/// How long a late reader leaves its scan alone before it reads.
pub const LAZY_PAUSE: Duration = Duration::from_secs(4);
/// How many scans a second are read late once that fault began. Each holds at most one stream window of unread data, and with the pause about eight are
/// open at a time, which bounds the memory of every contender.
pub const LAZY_PER_SECOND: f64 = 2.0;

/// What a load consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Reads a second.
    pub rate: f64,
    /// How long reads arrive.
    pub length: Duration,
    /// The seed for kinds and rows.
    pub seed: u64,
    /// How many rows the table has.
    pub rows: u32,
    /// From when on some scans are read late; never without it.
    pub lazy_from: Option<Duration>,
}

/// One kind of read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// One row.
    Point(u32),
    /// [`SCAN_ROWS`] rows from this one on, read at once.
    Scan(u32),
    /// [`LAZY_ROWS`] rows from this one on, left unread for [`LAZY_PAUSE`].
    LazyScan(u32),
}

/// A read and its scheduled time after the start of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// After the start.
    pub at: Duration,
    /// What is read.
    pub read: Read,
}

impl Plan {
    /// All arrivals, in order.
    pub fn arrivals(self) -> impl Iterator<Item = Arrival> + Send {
        let mut random = fastrand::Rng::with_seed(self.seed);
        // A quarter of the reads are scans; one in so many of those is read late.
        let one_in = (self.rate / 4.0 / LAZY_PER_SECOND).round().max(1.0);
        let mut scans = 0_u64;
        (0_u32..)
            .map(move |n| Duration::from_secs_f64(f64::from(n) / self.rate))
            .take_while(move |at| *at < self.length)
            .map(move |at| {
                let kind = random.u32(0..4);
                // The row is drawn as a share of the table before the kind matters, so that a fault doesn't change which rows the other reads get.
                let place = random.f64();
                let row =
                    |rows: u32| (place * f64::from(self.rows.saturating_sub(rows) + 1)) as u32;
                if kind != 0 {
                    return Arrival {
                        at,
                        read: Read::Point(row(1)),
                    };
                }
                let late = self.lazy_from.is_some_and(|from| at >= from);
                scans += u64::from(late);
                let read = if late && scans.is_multiple_of(one_in as u64) {
                    Read::LazyScan(row(LAZY_ROWS))
                } else {
                    Read::Scan(row(SCAN_ROWS))
                };
                Arrival { at, read }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            rate: 800.0,
            length: Duration::from_secs(5),
            seed: 7,
            rows: 5000,
            lazy_from: None,
        }
    }

    #[test]
    fn reads_arrive_evenly_at_the_rate_and_a_quarter_are_scans() {
        let arrivals: Vec<_> = plan().arrivals().collect();
        assert_eq!(arrivals.len(), 4000);
        assert_eq!(arrivals[800].at, Duration::from_secs(1));
        let scans = arrivals
            .iter()
            .filter(|arrival| matches!(arrival.read, Read::Scan(_)))
            .count();
        assert!((900..1100).contains(&scans), "{scans} of 4000");
    }

    #[test]
    fn the_same_seed_gives_the_same_reads_and_another_gives_others() {
        let first: Vec<_> = plan().arrivals().collect();
        assert!(plan().arrivals().eq(first.iter().copied()));
        assert!(
            !Plan { seed: 8, ..plan() }
                .arrivals()
                .eq(first.iter().copied())
        );
    }

    #[test]
    fn late_readers_come_at_their_rate_and_only_once_the_fault_began() {
        let lazy = Plan {
            lazy_from: Some(Duration::from_secs(1)),
            ..plan()
        };
        let late: Vec<_> = lazy
            .arrivals()
            .filter(|arrival| matches!(arrival.read, Read::LazyScan(_)))
            .collect();
        assert!(
            late.iter()
                .all(|arrival| arrival.at >= Duration::from_secs(1))
        );
        assert!(
            (6..=10).contains(&late.len()),
            "{} in four seconds",
            late.len()
        );
        let unchanged = lazy
            .arrivals()
            .zip(plan().arrivals())
            .filter(|(a, b)| a == b)
            .count();
        assert_eq!(unchanged + late.len(), 4000);
    }

    #[test]
    fn every_read_lies_within_the_table() {
        let lazy = Plan {
            lazy_from: Some(Duration::ZERO),
            rows: LAZY_ROWS,
            ..plan()
        };
        for arrival in lazy.arrivals() {
            let (first, count) = match arrival.read {
                Read::Point(row) => (row, 1),
                Read::Scan(row) => (row, SCAN_ROWS),
                Read::LazyScan(row) => (row, LAZY_ROWS),
            };
            assert!(first + count <= LAZY_ROWS, "{arrival:?}");
        }
    }
}
