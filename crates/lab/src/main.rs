//! `steadfast-lab`: see [`steadfast_lab`].

use std::process::ExitCode;

use clap::Parser;
use steadfast_testkit::alloc::CountingAllocator;

/// Counts only for the benches that ask for it; for everything else it is the system's allocator.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::on_demand();

#[tokio::main]
async fn main() -> ExitCode {
    match steadfast_lab::cli::Arguments::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("steadfast-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
