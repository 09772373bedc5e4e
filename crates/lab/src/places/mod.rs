//! The four servers, as the lab sees them: where they listen, what has reached them, and how to break and mend one.

mod emulator;
mod fill;
pub(crate) mod proxy;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::helper::{Helper, OnDrop};
use crate::rows::Rows;
use crate::server::process::{Listening, Seen};

/// How many servers the lab starts.
const PLACES: usize = 4;

/// Which servers the demo reads from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    /// The lab's own, in four processes.
    Embedded,
    /// Google's emulator, four times.
    Emulator,
    /// Servers that run already, as host:port.
    Running(Vec<String>),
}

/// A fault of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// It stops where it stands; its connections stay open.
    Freeze,
    /// It answers Unavailable at once, or resets its connections.
    Fail,
    /// The connection that was made first since the mark answers later.
    Slow,
    /// Nothing moves on that connection.
    FreezeOne,
    /// That connection's calls aren't answered, its PINGs are.
    Mute,
    /// All its clients are told to go away.
    Goaway,
    /// It is killed, and started again a moment later.
    Restart,
}

/// How long a killed server stays away.
const AWAY: Duration = Duration::from_secs(1);

/// One server.
#[derive(Debug)]
pub(crate) struct Place {
    helper: Helper,
    /// Where contenders connect to, as `http://host:port`.
    pub(crate) address: String,
    /// What the helper was started with, if it is the server itself and not a proxy in front of it.
    server: Option<Served>,
    frozen: bool,
}

/// How a server's process is started again.
#[derive(Debug)]
struct Served {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// Starts all servers and fills them with the rows.
pub(crate) async fn start(
    program: &Path,
    servers: &Servers,
    emulator: Option<&Path>,
    rows: Rows,
) -> Result<Vec<Place>> {
    let common = [
        OsString::from("--rows"),
        rows.count.to_string().into(),
        "--seed".into(),
        rows.seed.to_string().into(),
    ];
    let emulator_path = || emulator::find(emulator);
    let (subcommand, extra): (_, Vec<[OsString; 2]>) = match servers {
        Servers::Embedded => ("serve", Vec::new()),
        Servers::Emulator => (
            "proxy",
            vec![["--emulator".into(), emulator_path()?.into()]; PLACES],
        ),
        Servers::Running(addresses) => (
            "proxy",
            addresses
                .iter()
                .map(|address| ["--upstream".into(), address.into()])
                .collect(),
        ),
    };
    let is_server = extra.is_empty();
    let extra = if is_server {
        vec![Vec::new(); PLACES]
    } else {
        extra.into_iter().map(Vec::from).collect()
    };
    // All are started before the first is waited for: filling them takes a moment, and they can do it side by side.
    let on_drop = if is_server {
        OnDrop::Kill
    } else {
        OnDrop::Leave
    };
    let start = |extra: &Vec<OsString>| {
        Helper::start(program, subcommand, &[&common[..], extra].concat(), on_drop)
    };
    let helpers: Vec<_> = extra.iter().map(start).collect::<Result<_>>()?;
    let mut places = Vec::with_capacity(helpers.len());
    for mut helper in helpers {
        let Listening { address } = helper.hear().await?;
        let server = is_server.then(|| {
            let port = ["--port".into(), address.port().to_string().into()];
            Served {
                program: program.to_owned(),
                arguments: [&common[..], &port].concat(),
            }
        });
        places.push(Place {
            helper,
            address: format!("http://{address}"),
            server,
            frozen: false,
        });
    }
    Ok(places)
}

impl Place {
    /// What has reached the server.
    pub(crate) async fn seen(&mut self) -> Result<Seen> {
        self.helper.ask("seen").await
    }

    /// From now on, the first connection is the next contender's.
    pub(crate) async fn mark(&mut self) -> Result<()> {
        self.helper.ask::<Seen>("mark").await.map(drop)
    }

    /// Breaks it.
    pub(crate) async fn inflict(&mut self, fault: Break) -> Result<()> {
        match fault {
            Break::Freeze if self.server.is_some() => {
                self.frozen = true;
                self.helper.signal(Signal::SIGSTOP)
            }
            Break::Freeze => self.helper.ask::<Seen>("freeze").await.map(drop),
            Break::Fail => self.helper.ask::<Seen>("fail").await.map(drop),
            Break::Slow => self.helper.ask::<Seen>("slow").await.map(drop),
            Break::FreezeOne => self.helper.ask::<Seen>("freeze-one").await.map(drop),
            Break::Mute => self.helper.ask::<Seen>("mute").await.map(drop),
            Break::Goaway => self.helper.ask::<Seen>("goaway").await.map(drop),
            Break::Restart => self.restart().await,
        }
    }

    /// Kills the server and starts it again on the same port; one behind a proxy looks as if it were.
    async fn restart(&mut self) -> Result<()> {
        let Some(served) = &self.server else {
            self.helper.ask::<Seen>("fail").await?;
            sleep(AWAY).await;
            return self.helper.ask::<Seen>("heal").await.map(drop);
        };
        self.helper.kill().await?;
        sleep(AWAY).await;
        let (program, arguments) = (&served.program, &served.arguments);
        self.helper = Helper::start(program, "serve", arguments, OnDrop::Kill)?;
        self.helper.hear::<Listening>().await.map(drop)
    }

    /// Ends its processes.
    pub(crate) async fn end(self) {
        if self.frozen {
            // A stopped server doesn't see its input close. It fails only when the server is gone already.
            let _ = self.helper.signal(Signal::SIGCONT);
        }
        self.helper.end().await;
    }

    /// Mends whatever was broken.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        if std::mem::take(&mut self.frozen) {
            self.helper.signal(Signal::SIGCONT)?;
        }
        self.helper.ask::<Seen>("heal").await.map(drop)
    }
}

impl std::str::FromStr for Servers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "embedded" => return Ok(Self::Embedded),
            "emulator" => return Ok(Self::Emulator),
            _ => {}
        }
        let addresses: Vec<String> = text
            .split(',')
            .map(|address| address.trim().to_owned())
            .collect();
        let valid = |address: &String| {
            address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match addresses.iter().find(|address| !valid(address)) {
            None => Ok(Self::Running(addresses)),
            Some(wrong) => Err(Error::new(format!(
                "{wrong:?} is neither embedded, emulator nor host:port; write for example 127.0.0.1:8086,127.0.0.1:8087"
            ))),
        }
    }
}

/// The emulator's program, for messages and tests that are about it.
pub fn emulator_program() -> Result<PathBuf> {
    emulator::find(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_or_listed() {
        assert_eq!("embedded".parse::<Servers>().unwrap(), Servers::Embedded);
        assert_eq!("emulator".parse::<Servers>().unwrap(), Servers::Emulator);
        let running = Servers::Running(vec!["a:1".into(), "[::1]:2".into()]);
        assert_eq!("a:1, [::1]:2".parse::<Servers>().unwrap(), running);
        let error = "a:1,b".parse::<Servers>().unwrap_err().to_string();
        assert!(
            error.contains("\"b\"") && error.contains("host:port"),
            "{error}"
        );
    }
}
