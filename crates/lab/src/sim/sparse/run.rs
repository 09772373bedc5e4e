//! The runs: which flows meet under which disciplines.

use std::time::Duration;

use super::{
    model::{Group, Model, Pattern},
    row::{Discipline, Row, Variant},
};

/// The busy flows of the sweep.
pub(super) const BULK: [u32; 3] = [4, 8, 16];
/// The windows of the interactive flow.
pub(super) const WINDOWS: std::ops::RangeInclusive<u32> = 1..=8;
pub(super) const SWEEP: [Discipline; 5] = [
    Discipline::OneRing,
    Discipline::ExactZero,
    Discipline::Watermark(2),
    Discipline::Watermark(4),
    Discipline::InService(4),
];
/// Beside 32 flows with one call at a time.
pub(super) const GUARDS: [u32; 6] = [0, 1, 2, 4, 8, 16];
pub(super) const RESERVES: [u32; 4] = [0, 1, 2, 4];
pub(super) const GAPS: [Variant; 2] = [Variant::Bursts, Variant::Walk];

/// Calls that a busy flow keeps outstanding.
const BULK_WINDOW: u32 = 16;
/// What a call takes in the sweep.
const CALL: Duration = Duration::from_micros(12_400);
const JITTER: f64 = 0.03;
const PAUSE: Duration = Duration::from_millis(50);

/// How long, and with which chances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// What is measured of each run.
    pub(super) length: Duration,
    /// What goes before it, in calls of the flows that take longest.
    pub(super) warm_up: u32,
    pub(super) seed: u64,
}

/// As long as the first credit of all busy flows lasts, and longer than the longest calls need to mix.
pub(super) const WARM_UP: u32 = 150;

/// Everything, in the order of the tables; says when each row is there.
pub(super) fn all(options: Options, mut done: impl FnMut(&Row)) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        done(&row);
        rows.push(row);
    };
    for bulk in BULK {
        for discipline in SWEEP {
            WINDOWS.for_each(|window| add(sweep(options, discipline, bulk, window)));
        }
    }
    for guard in GUARDS {
        add(serial(options, guard));
        add(sweep(options, Discipline::Guard(guard), 8, 4));
    }
    add(long(options, Discipline::OneRing));
    RESERVES
        .into_iter()
        .for_each(|places| add(long(options, Discipline::Reserve(places))));
    for discipline in [Discipline::ExactZero, Discipline::Watermark(4)] {
        GAPS.into_iter()
            .for_each(|gaps| add(with_gaps(options, discipline, gaps)));
    }
    [0, 4]
        .into_iter()
        .for_each(|guard| add(shaped(options, guard)));
    rows
}

/// How many rows that is.
pub(super) const ROWS: usize =
    BULK.len() * SWEEP.len() * 8 + 2 * GUARDS.len() + 1 + RESERVES.len() + 2 * GAPS.len() + 2;

/// One interactive flow that keeps `window` outstanding.
pub(super) fn sweep(options: Options, discipline: Discipline, bulk: u32, window: u32) -> Row {
    let victim = short(1, Pattern::Keeps(window));
    cell(
        options,
        (discipline, Variant::Plain),
        victim,
        busy(bulk),
        window,
    )
}

/// 32 flows with one call at a time, beside 8 busy ones.
pub(super) fn serial(options: Options, guard: u32) -> Row {
    let discipline = (Discipline::Guard(guard), Variant::Plain);
    let serial = short(32, Pattern::Keeps(1));
    cell(options, discipline, serial, busy(8), 1)
}

/// Four interactive flows that read for 5 ms and think for 50, beside 8 busy ones whose calls take half a second.
pub(super) fn long(options: Options, discipline: Discipline) -> Row {
    let reads = Group {
        flows: 4,
        pattern: Pattern::Thinks(2, PAUSE),
        service: Duration::from_millis(5),
        jitter: 0.2,
    };
    let scans = Group {
        service: Duration::from_millis(500),
        jitter: 0.2,
        ..busy(8)
    };
    // Calls that take 40 times as long need a longer look.
    let options = Options {
        length: options.length * 10,
        ..options
    };
    cell(options, (discipline, Variant::LongCalls), reads, scans, 2)
}

/// One interactive flow that is idle now and then.
pub(super) fn with_gaps(options: Options, discipline: Discipline, gaps: Variant) -> Row {
    let (pattern, window) = match gaps {
        Variant::Walk => (Pattern::Walks(3, PAUSE), 3),
        _ => (Pattern::Bursts(4, PAUSE), 4),
    };
    cell(
        options,
        (discipline, gaps),
        short(1, pattern),
        busy(16),
        window,
    )
}

/// A flow that plays the watermark instead of an interactive one.
pub(super) fn shaped(options: Options, guard: u32) -> Row {
    let pattern = Pattern::Shapes {
        window: 64,
        credits: 64,
        watermark: 4,
    };
    let discipline = (Discipline::Guard(guard), Variant::Shaped);
    cell(options, discipline, short(1, pattern), busy(8), 64)
}

fn short(flows: u32, pattern: Pattern) -> Group {
    Group {
        flows,
        pattern,
        service: CALL,
        jitter: JITTER,
    }
}

fn busy(flows: u32) -> Group {
    short(flows, Pattern::Keeps(BULK_WINDOW))
}

fn cell(
    options: Options,
    discipline: (Discipline, Variant),
    victim: Group,
    bulk: Group,
    window: u32,
) -> Row {
    let one = Group { flows: 1, ..victim };
    let alone = Options {
        length: options.length / 4,
        ..options
    };
    let floor = model(alone, discipline.0, vec![one]);
    let bulk_flows = bulk.flows;
    let model = model(options, discipline.0, vec![victim, bulk]);
    let (victim, bulk) = (model.measured(0), model.measured(1));
    let total = (victim.calls + bulk.calls) as f64;
    Row {
        discipline,
        bulk_flows,
        window,
        p50_ms: victim.ms(0.5),
        p99_ms: victim.ms(0.99),
        floor_ms: floor.measured(0).ms(0.5),
        aggressor_p50_ms: (bulk.calls > 0).then(|| bulk.ms(0.5)),
        rearm_share: victim.rearmed as f64 / victim.arrivals.max(1) as f64,
        credit_end: model.credit(0),
        bulk_share: bulk.calls as f64 / total,
        total_per_s: total / options.length.as_secs_f64(),
    }
}

fn model(options: Options, discipline: Discipline, groups: Vec<Group>) -> Model {
    let longest = groups.iter().map(|group| group.service).max();
    let longest = longest.unwrap_or_default();
    let warm_up = longest * options.warm_up;
    let mut model = Model::new(discipline.policy(), groups, options.seed);
    model.run(longest, warm_up, warm_up + options.length);
    model
}
