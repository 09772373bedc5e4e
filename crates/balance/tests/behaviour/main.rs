//! What a pool does over channels in memory, under a paused clock.
#![expect(
    unreachable_pub,
    reason = "the modules of one test binary share the items of `common`"
)]

mod common;
mod edges;
mod growth;
mod in_flight;
mod life;
mod observe;
mod replace;
mod waiting;
