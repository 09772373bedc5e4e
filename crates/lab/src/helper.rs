//! Helper processes: this program again, under a hidden subcommand, told what to do by lines on its standard input and answering with lines of JSON.
//!
//! A helper ends when its standard input closes, so whatever ends the lab ends them too. A helper that may be stopped with SIGSTOP can't notice that;
//! it asks the kernel to be killed with its parent instead.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin, Stdout};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::error::{Error, Result};

/// How long a helper may take to end once its input is closed.
const ENDING: Duration = Duration::from_secs(2);

/// What dropping a [`Helper`] does beyond closing the process's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDrop {
    /// Kills it, which works on a stopped process too.
    Kill,
    /// Nothing: it has a process of its own to end first.
    Leave,
}

/// The lab's end of a helper process.
#[derive(Debug)]
pub(crate) struct Helper {
    name: String,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    /// Starts `program` with a subcommand and its arguments.
    pub(crate) fn start<A: AsRef<OsStr>>(
        program: &Path,
        subcommand: &str,
        arguments: &[A],
        on_drop: OnDrop,
    ) -> Result<Self> {
        let failed = |error| {
            Error::because(
                format!("can't start {} {subcommand}", program.display()),
                error,
            )
        };
        let mut command = Command::new(program);
        command
            .arg(subcommand)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(on_drop == OnDrop::Kill);
        // In a group of its own it isn't hit by the terminal's Ctrl-C; the lab ends it in its own time.
        command.process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take().ok_or_else(|| {
            Error::new("a helper has no standard input although one was asked for")
        })?;
        let output = child.stdout.take().ok_or_else(|| {
            Error::new("a helper has no standard output although one was asked for")
        })?;
        Ok(Self {
            name: subcommand.to_owned(),
            child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// Sends it one line.
    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        let sent = self.input.write_all(format!("{line}\n").as_bytes()).await;
        sent.map_err(|error| {
            Error::because(
                format!("the {} process took no {line:?}; it has ended", self.name),
                error,
            )
        })
    }

    /// Waits for its next line.
    pub(crate) async fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.output.next_line().await.map_err(|error| {
            Error::because(format!("can't read from the {} process", self.name), error)
        })?;
        let line = line.ok_or_else(|| {
            Error::new(format!(
                "the {} process ended without an answer; its own message stands above",
                self.name
            ))
        })?;
        serde_json::from_str(&line).map_err(|error| {
            Error::because(
                format!("the {} process answered {line:?}", self.name),
                error,
            )
        })
    }

    /// Sends a line and waits for the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.tell(line).await?;
        self.hear().await
    }

    /// Closes its input and waits until it has ended; it is killed if it doesn't.
    pub(crate) async fn end(self) {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        if timeout(ENDING, child.wait()).await.is_err() {
            // It fails only when the process has ended meanwhile.
            let _ = child.kill().await;
        }
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        let killed = self.child.kill().await;
        killed
            .map_err(|error| Error::because(format!("can't kill the {} process", self.name), error))
    }

    /// Stops it as it stands, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        signal_to(&self.child, signal)
    }
}

/// Sends a signal to a child that is still running.
pub(crate) fn signal_to(child: &Child, signal: Signal) -> Result<()> {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .ok_or_else(|| Error::new(format!("no process left to send {signal} to")))?;
    kill(Pid::from_raw(pid), signal)
        .map_err(|errno| Error::because(format!("can't send {signal} to process {pid}"), errno))
}

/// The helper's own end: its commands, and its answers.
#[derive(Debug)]
pub(crate) struct Orders {
    input: Lines<BufReader<Stdin>>,
    output: Stdout,
}

impl Orders {
    pub(crate) fn new() -> Self {
        Self {
            input: BufReader::new(tokio::io::stdin()).lines(),
            output: tokio::io::stdout(),
        }
    }

    /// The next command; none once the lab is gone.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.input.next_line().await.ok().flatten()
    }

    /// Answers with one line of JSON.
    pub(crate) async fn answer<T: Serialize>(&mut self, answer: &T) -> Result<()> {
        let gone = |error| Error::because("can't answer the lab; it has ended", error);
        let mut line = serde_json::to_vec(answer)
            .map_err(|error| Error::because("can't write an answer as JSON", error))?;
        line.push(b'\n');
        self.output.write_all(&line).await.map_err(gone)?;
        self.output.flush().await.map_err(gone)
    }
}

/// Asks the kernel to kill this process when the lab ends.
pub(crate) fn end_with_parent() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).map_err(|errno| {
        Error::because(
            "can't ask the kernel to end this process with its parent",
            errno,
        )
    })
}
