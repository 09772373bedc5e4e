//! What happens to the connections.

use std::time::Duration;

use steadfast_core::now;
use steadfast_testkit::proxy::{FaultProxy, Which};
use tokio::time::{Instant, sleep};

/// Cuts, resets or freezes one connection after another, and thaws them, for this time.
pub(crate) async fn inflict(proxy: &FaultProxy, seed: u64, time: Duration) {
    let mut random = fastrand::Rng::with_seed(seed);
    let end = now() + time;
    let mut frozen: Vec<(Instant, u64)> = Vec::new();
    let (mut cuts, mut freezes) = (0, 0);
    while now() < end {
        sleep(Duration::from_millis(random.u64(100..500))).await;
        frozen.retain(|(until, number)| {
            let thaws = *until <= now();
            if thaws {
                proxy.thaw(Which::One(*number));
            }
            !thaws
        });
        let connections = proxy.connections();
        let open: Vec<_> = (0..).zip(&connections).filter(|(_, it)| it.open).collect();
        let Some((number, _)) = random.choice(open) else {
            continue;
        };
        match random.u8(..6) {
            0 | 1 => proxy.cut(Which::One(number)),
            2 => proxy.reset(Which::One(number)),
            _ => {
                proxy.freeze(Which::One(number));
                let time = Duration::from_millis(random.u64(200..3_000));
                frozen.push((now() + time, number));
                freezes += 1;
                continue;
            }
        }
        cuts += 1;
    }
    proxy.thaw(Which::All);
    println!("{cuts} connections cut, {freezes} frozen");
}
