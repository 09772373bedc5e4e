//! What an interactive caller's latency is beside busy ones, on the layer itself: 16 places, calls of 12.4 s ±
//! 3 % on a paused clock (a thousand times as long as what is modelled, since the clock counts milliseconds),
//! and flows in a closed loop.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use http::{Request, Response};
use http_body_util::Empty;
use steadfast_core::{BoxError, now};
use steadfast_sparse::{FlowId, SparseConfig, SparseFlow, SparseFlowLayer, Watermark};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, Service, util::BoxCloneSyncService};

/// How long a call holds its place.
#[derive(Clone, Copy)]
struct Takes {
    mean: Duration,
    off: f64,
}

const FLOOR: Duration = Duration::from_millis(12_400);
/// How many mean calls the warm-up takes: until then busy flows have their first credit to spend.
const WARM_UP: u32 = 150;
const CALL: Takes = Takes {
    mean: FLOOR,
    off: 0.03,
};

type Slow = BoxCloneSyncService<Request<()>, Response<Empty<bytes::Bytes>>, BoxError>;

/// When a flow sends its calls.
#[derive(Clone, Copy)]
enum Pattern {
    Keeps(u32),
    Bursts(u32, Duration),
    Walks(u32, Duration),
    Thinks(u32, Duration),
}

#[derive(Clone, Copy)]
struct Group {
    flows: u32,
    pattern: Pattern,
    takes: Takes,
}

/// What came of a group: latencies in order, in floors of their own mean.
struct Came {
    latencies: Vec<Duration>,
    ended: usize,
    mean: Duration,
}

impl Came {
    fn at(&self, quantile: f64) -> f64 {
        let at = (self.latencies.len() - 1) as f64 * quantile;
        self.latencies[at.round() as usize].as_secs_f64() / self.mean.as_secs_f64()
    }

    fn p50(&self) -> f64 {
        self.at(0.5)
    }

    fn p99(&self) -> f64 {
        self.at(0.99)
    }

    /// Those that ended, also when they began before.
    fn calls(&self) -> f64 {
        self.ended as f64
    }
}

/// When each call began and ended.
type Calls = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A flow at work.
#[derive(Clone)]
struct Caller {
    service: SparseFlow<Slow>,
    flow: FlowId,
    takes: Takes,
    calls: Calls,
}

impl Caller {
    async fn call(&mut self) {
        let mut request = Request::new(());
        request.extensions_mut().insert(self.flow);
        request.extensions_mut().insert(self.takes);
        let begun = now();
        drop(self.service.call(request).await.expect("there is room"));
        self.calls.lock().unwrap().push((begun, now()));
    }

    async fn run(self, pattern: Pattern, mut random: Rng) {
        match pattern {
            Pattern::Keeps(calls) => {
                let mut loops = JoinSet::new();
                for _ in 0..calls {
                    let mut own = self.clone();
                    loops.spawn(async move {
                        loop {
                            own.call().await;
                        }
                    });
                }
                loops.join_all().await;
            }
            Pattern::Thinks(callers, mean) => {
                let mut loops = JoinSet::new();
                for _ in 0..callers {
                    let (mut own, mut random) = (self.clone(), random.fork());
                    loops.spawn(async move {
                        loop {
                            sleep(exponential(&mut random, mean)).await;
                            own.call().await;
                        }
                    });
                }
                loops.join_all().await;
            }
            Pattern::Bursts(calls, pause) => loop {
                let mut burst = JoinSet::new();
                for _ in 0..calls {
                    let mut own = self.clone();
                    burst.spawn(async move { own.call().await });
                }
                burst.join_all().await;
                sleep(pause).await;
            },
            Pattern::Walks(most, step) => self.walk(most, step, random).await,
        }
    }

    /// Keeps a number outstanding that walks at random from 0 to `most`.
    async fn walk(&self, most: u32, step: Duration, mut random: Rng) {
        let mut open = JoinSet::new();
        let mut target = 0_u32;
        loop {
            let next = sleep(exponential(&mut random, step));
            tokio::pin!(next);
            loop {
                while open.len() < target as usize {
                    let mut own = self.clone();
                    open.spawn(async move { own.call().await });
                }
                tokio::select! {
                    () = &mut next => break,
                    Some(_) = open.join_next() => {}
                }
            }
            target = if random.bool() {
                target.saturating_sub(1)
            } else {
                (target + 1).min(most)
            };
        }
    }
}

