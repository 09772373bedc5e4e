//! The decisions, on made-up time.

use std::time::{Duration, Instant};

use steadfast_core::now;
use steadfast_sparse::{Bound, CallId, Depth, FlowId, Lane, SparseConfig, SparsePolicy, Watermark};

/// A policy whose flows have letters for names. What has a place keeps it until it is ended.
struct Line {
    policy: SparsePolicy,
    waiting: Vec<(CallId, char)>,
    running: Vec<(CallId, char)>,
    now: Instant,
}

impl Line {
    fn new(config: SparseConfig) -> Self {
        Self {
            policy: SparsePolicy::new(config),
            waiting: Vec::new(),
            running: Vec::new(),
            now: now().into_std(),
        }
    }

    /// One place, which a call of a flow of its own holds.
    fn busy(config: SparseConfig) -> Self {
        let mut line = Self::new(SparseConfig {
            places: 1,
            ..config
        });
        line.arrive('z', 1);
        assert_eq!(line.granted().to_ascii_uppercase(), "Z");
        line
    }

    /// Some calls of a flow arrive; says whether the last one found it sparse.
    fn arrive(&mut self, flow: char, calls: u32) -> bool {
        (0..calls).fold(false, |_, _| self.try_arrive(flow).unwrap())
    }

    fn try_arrive(&mut self, flow: char) -> Result<bool, Bound> {
        let arrival = self.policy.on_arrival(FlowId::of(flow), self.now)?;
        self.waiting.push((arrival.call, flow));
        Ok(arrival.rearmed)
    }

    /// The flows of those who get a place now, in order; capitals for those from the high lane.
    fn granted(&mut self) -> String {
        let mut order = String::new();
        while let Some(grant) = self.policy.next_grant() {
            let waited = self
                .waiting
                .iter()
                .position(|(call, _)| *call == grant.call);
            let entry = self.waiting.remove(waited.expect("it waited"));
            self.running.push(entry);
            order.push(match grant.lane {
                Lane::High => entry.1.to_ascii_uppercase(),
                Lane::Bulk => entry.1,
            });
        }
        order
    }

    /// The oldest call of the flow that has a place ends.
    fn end(&mut self, flow: char) -> String {
        let at = self.running.iter().position(|(_, of)| *of == flow).unwrap();
        let (call, _) = self.running.remove(at);
        self.policy.on_end(call);
        self.granted()
    }

    /// The flow's newest call that waits goes away.
    fn drop_waiting(&mut self, flow: char) {
        let at = self
            .waiting
            .iter()
            .rposition(|(_, of)| *of == flow)
            .unwrap();
        let (call, _) = self.waiting.remove(at);
        self.policy.on_end(call);
    }

    /// One after the other ends: the order in which all that wait are served.
    fn drain(&mut self) -> String {
        let mut order = String::new();
        while let Some(&(_, flow)) = self.running.first() {
            order += &self.end(flow);
        }
        assert!(self.waiting.is_empty());
        assert_eq!(
            self.policy.reading(),
            SparsePolicy::new(SparseConfig::default()).reading()
        );
        order
    }

    fn credit(&self, flow: char) -> u32 {
        let mut flows = self.policy.flows();
        flows.find(|it| it.flow == FlowId::of(flow)).unwrap().credit
    }
}

fn config() -> SparseConfig {
    SparseConfig::default()
}

fn without_guard() -> SparseConfig {
    SparseConfig {
        guard: None,
        ..config()
    }
}

/// F2: a flow with fewer than 4 calls outstanding gets new credit; waiting and running ones count, the one
/// that arrives doesn't.
#[test]
fn a_flow_below_the_watermark_is_sparse() {
    let mut line = Line::busy(config());
    for outstanding in 0..8 {
        assert_eq!(
            line.arrive('a', 1),
            outstanding < 4,
            "{outstanding} outstanding"
        );
    }
    // Running instead of waiting, it is the same.
    let mut line = Line::new(config());
    for outstanding in 0..8 {
        assert_eq!(
            line.arrive('a', 1),
            outstanding < 4,
            "{outstanding} outstanding"
        );
        line.granted();
    }
    // And of both kinds.
    let mut line = Line::busy(SparseConfig {
        places: 1,
        ..config()
    });
    line.arrive('a', 3);
    assert_eq!(line.end('z'), "A");
    assert!(line.arrive('a', 1), "one runs and two wait");
    assert!(!line.arrive('a', 1), "one runs and three wait");
}

