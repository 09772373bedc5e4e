//! `steadfast-lab`: see [`steadfast_lab`].

use std::process::ExitCode;

use clap::Parser;

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
