//! The allocator counts exactly. One test only: the counters of the whole process would see its neighbours.

use std::hint::black_box;
use steadfast_testkit::alloc::{AllocationCount, CountingAllocator, count, live_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

#[test]
fn allocations_are_counted_by_thread_in_total_and_alive() {
    assert_eq!(count(|| ()), 0);
    assert_eq!(count(|| Box::new(1_u8)), 1);
    assert_eq!(count(|| vec![0_u8; 100]), 1, "a zeroed allocation");
    assert_eq!(
        count(|| drop(black_box(Box::new(1_u8)))),
        1,
        "freeing is not an allocation"
    );
    let grown = count(|| {
        let mut bytes: Vec<u8> = black_box(Vec::with_capacity(10));
        bytes.reserve_exact(1_000);
        bytes
    });
    assert_eq!(grown, 2, "a reallocation is one more");

    let before = AllocationCount::current_thread();
    let kept = black_box(vec![1_u8; 12_345]);
    let made = AllocationCount::current_thread().since(before);
    assert_eq!((made.allocations, made.bytes), (1, 12_345));

    let alive = live_bytes();
    let big = black_box(vec![1_u8; 10_000_000]);
    assert!(live_bytes() - alive > 9_900_000);
    drop(big);
    assert!(live_bytes().abs_diff(alive) < 100_000);
    drop(kept);

    let (mine, total) = (AllocationCount::current_thread(), AllocationCount::total());
    let theirs = std::thread::spawn(|| {
        count(|| {
            (0..1_000)
                .map(|_| black_box(Box::new(0_u64)))
                .for_each(drop)
        })
    })
    .join()
    .unwrap();
    assert_eq!(theirs, 1_000);
    assert!(
        AllocationCount::current_thread().since(mine).allocations < 100,
        "another thread's are not mine"
    );
    assert!(AllocationCount::total().since(total).allocations >= 1_000);
}
