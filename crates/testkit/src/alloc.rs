//! A global allocator that counts, for tests that a path does not allocate.
//!
//! Install it in the test binary; a binary without it counts nothing, and all numbers stay 0:
//!
//! ```
//! use steadfast_testkit::alloc::{CountingAllocator, count};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator::new();
//!
//! assert_eq!(count(|| Box::new(7_u64)), 1);
//! assert_eq!(count(|| [0_u8; 64]), 0);
//! ```

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);
static DEMANDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    // Constant and without a destructor, so that reading them never allocates: the allocator itself does it.
    static THREAD_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static THREAD_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with counters.
///
/// An allocation counts when it succeeds; a reallocation counts as one allocation of the new size, whether or not the memory
/// moved. Freeing counts only towards [`live_bytes`].
#[derive(Debug, Default)]
pub struct CountingAllocator {
    on_demand: bool,
}

impl CountingAllocator {
    /// An allocator for a `#[global_allocator]` static.
    pub const fn new() -> Self {
        Self { on_demand: false }
    }

    /// An allocator that counts only while [`count_on_demand`] is on: for a program that measures other things too, and then is not
    /// to pay for the counting. [`live_bytes`] has no meaning under it.
    pub const fn on_demand() -> Self {
        Self { on_demand: true }
    }

    fn counts(&self) -> bool {
        !self.on_demand || DEMANDED.load(Relaxed)
    }
}

/// Switches the counting of a [`CountingAllocator::on_demand`] on or off; at first it is off.
pub fn count_on_demand(on: bool) {
    DEMANDED.store(on, Relaxed);
}

fn allocated(bytes: usize) {
    let bytes = bytes as u64;
    ALLOCATIONS.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes, Relaxed);
    // A thread that is going away has no counters any more; its total still counts.
    let _ = THREAD_ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = THREAD_BYTES.try_with(|count| count.set(count.get() + bytes));
}

fn moved(from: usize, to: usize) {
    LIVE.fetch_add(to as i64 - from as i64, Relaxed);
}

#[expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; each method hands its arguments to the system's"
)]
// SAFETY: every method returns what `System` returns for the same arguments; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is `System`'s too.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() && self.counts() {
            allocated(layout.size());
            moved(0, layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() && self.counts() {
            allocated(layout.size());
            moved(0, layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from one of these methods, hence from `System`, with this layout.
        unsafe { System.dealloc(memory, layout) };
        if self.counts() {
            moved(layout.size(), 0);
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; the caller vouches for the new size.
        let memory = unsafe { System.realloc(memory, layout, size) };
        if !memory.is_null() && self.counts() {
            allocated(size);
            moved(layout.size(), size);
        }
        memory
    }
}

/// How much was allocated since the thread or the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationCount {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// The bytes asked for by them.
    pub bytes: u64,
}

impl AllocationCount {
    /// What the calling thread has allocated. 0 while the thread's local storage is being torn down.
    pub fn current_thread() -> Self {
        Self {
            allocations: THREAD_ALLOCATIONS.try_with(Cell::get).unwrap_or(0),
            bytes: THREAD_BYTES.try_with(Cell::get).unwrap_or(0),
        }
    }

    /// What all threads have allocated.
    pub fn total() -> Self {
        Self {
            allocations: ALLOCATIONS.load(Relaxed),
            bytes: BYTES.load(Relaxed),
        }
    }

    /// What came since an earlier count of the same kind.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations.saturating_sub(earlier.allocations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// Bytes that are allocated and not yet freed, by all threads.
pub fn live_bytes() -> u64 {
    u64::try_from(LIVE.load(Relaxed)).unwrap_or(0)
}

/// How many allocations the calling thread makes while it runs `work`. The result of `work` is dropped after the count.
pub fn count<R>(work: impl FnOnce() -> R) -> u64 {
    let before = AllocationCount::current_thread();
    let result = black_box(work());
    let made = AllocationCount::current_thread().since(before).allocations;
    drop(result);
    made
}
