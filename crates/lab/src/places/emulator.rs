//! Google's BigTable emulator: where its program is, and one running process of it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::error::{Error, Result};
use crate::helper::signal_to;

const PROGRAM: &str = "cbtemulator";
const WITHIN_SDK: &str = "platform/bigtable-emulator/cbtemulator";
/// Where the Cloud SDK is usually installed; one in the home directory is looked at too.
const SDKS: [&str; 3] = [
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
];

/// The program to run: the one that was named, the one on PATH, or the Cloud SDK's.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        let exists = named.is_file().then(|| named.to_owned());
        return exists.ok_or_else(|| {
            Error::new(format!(
                "--emulator {}: there is no such file; give the path of cbtemulator",
                named.display()
            ))
        });
    }
    let on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(PROGRAM))
        .collect::<Vec<_>>();
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join("google-cloud-sdk"));
    let sdks = SDKS
        .iter()
        .map(PathBuf::from)
        .chain(home)
        .map(|sdk| sdk.join(WITHIN_SDK));
    on_path.into_iter().chain(sdks).find(|path| path.is_file()).ok_or_else(|| {
        Error::new(format!(
            "Google's BigTable emulator isn't here: no {PROGRAM} on PATH nor in the Cloud SDK's usual folders; install it with `gcloud components install \
             bigtable`, or name it with --emulator PATH"
        ))
    })
}

/// A running emulator. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Emulator {
    /// Starts the program on a free port and waits until it says which.
    pub(crate) async fn start(program: &Path) -> Result<Self> {
        let failed = |error| Error::because(format!("can't start {}", program.display()), error);
        let mut command = Command::new(program);
        command
            .args(["-host", "127.0.0.1", "-port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| {
            Error::new("the emulator has no standard output although one was asked for")
        })?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await.map_err(failed)? {
            if let Some((_, address)) = line.rsplit_once(" running on ") {
                return Ok(Self {
                    child,
                    address: address.trim().to_owned(),
                });
            }
        }
        Err(Error::new(format!(
            "{} ended without saying where it listens; run it by hand to see why",
            program.display()
        )))
    }

    /// Stops it as it stands.
    pub(crate) fn freeze(&self) -> Result<()> {
        signal_to(&self.child, Signal::SIGSTOP)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) -> Result<()> {
        signal_to(&self.child, Signal::SIGCONT)
    }
}