/// F2: a watermark of 1 is the rule of a flow that must be found empty.
#[test]
fn watermark_one_is_exact_zero() {
    let mut line = Line::busy(SparseConfig {
        watermark: Watermark::Calls(1),
        ..config()
    });
    assert!(line.arrive('a', 1));
    assert!(!line.arrive('a', 1));
    line.drop_waiting('a');
    assert!(!line.arrive('a', 1));
    line.drop_waiting('a');
    line.drop_waiting('a');
    assert!(line.arrive('a', 1));
}

/// F2: new credit is 64 calls; they go first, and what comes after them goes to bulk.
#[test]
fn credit_is_spent_call_by_call() {
    let mut line = Line::busy(without_guard());
    line.arrive('b', 70);
    // The first four arrivals each found it sparse.
    assert_eq!(line.credit('b'), 0);
    let reading = line.policy.reading();
    assert_eq!(
        reading.waiting,
        [67, 3],
        "the last that found it sparse, and 63 more"
    );
    line.arrive('a', 1);
    assert_eq!(line.credit('a'), 63);
    let order = line.drain();
    assert_eq!(order, format!("BA{}bbb", "B".repeat(66)));
}

/// F2: credit comes back in full, and doesn't add up.
#[test]
fn credit_is_set_and_not_added() {
    let mut line = Line::new(config());
    for _ in 0..10 {
        line.arrive('a', 1);
        line.granted();
        assert_eq!(line.credit('a'), 63);
        line.arrive('a', 1);
        line.granted();
        line.end('a');
        line.end('a');
    }
}

/// F2: calls of a flow that wait in bulk when it is found sparse go over to the high lane, before the new
/// one, and each costs credit.
#[test]
fn a_sparse_flow_is_promoted() {
    let mut line = Line::busy(SparseConfig {
        credits: 6,
        ..without_guard()
    });
    line.arrive('b', 12);
    assert_eq!(line.policy.reading().waiting, [9, 3]);
    assert_eq!(line.end('z'), "B");
    for _ in 0..8 {
        line.end('b');
    }
    // One runs, and the three in bulk wait: not sparse.
    line.arrive('c', 1);
    assert!(!line.arrive('b', 1));
    line.drop_waiting('b');
    line.drop_waiting('b');
    assert!(line.arrive('b', 1));
    assert_eq!(line.policy.reading().waiting, [4, 0]);
    assert_eq!(
        line.credit('b'),
        3,
        "six, less two that were promoted and the new one"
    );
    assert_eq!(line.drain(), "CBBB");
}

/// F2: no more are promoted than there is credit for.
#[test]
fn promotion_ends_with_the_credit() {
    let mut line = Line::busy(SparseConfig {
        watermark: Watermark::Calls(4),
        credits: 2,
        ..without_guard()
    });
    line.arrive('b', 6);
    assert_eq!(line.policy.reading().waiting, [5, 1]);
    for _ in 0..3 {
        line.drop_waiting('b');
    }
    // All three are high; none waits in bulk that could be promoted.
    assert!(line.arrive('b', 1));
    assert_eq!(line.credit('b'), 1);
    let mut line = Line::busy(SparseConfig {
        watermark: Watermark::Calls(3),
        credits: 1,
        ..without_guard()
    });
    line.arrive('b', 5);
    assert_eq!(line.policy.reading().waiting, [3, 2]);
    assert_eq!(line.end('z'), "B");
    line.end('b');
    line.end('b');
    line.drop_waiting('b');
    // One runs and one waits in bulk: that one is promoted, and the new one finds the credit spent.
    assert!(line.arrive('b', 1));
    assert_eq!(line.policy.reading().waiting, [1, 1]);
    assert_eq!(line.credit('b'), 0);
}

/// F2: the wrong definition, which looks at what runs: a flow with everything waiting is found sparse.
#[test]
fn depth_in_service_finds_everyone_sparse() {
    let mut line = Line::busy(config());
    assert!(line.arrive('a', 4));
    assert!(!line.arrive('a', 60), "with the right one it isn't");
    let mut line = Line::busy(config());
    line.policy = SparsePolicy::new(SparseConfig {
        places: 1,
        ..config()
    })
    .with_depth(Depth::InService);
    assert!(line.arrive('a', 60));
}