fn exponential(random: &mut Rng, mean: Duration) -> Duration {
    mean.mul_f64(-(1.0 - random.f64()).ln())
}

fn slow(seed: u64) -> Slow {
    let random = Arc::new(Mutex::new(Rng::with_seed(seed)));
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<()>| {
        let takes: Takes = *request.extensions().get().unwrap();
        let off = takes.off * (2.0 * random.lock().unwrap().f64() - 1.0);
        async move {
            sleep(takes.mean.mul_f64(1.0 + off)).await;
            Ok(Response::new(Empty::new()))
        }
    }))
}

/// Runs these groups for so many mean calls, after as many as a warm-up takes.
async fn run<const N: usize>(config: SparseConfig, calls: u32, groups: [Group; N]) -> [Came; N] {
    let layer = SparseFlowLayer::client(SparseConfig {
        max_waiting: 1_000_000,
        ..config
    })
    .unwrap();
    let service = layer.layer(slow(1));
    let mut random = Rng::with_seed(2);
    let longest = groups.iter().map(|group| group.takes.mean).max().unwrap();
    let from = now() + longest * WARM_UP;
    let mut callers = JoinSet::new();
    let all = groups.map(|group| {
        let calls = Calls::default();
        for _ in 0..group.flows {
            let caller = Caller {
                service: service.clone(),
                flow: FlowId::of(random.u64(..)),
                takes: group.takes,
                calls: calls.clone(),
            };
            let (begins, random) = (longest.mul_f64(random.f64()), random.fork());
            callers.spawn(async move {
                sleep(begins).await;
                caller.run(group.pattern, random).await;
            });
        }
        (calls, group.takes.mean)
    });
    sleep(longest * (WARM_UP + calls)).await;
    callers.shutdown().await;
    all.map(|(calls, mean)| {
        let calls = calls.lock().unwrap();
        let measured = calls.iter().filter(|(begun, _)| *begun >= from);
        let mut latencies: Vec<_> = measured.map(|(begun, ended)| *ended - *begun).collect();
        latencies.sort_unstable();
        let ended = calls.iter().filter(|(_, ended)| *ended >= from).count();
        Came {
            latencies,
            ended,
            mean,
        }
    })
}

fn group(flows: u32, pattern: Pattern) -> Group {
    let takes = CALL;
    Group {
        flows,
        pattern,
        takes,
    }
}

fn bulk(flows: u32) -> Group {
    group(flows, Pattern::Keeps(16))
}

fn watermark(calls: u32) -> SparseConfig {
    SparseConfig {
        watermark: Watermark::Calls(calls),
        ..SparseConfig::default()
    }
}

/// Everyone is always sparse, so all are in one ring, by flow.
fn one_ring() -> SparseConfig {
    watermark(1_000_000)
}

async fn victim(config: SparseConfig, window: u32) -> Came {
    let groups = [group(1, Pattern::Keeps(window)), bulk(16)];
    let [victim, _] = run(config, 600, groups).await;
    victim
}

fn near(what: &str, ms: f64, came: f64, tolerance: f64) {
    let ours = came * 12.4;
    let off = (ours / ms - 1.0).abs();
    assert!(off <= tolerance, "{what}: {ours:.1} ms for {ms}");
}

/// F2: below the watermark a caller's latency is the floor, beside 16 flows that keep 16 calls outstanding; above it
/// is a cliff.
#[tokio::test(start_paused = true)]
async fn the_floor_below_the_watermark() {
    for window in 1..=4 {
        let came = victim(watermark(4), window).await;
        assert!(came.p50() <= 1.15, "{window}: {}", came.p50());
        assert!(came.p99() <= 1.5, "{window}: {}", came.p99());
        near("watermark 4", 13.0, came.p50(), 0.05);
    }
    let cliff = victim(watermark(4), 5).await.p50();
    assert!(cliff >= 4.0, "{cliff}");
    near("watermark 4, window 5", 65.5, cliff, 0.05);
}

/// F2: one ring of flows leaves the same caller at four times the floor.
#[tokio::test(start_paused = true)]
async fn one_ring_of_flows() {
    for (window, ms) in [(1, 25.4), (4, 52.4)] {
        near("one ring", ms, victim(one_ring(), window).await.p50(), 0.05);
    }
    let ours = victim(watermark(4), 4).await.p50();
    let ratio = victim(one_ring(), 4).await.p50() / ours;
    assert!(ratio >= 3.5, "{ratio}");
}

