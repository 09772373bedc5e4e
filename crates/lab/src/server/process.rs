//! The `serve` helper: one embedded server in a process of its own, so that it can be stopped as a whole and its CPU time isn't the client's.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Embedded, Manner};
use crate::error::{Error, Result};
use crate::helper::{Orders, end_with_parent};
use crate::rows::Rows;

/// The first line of a helper that listens: where.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
}

/// The answer to every command: what has arrived so far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Calls since the helper started.
    pub(crate) calls: u64,
    /// When the first connection since the last `mark` was accepted, in nanoseconds of the host's uptime.
    pub(crate) first: Option<u64>,
}

/// Serves until the lab closes this process's standard input.
pub(crate) async fn serve(rows: Rows, port: u16) -> Result<()> {
    end_with_parent()?;
    let server = Embedded::on_port(port).await?;
    for request in rows.requests() {
        server.write(&request)?;
    }
    let mut orders = Orders::new();
    orders
        .answer(&Listening {
            address: server.address(),
        })
        .await?;
    while let Some(order) = orders.next().await {
        match order.as_str() {
            "seen" => {}
            "mark" => server.mark(),
            "fail" => server.set_failing(true),
            "slow" => server.set_manner(Manner::Slow),
            "freeze-one" => server.set_manner(Manner::Frozen),
            "mute" => server.set_manner(Manner::Mute),
            "goaway" => server.go_away(),
            "heal" => {
                server.set_failing(false);
                server.set_manner(Manner::Good);
            }
            other => {
                return Err(Error::new(format!(
                    "serve knows seen, mark, fail, slow, freeze-one, mute, goaway and heal, but was told {other:?}"
                )));
            }
        }
        let first = server
            .first_connection()
            .and_then(|first| u64::try_from(first.as_nanos()).ok());
        orders
            .answer(&Seen {
                calls: server.calls(),
                first,
            })
            .await?;
    }
    Ok(())
}