/// F2: options: credit that decays, and a watermark that follows the places.
#[test]
fn options() {
    let mut line = Line::new(SparseConfig {
        credit_decay: Some(Duration::from_secs(10)),
        credits: 10,
        places: 4,
        ..config()
    });
    line.arrive('a', 4);
    line.granted();
    assert_eq!(line.credit('a'), 9);
    line.now += Duration::from_secs(5);
    assert!(!line.arrive('a', 1));
    assert_eq!(line.credit('a'), 4, "half of ten are left, less one");
    line.now += Duration::from_secs(4);
    line.arrive('a', 1);
    assert_eq!(line.credit('a'), 0, "one of ten is left, and it is spent");
    line.now += Duration::from_secs(3600);
    line.arrive('a', 1);
    assert_eq!(line.policy.reading().waiting, [2, 1]);

    for (places, divisor, watermark) in [(16, 4, 4), (64, 4, 16), (3, 4, 1)] {
        let mut line = Line::new(SparseConfig {
            places,
            watermark: Watermark::PlacesOver(divisor),
            ..config()
        });
        let sparse = (0..20).take_while(|_| line.arrive('a', 1)).count();
        assert_eq!(sparse, watermark);
    }
}

/// F3: each lane is a ring of flows, and one dispatch takes one call of the flow at the head.
#[test]
fn rings_of_flows() {
    let mut line = Line::busy(SparseConfig {
        credits: 1,
        watermark: Watermark::Calls(1),
        ..without_guard()
    });
    line.arrive('a', 5);
    line.arrive('b', 3);
    line.arrive('c', 1);
    // The first of each has credit; the rest of a and b take turns.
    assert_eq!(line.drain(), "ABCabab".to_owned() + "aa");
}

/// F3: a flow that comes back to a ring goes to its end.
#[test]
fn a_flow_that_comes_back_waits_its_turn() {
    let mut line = Line::busy(SparseConfig {
        watermark: Watermark::Calls(0),
        ..config()
    });
    line.arrive('a', 1);
    line.arrive('b', 2);
    line.drop_waiting('a');
    line.arrive('a', 1);
    assert_eq!(line.drain(), "bab");
}

/// F3: after four of the high lane one of bulk, while bulk waits.
#[test]
fn the_guard_lets_bulk_in() {
    let mut line = Line::busy(SparseConfig {
        credits: 1,
        ..config()
    });
    line.arrive('b', 8);
    assert_eq!(line.policy.reading().waiting, [4, 4]);
    for flow in 'e'..='m' {
        line.arrive(flow, 1);
    }
    assert_eq!(line.drain(), "BEFGbHIJKbLMBBbBb");
}

/// F3: without the guard the high lane goes first as long as there is anyone in it.
#[test]
fn without_the_guard_bulk_starves() {
    let mut line = Line::busy(SparseConfig {
        credits: 1,
        ..without_guard()
    });
    line.arrive('b', 5);
    for flow in 'e'..='m' {
        line.arrive(flow, 1);
    }
    assert_eq!(line.drain(), "BEFGHIJKLMBBBb");
}

/// F3: high dispatches while no bulk waits don't count towards bulk's turn.
#[test]
fn the_guard_counts_while_bulk_waits() {
    let mut line = Line::busy(SparseConfig {
        credits: 1,
        watermark: Watermark::Calls(1),
        ..config()
    });
    for flow in 'e'..='m' {
        line.arrive(flow, 1);
    }
    assert_eq!(line.end('z'), "E");
    for next in ["F", "G", "H", "I"] {
        let flow = line.running[0].1;
        assert_eq!(line.end(flow), next);
    }
    line.arrive('b', 2);
    assert_eq!(line.drain(), "JKLMbB");
}

/// F4: bulk may not take the reserve, and the high lane may.
#[test]
fn the_reserve_is_for_the_high_lane() {
    let mut line = Line::new(SparseConfig {
        places: 4,
        reserve: 1,
        credits: 1,
        watermark: Watermark::Calls(1),
        ..config()
    });
    line.arrive('b', 1);
    assert_eq!(line.granted(), "B");
    line.arrive('b', 5);
    assert_eq!(
        line.granted(),
        "bbb",
        "high ones don't count towards what bulk may have"
    );
    assert_eq!(line.end('b'), "", "the high one's place is the reserve now");
    line.arrive('a', 1);
    assert_eq!(line.granted(), "A");
    assert_eq!(line.end('a'), "");
    assert_eq!(line.end('b'), "b", "one of bulk for one of bulk");
    assert_eq!(line.policy.reading().running, [0, 3]);
}

