//! The policy beside the simplest one that keeps the same rules: lists, searched from the front.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use steadfast_core::now;
use steadfast_sparse::{Bound, CallId, FlowId, Lane, SparseConfig, SparsePolicy, Watermark};

/// The rules, written down plainly. A flow's credit outlives its calls here, which changes nothing: it is
/// found empty then.
struct Plain {
    config: SparseConfig,
    watermark: usize,
    credit: [(u32, Option<Instant>); FLOWS],
    /// Calls in order of arrival: number, flow, lane, running.
    calls: Vec<(usize, usize, Lane, bool)>,
    /// The flows of each lane in the order of their turns.
    rings: [Vec<usize>; 2],
    streak: u32,
    next: usize,
}

const FLOWS: usize = 5;

impl Plain {
    fn new(config: SparseConfig) -> Self {
        let Watermark::Calls(watermark) = config.watermark else {
            panic!("a number")
        };
        Self {
            config,
            watermark: watermark as usize,
            credit: [(0, None); FLOWS],
            calls: Vec::new(),
            rings: [Vec::new(), Vec::new()],
            streak: 0,
            next: 0,
        }
    }

    fn waiting(&self, lane: Lane, flow: Option<usize>) -> usize {
        let calls = self.calls.iter();
        calls
            .filter(|call| call.2 == lane && !call.3 && flow.is_none_or(|flow| call.1 == flow))
            .count()
    }

    fn running(&self, lane: Lane) -> usize {
        let calls = self.calls.iter();
        calls.filter(|call| call.2 == lane && call.3).count()
    }

    fn bulk_may_run(&self) -> bool {
        self.running(Lane::Bulk) < (self.config.places - self.config.reserve) as usize
    }

    fn has_place(&self) -> bool {
        self.running(Lane::High) + self.running(Lane::Bulk) < self.config.places as usize
    }

    fn arrive(&mut self, flow: usize, now: Instant) -> Result<usize, Bound> {
        let depth = self.calls.iter().filter(|call| call.1 == flow).count();
        let own = self.waiting(Lane::High, Some(flow)) + self.waiting(Lane::Bulk, Some(flow));
        let all = self.waiting(Lane::High, None) + self.waiting(Lane::Bulk, None);
        let behind = self.waiting(Lane::Bulk, Some(flow)) as u32;
        let (mut credit, mut armed) = self.credit[flow];
        let mut promoted = 0;
        if depth < self.watermark {
            (credit, armed) = (self.config.credits, Some(now));
            promoted = behind.min(credit);
            credit -= promoted;
        } else if let (Some(decay), Some(since)) = (self.config.credit_decay, armed) {
            let left = decay.saturating_sub(now - since).as_nanos();
            let worth = u128::from(self.config.credits) * left / decay.as_nanos();
            credit = credit.min(worth as u32);
        }
        let lane = if credit > 0 { Lane::High } else { Lane::Bulk };
        let waits = !(self.has_place() && (lane == Lane::High || self.bulk_may_run()));
        if waits && own >= self.config.max_waiting_per_flow as usize {
            return Err(Bound::Flow);
        }
        if waits && all >= self.config.max_waiting as usize {
            return Err(Bound::Total);
        }
        self.credit[flow] = (credit.saturating_sub(1), armed);
        let mut moved = Vec::new();
        self.calls.retain(|call| {
            let moves = moved.len() < promoted as usize
                && call.1 == flow
                && call.2 == Lane::Bulk
                && !call.3;
            if moves {
                moved.push((call.0, flow, Lane::High, false));
            }
            !moves
        });
        // To the end of its own high lane, whose calls are told apart by their place in the list.
        self.calls.extend(moved);
        self.tidy();
        self.next += 1;
        self.calls.push((self.next, flow, lane, false));
        self.tidy();
        Ok(self.next)
    }

    /// The rings hold the flows that have a call waiting, new ones at the end.
    fn tidy(&mut self) {
        for lane in [Lane::Bulk, Lane::High] {
            let calls = self.calls.iter().filter(|call| call.2 == lane && !call.3);
            let flows: Vec<usize> = calls.map(|call| call.1).collect();
            let ring = &mut self.rings[lane as usize];
            ring.retain(|flow| flows.contains(flow));
            for flow in flows {
                if !ring.contains(&flow) {
                    ring.push(flow);
                }
            }
        }
    }

    fn end(&mut self, call: usize) {
        self.calls.retain(|known| known.0 != call);
        self.tidy();
    }

    fn grant(&mut self) -> Option<(usize, Lane)> {
        let high = !self.rings[0].is_empty();
        let bulk = !self.rings[1].is_empty();
        if !self.has_place() {
            return None;
        }
        let turn = self.config.guard.is_some_and(|guard| self.streak >= guard);
        let lane = if bulk && self.bulk_may_run() && (!high || turn) {
            Lane::Bulk
        } else if high {
            Lane::High
        } else {
            return None;
        };
        self.streak = if lane == Lane::High && bulk {
            self.streak + 1
        } else {
            0
        };
        let flow = self.rings[lane as usize].remove(0);
        let calls = self.calls.iter_mut();
        let mut own = calls.filter(|call| call.1 == flow && call.2 == lane && !call.3);
        let call = own.next().expect("its flow is in the ring");
        call.3 = true;
        let number = call.0;
        if own.next().is_some() {
            self.rings[lane as usize].push(flow);
        }
        Some((number, lane))
    }
}

#[derive(Clone, Debug)]
enum Fact {
    Arrives(usize),
    /// The call at this place in the list of all, if there are any.
    Ends(usize),
    Passes(u64),
}

fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let fact = prop_oneof![
        5 => (0..FLOWS).prop_map(Fact::Arrives),
        4 => (0..64_usize).prop_map(Fact::Ends),
        1 => (0..2_000_u64).prop_map(Fact::Passes),
    ];
    proptest::collection::vec(fact, 0..200)
}

prop_compose! {
    fn configs()(
        places in 1..6_u32,
        reserve in 0..3_u32,
        watermark in 0..6_u32,
        credits in 1..8_u32,
        guard in proptest::option::of(1..4_u32),
        decay in proptest::option::of(1..5_000_u64),
        own in 1..8_u32,
        all in 1..16_u32,
    ) -> SparseConfig {
        SparseConfig {
            places,
            reserve: reserve.min(places - 1),
            watermark: Watermark::Calls(watermark),
            credits,
            guard,
            credit_decay: decay.map(Duration::from_millis),
            max_waiting_per_flow: own,
            max_waiting: all,
            ..SparseConfig::default()
        }
    }
}

/// The policy and the plain one, told the same.
struct Both {
    policy: SparsePolicy,
    plain: Plain,
    ids: Vec<(CallId, usize)>,
}

impl Both {
    /// Hands out the places; both say the same.
    fn grants(&mut self) {
        loop {
            let (ours, theirs) = (self.policy.next_grant(), self.plain.grant());
            let number = |call: CallId| self.ids.iter().find(|known| known.0 == call).unwrap().1;
            assert_eq!(ours.map(|grant| (number(grant.call), grant.lane)), theirs);
            if ours.is_none() {
                break;
            }
        }
    }

    fn check(&self, config: &SparseConfig) {
        let reading = self.policy.reading();
        for lane in [Lane::High, Lane::Bulk] {
            assert_eq!(
                reading.running[lane as usize] as usize,
                self.plain.running(lane)
            );
            assert_eq!(
                reading.waiting[lane as usize] as usize,
                self.plain.waiting(lane, None)
            );
        }
        let [high, bulk] = reading.running;
        assert!(
            high + bulk <= config.places,
            "never more than there are places"
        );
        let for_bulk = config.places - config.reserve;
        assert!(bulk <= for_bulk, "never into the reserve");
        if high + bulk < config.places {
            assert_eq!(
                reading.waiting[0], 0,
                "no place is idle while one could take it"
            );
            assert!(
                reading.waiting[1] == 0 || bulk == for_bulk,
                "nor while bulk could"
            );
        }
        assert!(reading.waiting.iter().sum::<u32>() <= config.max_waiting);
        for flow in self.policy.flows() {
            assert!(flow.waiting.iter().sum::<u32>() <= config.max_waiting_per_flow);
            assert!(
                flow.running + flow.waiting.iter().sum::<u32>() > 0,
                "no idle flow is kept"
            );
            assert!(flow.credit < config.credits);
        }
    }
}

/// Moves those who get a place now.
fn take(policy: &mut SparsePolicy, waiting: &mut Vec<CallId>, running: &mut Vec<CallId>) {
    while let Some(grant) = policy.next_grant() {
        let at = waiting.iter().position(|call| *call == grant.call);
        running.push(waiting.remove(at.expect("it waited, and once")));
    }
}

proptest! {
    /// F2, F3, F4, F6: whatever happens, the policy decides as the plain one, keeps every bound, leaves no
    /// place idle that someone may take, and ends with nothing.
    #[test]
    fn as_the_plain_one(config in configs(), facts in facts()) {
        let mut now = now().into_std();
        let mut both = Both {
            policy: SparsePolicy::new(config.clone()),
            plain: Plain::new(config.clone()),
            ids: Vec::new(),
        };
        for fact in facts {
            match fact {
                Fact::Arrives(flow) => {
                    let ours = both.policy.on_arrival(FlowId::of(flow), now);
                    match (ours, both.plain.arrive(flow, now)) {
                        (Ok(arrival), Ok(number)) => both.ids.push((arrival.call, number)),
                        (ours, theirs) => {
                            prop_assert_eq!(ours.map(|_| 0), theirs.map(|_| 0));
                        }
                    }
                }
                Fact::Ends(at) if !both.ids.is_empty() => {
                    let at = at % both.ids.len();
                    let (call, number) = both.ids.remove(at);
                    both.policy.on_end(call);
                    both.plain.end(number);
                }
                Fact::Ends(_) => {}
                Fact::Passes(millis) => now += Duration::from_millis(millis),
            }
            both.grants();
            both.check(&config);
        }
        while let Some((call, number)) = both.ids.pop() {
            both.policy.on_end(call);
            both.plain.end(number);
            both.grants();
        }
        both.check(&config);
        prop_assert_eq!(both.policy.reading().flows, 0);
    }

    /// F5: a call that gets a place or goes away never comes up again, and one that waits always does.
    #[test]
    fn every_call_is_granted_once(config in configs(), facts in facts()) {
        let mut policy = SparsePolicy::new(SparseConfig {
            max_waiting: 1_000,
            max_waiting_per_flow: 1_000,
            ..config
        });
        let now = now().into_std();
        let (mut waiting, mut running) = (Vec::new(), Vec::new());
        for fact in facts {
            match fact {
                Fact::Arrives(flow) => {
                    waiting.push(policy.on_arrival(FlowId::of(flow), now).unwrap().call);
                }
                Fact::Ends(at) if !waiting.is_empty() => {
                    let call = waiting.remove(at % waiting.len());
                    policy.on_end(call);
                }
                Fact::Ends(_) | Fact::Passes(_) => {}
            }
            take(&mut policy, &mut waiting, &mut running);
        }
        while let Some(call) = running.pop() {
            policy.on_end(call);
            take(&mut policy, &mut waiting, &mut running);
        }
        prop_assert!(waiting.is_empty());
    }
}