/// F2: a watermark of 1 helps only a caller with one call at a time.
#[tokio::test(start_paused = true)]
async fn exact_zero() {
    for (window, ms) in [(1, 13.0), (2, 26.1), (4, 52.4)] {
        near(
            "exact zero",
            ms,
            victim(watermark(1), window).await.p50(),
            0.05,
        );
    }
}

/// F3: 32 flows with one call at a time leave busy ones a fifth with the guard, and nothing without it; it costs a
/// lone interactive caller nothing.
#[tokio::test(start_paused = true)]
async fn the_guard_keeps_bulk_alive() {
    let share = async |guard| {
        let config = SparseConfig {
            guard,
            ..SparseConfig::default()
        };
        let groups = [group(32, Pattern::Keeps(1)), bulk(8)];
        let [serial, bulk] = run(config, 300, groups).await;
        bulk.calls() / (bulk.calls() + serial.calls())
    };
    let with = share(Some(4)).await;
    assert!((0.18..0.22).contains(&with), "{with}");
    let without = share(None).await;
    assert!(without < 0.001, "{without}");
    let unguarded = SparseConfig {
        guard: None,
        ..SparseConfig::default()
    };
    let (with, without) = (victim(watermark(4), 4).await, victim(unguarded, 4).await);
    assert!(
        with.p50() <= without.p50() * 1.02,
        "{} {}",
        with.p50(),
        without.p50()
    );
}

/// F2: callers that pause keep the floor too, with a watermark of 1 as with 4.
#[tokio::test(start_paused = true)]
async fn victims_with_gaps() {
    let pause = Duration::from_secs(50);
    for mark in [1, 4] {
        for pattern in [Pattern::Bursts(4, pause), Pattern::Walks(3, pause)] {
            let groups = [group(1, pattern), bulk(16)];
            let [victim, _] = run(watermark(mark), 1_000, groups).await;
            assert!(victim.p50() <= 1.15, "watermark {mark}: {}", victim.p50());
        }
    }
}

/// F4: order can't move long calls out of the way, a reserved place can: 5 s calls beside calls of 500 s.
#[tokio::test(start_paused = true)]
async fn a_reserve_for_short_calls_beside_long_ones() {
    let outcome = async |reserve| {
        let config = SparseConfig {
            reserve,
            guard: None,
            ..SparseConfig::default()
        };
        let takes = |seconds| Takes {
            mean: Duration::from_secs(seconds),
            off: 0.2,
        };
        let reads = Group {
            flows: 4,
            pattern: Pattern::Thinks(2, Duration::from_secs(50)),
            takes: takes(5),
        };
        let scans = Group {
            takes: takes(500),
            ..bulk(8)
        };
        let [reads, scans] = run(config, 300, [reads, scans]).await;
        (reads.p99() * 5.0, scans.calls())
    };
    let (without, scans_without) = outcome(0).await;
    let (with, scans_with) = outcome(1).await;
    assert!(
        (129.0 * 0.8..129.0 * 1.2).contains(&without),
        "{without} ms"
    );
    assert!((19.0 * 0.8..25.0).contains(&with), "{with} ms");
    let cost = 1.0 - scans_with / scans_without;
    assert!((0.02..0.06).contains(&cost), "{cost}");
}

/// F8: as many calls get through as with one ring of flows.
#[tokio::test(start_paused = true)]
async fn throughput_is_that_of_one_ring() {
    let throughput = async |config| {
        let groups = [group(4, Pattern::Keeps(3)), bulk(16)];
        let [few, many] = run(config, 300, groups).await;
        few.calls() + many.calls()
    };
    let (ours, ring) = (throughput(watermark(4)).await, throughput(one_ring()).await);
    assert!((ours / ring - 1.0).abs() < 0.02, "{ours} {ring}");
}

/// F9: what isn't claimed, with its figure: a caller that comes as many flows is sparse in each of them. The guard
/// keeps a fifth for the others.
#[tokio::test(start_paused = true)]
async fn a_caller_that_splits_its_identity_gets_its_way() {
    let groups = [group(12, Pattern::Keeps(3)), bulk(8)];
    let [cheat, honest] = run(SparseConfig::default(), 300, groups).await;
    let share = cheat.calls() / (cheat.calls() + honest.calls());
    assert!((0.78..0.82).contains(&share), "{share}");
}
