//! Occupancy and linear decay: on made-up time, and through the layer on a paused clock.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use steadfast_core::{BoxError, now};
use steadfast_penalty::{Member, Mode, PenaltyConfig, PenaltyPolicy, PenaltyWindowLayer};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn config(occupancy: bool, linear_decay: bool) -> PenaltyConfig {
    PenaltyConfig {
        mode: Mode::Flat,
        occupancy,
        linear_decay,
        ..PenaltyConfig::default()
    }
}

/// One channel's charge, as the policy's actions make it.
struct One {
    policy: PenaltyPolicy,
    member: Member,
    start: Instant,
    charge: u32,
}

impl One {
    fn new(config: PenaltyConfig) -> Self {
        let start = now().into_std();
        let mut policy = PenaltyPolicy::new(config);
        let member = policy.join(start);
        let charge = 0;
        Self {
            policy,
            member,
            start,
            charge,
        }
    }

    fn act(&mut self) -> u32 {
        while let Some(action) = self.policy.next_action() {
            self.charge = action.charge.unwrap_or(self.charge);
        }
        self.charge
    }

    fn fails(&mut self, at: Duration) -> u32 {
        self.policy.on_failure(self.member, self.start + at);
        self.act()
    }

    /// Goes to a time by way of every deadline, as the timer does, and counts them.
    fn until(&mut self, at: Duration) -> (u32, usize) {
        let mut turns = 0;
        while let Some(next) = self
            .policy
            .next_deadline()
            .filter(|next| *next <= self.start + at)
        {
            self.policy.on_deadline(next);
            turns += 1;
            assert!(turns < 1_000, "it turns in one place");
        }
        self.policy.on_deadline(self.start + at);
        (self.act(), turns)
    }
}

/// P4: a failed request keeps its place in the count for the median time of a success, on top of the
/// weight; the window ends apart from that.
#[test]
fn a_failed_request_keeps_its_place() {
    let mut one = One::new(config(true, false));
    assert_eq!(
        one.fails(Duration::ZERO),
        25,
        "nothing is known of successes yet"
    );
    for ms in [40, 50, 900] {
        one.policy.on_success(ms * MS);
    }
    assert_eq!(one.fails(10 * MS), 26);
    assert_eq!(one.fails(20 * MS), 27);
    assert_eq!(one.until(59 * MS).0, 27);
    assert_eq!(one.until(60 * MS).0, 26);
    assert_eq!(one.until(70 * MS).0, 25);
    assert_eq!(
        one.until(5 * S).0,
        25,
        "the second failure renewed the window"
    );
    assert_eq!(one.until(5 * S + 20 * MS).0, 0);
    assert_eq!(one.policy.next_deadline(), None);
}

/// P4: a place that lasts longer than the window is kept to its end; without the switch there is none.
#[test]
fn a_place_may_outlive_the_window() {
    let mut one = One::new(config(true, false));
    one.policy.on_success(8 * S);
    assert_eq!(one.fails(Duration::ZERO), 26);
    assert_eq!(one.until(5 * S).0, 1);
    assert_eq!(one.until(8 * S).0, 0);
    let mut off = One::new(config(false, false));
    off.policy.on_success(8 * S);
    assert_eq!(off.fails(Duration::ZERO), 25);
    assert_eq!(off.until(5 * S).0, 0);
}

/// P6: with linear decay the charge falls in a straight line, in as many turns of the timer as it has
/// requests; a failure brings it back up, and never down.
#[test]
fn the_charge_falls_in_a_straight_line() {
    let mut one = One::new(config(false, true));
    assert_eq!(one.fails(Duration::ZERO), 25);
    for (at, charge) in [
        (1, 25),
        (210, 24),
        (1_010, 20),
        (2_510, 13),
        (4_010, 5),
        (4_990, 1),
    ] {
        assert_eq!(one.until(at * MS).0, charge, "after {at} ms");
    }
    assert_eq!(one.fails(4_995 * MS), 25);
    let (charge, turns) = one.until(9_994 * MS);
    assert_eq!(charge, 1);
    assert!((20..=26).contains(&turns), "{turns}");
    assert_eq!(one.until(9_995 * MS).0, 0);
    assert_eq!(one.policy.next_deadline(), None);
}

/// P6: the default ends all at once.
#[test]
fn without_decay_it_ends_at_once() {
    let mut one = One::new(config(false, false));
    one.fails(Duration::ZERO);
    assert_eq!(one.until(4_999 * MS), (25, 0));
    assert_eq!(one.until(5 * S), (0, 1));
}

/// P4: through the layer: the time of a success is that of its whole exchange, and the place of a failure
/// shows on the meter for as long.
#[tokio::test(start_paused = true)]
async fn the_layer_keeps_time() {
    let layer = PenaltyWindowLayer::new(config(true, false)).unwrap();
    let answer = |request: Request<&'static str>| async move {
        let ok = *request.body() == "ok";
        sleep(if ok { 50 * MS } else { 2 * MS }).await;
        let status = if ok { "0" } else { "14" };
        let response = Response::builder().header("grpc-status", status);
        Ok::<_, BoxError>(response.body(Empty::<Bytes>::new())?)
    };
    let mut service = layer.layer(service_fn(answer));
    let mut call = async |what| {
        let response = service
            .ready()
            .await
            .unwrap()
            .call(Request::new(what))
            .await
            .unwrap();
        response.into_body().collect().await.unwrap();
        service.meter().read().charge()
    };
    assert_eq!(call("ok").await, 0);
    assert_eq!(call("bad").await, 26);
    assert_eq!(call("bad").await, 27);
    sleep(49 * MS).await;
    assert_eq!(call("ok").await, 25, "both places have ended");
    sleep(5 * S).await;
    assert_eq!(call("ok").await, 0);
}