/// F5: who goes away while it waits leaves the queue at once, from wherever in it; the others keep their
/// order.
#[test]
fn a_dropped_call_leaves_the_queue() {
    let mut line = Line::busy(SparseConfig {
        watermark: Watermark::Calls(0),
        ..config()
    });
    for flow in ['a', 'b', 'a', 'c', 'a', 'b'] {
        line.arrive(flow, 1);
    }
    let middle = line.waiting[2].0;
    line.policy.on_end(middle);
    line.waiting.remove(2);
    line.drop_waiting('c');
    assert_eq!(line.policy.reading().waiting, [0, 4]);
    assert_eq!(line.drain(), "abab");
}

/// F5: a call that ends twice, or was never there, changes nothing.
#[test]
fn an_unknown_call_is_over() {
    let mut line = Line::new(config());
    line.arrive('a', 1);
    line.granted();
    let (call, _) = line.running[0];
    line.policy.on_end(call);
    let before = line.policy.reading();
    line.policy.on_end(call);
    assert_eq!(line.policy.reading(), before);
}

/// F6: 256 of a flow may wait; the next is refused, and that changes nothing. Other flows come in.
#[test]
fn the_bound_of_a_flow() {
    let mut line = Line::busy(config());
    line.arrive('b', 256);
    let before = (line.policy.reading(), line.credit('b'));
    assert_eq!(line.try_arrive('b'), Err(Bound::Flow));
    assert_eq!((line.policy.reading(), line.credit('b')), before);
    line.arrive('a', 1);
    assert_eq!(line.policy.reading().waiting.iter().sum::<u32>(), 257);
    line.drop_waiting('b');
    line.arrive('b', 1);
    assert_eq!(line.try_arrive('b'), Err(Bound::Flow));
}

/// F6: 4,096 may wait in all; the next is refused, whosever it is, and leaves no trace of its flow.
#[test]
fn the_bound_of_all() {
    let mut line = Line::busy(config());
    for flow in 'a'..='p' {
        line.arrive(flow, 256);
    }
    let before = line.policy.reading();
    assert_eq!(before.waiting.iter().sum::<u32>(), 4096);
    assert_eq!(line.try_arrive('y'), Err(Bound::Total));
    assert_eq!(line.try_arrive('z'), Err(Bound::Total));
    assert_eq!(line.policy.reading(), before);
}

/// F6: the bounds are about waiting: a call that finds its place free is let in.
#[test]
fn the_bounds_are_about_waiting() {
    let mut line = Line::new(SparseConfig {
        places: 2,
        reserve: 1,
        credits: 1,
        watermark: Watermark::Calls(1),
        max_waiting_per_flow: 2,
        max_waiting: 3,
        ..config()
    });
    line.arrive('b', 1);
    line.granted();
    line.arrive('b', 2);
    assert_eq!(line.granted(), "b");
    line.arrive('c', 2);
    assert_eq!(line.granted(), "");
    assert_eq!(line.try_arrive('d'), Err(Bound::Total));
    assert_eq!(
        line.end('b'),
        "C",
        "the high one's place is free, for the high lane"
    );
    line.drop_waiting('b');
    assert_eq!(line.end('c'), "");
    line.arrive('b', 2);
    assert_eq!(
        line.try_arrive('b'),
        Err(Bound::Flow),
        "it would wait behind bulk's share"
    );
    line.arrive('a', 1);
    assert_eq!(line.granted(), "A", "three wait, and this one need not");
}

/// F6: an idle flow costs nothing.
#[test]
fn an_idle_flow_is_forgotten() {
    let mut line = Line::new(config());
    for flow in 0..100_000 {
        let arrival = line.policy.on_arrival(FlowId::of(flow), line.now).unwrap();
        assert!(line.policy.next_grant().is_some());
        line.policy.on_end(arrival.call);
    }
    assert_eq!(line.policy.reading().flows, 0);
    assert_eq!(line.policy.flows().count(), 0);
}
