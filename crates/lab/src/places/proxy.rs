//! The `proxy` helper: a fault proxy in front of a server that can't be told to fail, in a process of its own so that its CPU time isn't the client's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_testkit::proxy::{AcceptMode, FaultProxy, Which};
use tokio::net::lookup_host;

use super::emulator::Emulator;
use super::fill::fill;
use crate::clock;
use crate::error::{Error, Result};
use crate::helper::Orders;
use crate::rows::Rows;
use crate::server::SLOWER;
use crate::server::process::{Listening, Seen};

/// Longer than any demo: waiting for the next connection has no limit of its own.
const UNBOUNDED: Duration = Duration::from_secs(24 * 3600);

/// What stands behind the proxy.
#[derive(Debug)]
pub(crate) enum Upstream {
    /// A server that runs already, as host:port.
    Running(String),
    /// The emulator's program, which the helper starts and ends.
    Emulator(PathBuf),
}

/// Proxies until the lab closes this process's standard input. It doesn't ask to be killed with the lab, because it has an emulator to end.
pub(crate) async fn proxy(upstream: Upstream, rows: Rows) -> Result<()> {
    let (address, emulator) = match upstream {
        Upstream::Running(address) => (address, None),
        Upstream::Emulator(program) => {
            let emulator = Emulator::start(&program).await?;
            (emulator.address.clone(), Some(emulator))
        }
    };
    fill(&address, rows).await?;
    let proxy = FaultProxy::start(resolved(&address).await?)
        .map_err(|error| Error::because(format!("can't start a proxy to {address}"), error))?;
    let mut orders = Orders::new();
    orders
        .answer(&Listening {
            address: proxy.addr(),
        })
        .await?;
    let mut front = Front {
        proxy,
        emulator,
        marked: 0,
        first: None,
    };
    loop {
        tokio::select! {
            order = orders.next() => match order {
                Some(order) => orders.answer(&front.obey(&order)?).await?,
                None => return Ok(()),
            },
            () = front.next_first() => {}
        }
    }
}

async fn resolved(address: &str) -> Result<SocketAddr> {
    let failed = |error| Error::because(format!("can't resolve {address}; write host:port"), error);
    let mut addresses = lookup_host(address).await.map_err(failed)?;
    addresses
        .next()
        .ok_or_else(|| Error::new(format!("{address} resolves to no address")))
}

struct Front {
    proxy: FaultProxy,
    emulator: Option<Emulator>,
    /// How many connections there had been at the last mark.
    marked: usize,
    first: Option<u64>,
}

impl Front {
    fn obey(&mut self, order: &str) -> Result<Seen> {
        match (order, &self.emulator) {
            ("seen", _) => {}
            ("mark", _) => {
                self.marked = self.proxy.connections().len();
                self.first = None;
            }
            // A stopped emulator is nearer to a stopped server than a proxy that moves nothing: its kernel still acknowledges what is sent.
            ("freeze", Some(emulator)) => emulator.freeze()?,
            ("freeze", None) => self.proxy.freeze(Which::All),
            ("fail", _) => {
                self.proxy.set_accept_mode(AcceptMode::Reset);
                self.proxy.reset(Which::All);
            }
            ("slow", _) => {
                let first = Which::One(self.first_marked());
                self.proxy.delay(first, Duration::ZERO, SLOWER);
            }
            ("freeze-one", _) => self.proxy.freeze(Which::One(self.first_marked())),
            ("mute", _) => self.proxy.mute(Which::One(self.first_marked())),
            ("goaway", _) => {
                return Err(Error::new(
                    "a proxy can't send GOAWAY in its server's name; the demo shows it with --server embedded",
                ));
            }
            ("heal", emulator) => {
                self.proxy.unmute(Which::All);
                self.proxy.delay(Which::All, Duration::ZERO, Duration::ZERO);
                emulator.as_ref().map_or(Ok(()), Emulator::thaw)?;
                self.proxy.thaw(Which::All);
                self.proxy.set_accept_mode(AcceptMode::Serve);
            }
            (other, _) => {
                return Err(Error::new(format!(
                    "proxy knows seen, mark, freeze, freeze-one, mute, fail, slow and heal, but was told {other:?}"
                )));
            }
        }
        let calls = self
            .proxy
            .connections()
            .iter()
            .map(|connection| connection.headers)
            .sum();
        Ok(Seen {
            calls,
            first: self.first,
        })
    }

    fn first_marked(&self) -> u64 {
        u64::try_from(self.marked).unwrap_or(u64::MAX)
    }

    /// Notes when the first connection since the mark came; never ends once it has.
    async fn next_first(&mut self) {
        if self.first.is_some() {
            return std::future::pending().await;
        }
        let marked = self.marked;
        if self
            .proxy
            .wait_until(UNBOUNDED, |seen| seen.connections.len() > marked)
            .await
            .is_ok()
        {
            self.first = u64::try_from(clock::uptime().as_nanos()).ok();
        }
    }
}
