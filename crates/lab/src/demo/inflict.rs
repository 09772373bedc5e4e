//! Breaks a server in the middle of a load, mends it afterwards, and counts who called it meanwhile.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::error::Result;
use crate::places::{Break, Place};
use crate::server::process::Seen;

/// How long calls that a stopped server finds in its sockets may take to be counted once it goes on.
const SETTLING: Duration = Duration::from_secs(1);

/// How long one connection stays frozen.
const FROZEN: Duration = Duration::from_secs(10);
/// How often all clients are told to go away.
const GOAWAY_EVERY: Duration = Duration::from_secs(2);

/// The place whose first connection since the mark is the oldest.
pub(super) async fn first_connected(places: &mut [Place]) -> Result<usize> {
    let mut first = (u64::MAX, 0);
    for (index, place) in places.iter_mut().enumerate() {
        if let Some(at) = place.seen().await?.first {
            first = first.min((at, index));
        }
    }
    Ok(first.1)
}

/// Breaks a server at its time, and says what had reached each server by then. A fault that lasts a while is ended, and one that comes again and
/// again repeated, until `over` says that the load is.
pub(super) async fn inflicted(
    bad: Option<(Break, usize)>,
    places: &mut [Place],
    after: f64,
    over: watch::Receiver<bool>,
) -> Result<Option<Vec<Seen>>> {
    let Some((fault, index)) = bad else {
        return Ok(None);
    };
    sleep(Duration::from_secs_f64(after)).await;
    let mut before = Vec::with_capacity(places.len());
    for place in &mut *places {
        before.push(place.seen().await?);
    }
    match fault {
        Break::Goaway => {
            again_and_again(places, over).await?;
        }
        Break::FreezeOne => {
            places[index].inflict(fault).await?;
            if lasts(FROZEN, over).await {
                places[index].heal().await?;
            }
        }
        _ => places[index].inflict(fault).await?,
    }
    Ok(Some(before))
}

/// Between two orders and not within one: an answer that nobody reads would be taken for the next order's.
async fn again_and_again(places: &mut [Place], over: watch::Receiver<bool>) -> Result<()> {
    loop {
        for place in &mut *places {
            place.inflict(Break::Goaway).await?;
        }
        if !lasts(GOAWAY_EVERY, over.clone()).await {
            return Ok(());
        }
    }
}

/// Waits, and says whether the load goes on.
async fn lasts(time: Duration, mut over: watch::Receiver<bool>) -> bool {
    timeout(time, over.wait_for(|over| *over)).await.is_err()
}

/// Mends the server, waits until it has counted what it found in its sockets, and says which share of the calls since the fault it got.
pub(super) async fn healed(
    places: &mut [Place],
    index: usize,
    before: &[Seen],
) -> Result<Option<f64>> {
    places[index].heal().await?;
    let deadline = clock::now() + SETTLING;
    let mut last = places[index].seen().await?.calls;
    loop {
        sleep(Duration::from_millis(100)).await;
        let calls = places[index].seen().await?.calls;
        if calls == last || clock::now() >= deadline {
            break;
        }
        last = calls;
    }
    let mut since = Vec::with_capacity(places.len());
    for (place, before) in places.iter_mut().zip(before) {
        since.push(place.seen().await?.calls.saturating_sub(before.calls));
    }
    let all: u64 = since.iter().sum();
    Ok((all > 0).then(|| since[index] as f64 / all as f64))
}
