//! Instructions per call: this program again, as a client that plays a script under valgrind's callgrind.
//!
//! Only the client is in that process: the server is the one that the other figures are measured with. The script is
//! played once and twice as long, so that what starting costs falls out.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use clap::Args;
use tempfile::NamedTempFile;

use super::{
    Contender,
    clients::connect,
    measure::runtime,
    work::{Call, Work},
};
use crate::error::{Error, Result};

/// What the client plays; also the hidden subcommand's arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct Script {
    #[arg(long)]
    pub(super) contender: Contender,
    #[arg(long)]
    pub(super) uri: String,
    #[arg(long)]
    pub(super) call: Call,
    #[arg(long)]
    pub(super) callers: usize,
    #[arg(long)]
    pub(super) frames: u32,
    #[arg(long)]
    pub(super) bytes: usize,
    /// About so many calls; the same number for each caller.
    #[arg(long)]
    pub(super) calls: u32,
}

/// Plays a script: the hidden subcommand. It has a thread and a runtime of its own, as in the other measurements.
pub(crate) async fn play(script: Script) -> Result<()> {
    let played = tokio::task::spawn_blocking(move || played(&script)).await;
    played.map_err(|error| Error::because("the thread that plays ended early", error))?
}

fn played(script: &Script) -> Result<()> {
    let runtime = runtime()?;
    let work = Work {
        call: script.call,
        frames: script.frames,
        bytes: script.bytes,
        callers: script.callers,
        calls: Some(script.each()),
    };
    runtime.block_on(async {
        let client = connect(script.contender, &script.uri).await?;
        client.begin(work).done().await
    })
}

impl Script {
    fn each(&self) -> u32 {
        let callers = u32::try_from(self.callers).unwrap_or(u32::MAX);
        self.calls.div_ceil(callers)
    }

    fn arguments(&self) -> Vec<String> {
        let named = [
            ("--contender", self.contender.name()),
            ("--uri", self.uri.clone()),
            ("--call", self.call.to_string()),
            ("--callers", self.callers.to_string()),
            ("--frames", self.frames.to_string()),
            ("--bytes", self.bytes.to_string()),
            ("--calls", self.calls.to_string()),
        ];
        let pairs = named.map(|(name, value)| [name.to_owned(), value]);
        pairs.into_iter().flatten().collect()
    }
}

/// Whether valgrind can be started.
pub(super) fn is_there() -> bool {
    let mut command = Command::new("valgrind");
    let quiet = command.arg("--version").stdout(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Instructions for a call.
pub(super) fn instructions(program: &Path, script: &Script) -> Result<f64> {
    let twice = Script {
        calls: 2 * script.each() * u32::try_from(script.callers).unwrap_or(u32::MAX),
        ..script.clone()
    };
    let (once, twice_counted) = (count(program, script)?, count(program, &twice)?);
    let calls = f64::from(script.each()) * script.callers as f64;
    Ok((twice_counted as f64 - once as f64) / calls)
}

/// Instructions of a whole client.
fn count(program: &Path, script: &Script) -> Result<u64> {
    let failed = |error| Error::because("can't keep what callgrind counted", error);
    let file = NamedTempFile::new().map_err(failed)?;
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.path().display()))
        .arg(program)
        .arg("bench-script")
        .args(script.arguments())
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| Error::because("can't start valgrind", error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!(
            "a client under valgrind failed: {said}"
        )));
    }
    let counted = std::fs::read_to_string(file.path()).map_err(failed)?;
    // One figure, since no other events were asked for.
    let totals = counted
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    let totals = totals.and_then(|totals| totals.trim().parse().ok());
    totals.ok_or_else(|| Error::new("callgrind wrote no totals"))
}
