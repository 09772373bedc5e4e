//! What a pick allocates: nothing. Exact, so it is asserted.

use steadfast::Metered;
use steadfast_balance::bench::Picker;
use steadfast_testkit::alloc::{CountingAllocator, count};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Allocations of 1,000 picks over so many channels, each followed by the release of an older one.
fn allocations(channels: usize, charged: usize) -> u64 {
    let channels: Vec<_> = (0..channels).map(Metered::new).collect();
    let owners: Vec<_> = channels
        .iter()
        .take(charged)
        .map(|channel| channel.meter().owner())
        .collect();
    owners.iter().for_each(|owner| owner.set_charge(25));
    let picker = Picker::new(channels.iter().cloned());
    let pick = || picker.pick().expect("every channel is open");
    let mut held: Vec<_> = (0..2 * channels.len()).map(|_| pick()).collect();
    let oldest = (0..held.len()).cycle();
    let mut turns = |picks| oldest.clone().take(picks).for_each(|at| held[at] = pick());
    // What is made once for each thread is made here.
    turns(100);
    count(|| turns(1_000))
}

/// The budget of a pick: no allocation, whether or not channels carry a charge.
#[test]
fn a_pick_allocates_nothing() {
    for channels in [1, 4, 10, 50, 200] {
        for charged in [0, channels / 4] {
            let made = allocations(channels, charged);
            assert_eq!(made, 0, "{channels} channels, {charged} of them charged");
        }
    }
    assert_eq!(count(|| Box::new(7)), 1, "the allocator counts");
}
