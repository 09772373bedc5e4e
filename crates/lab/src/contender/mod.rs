//! The three ways to connect that the demo compares, each with its own defaults.

mod pool;

use std::time::Duration;

use clap::ValueEnum;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::PingAndWarmRequest;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tonic::transport::channel::Change;
use tonic::transport::{Channel, Endpoint};

use crate::error::{Error, Result};
use crate::load::reads::Transport;
use crate::rows;

pub(crate) use pool::with_pool;

/// How many connections tonic's balance gets: the number a BigTable client opens by default.
pub(crate) const BALANCE: usize = 10;
/// Calls before the measurement. Over their pauses tonic's balance, which dials while it is asked for a connection, gets to dial all of its own.
const WARM_UPS: usize = 20;

/// A way to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// One tonic Channel to the first place: what most clients do.
    Channel,
    /// tonic's own balance with ten connections over all places.
    TonicBalance,
    /// Steadfast's pool over all places, with its defaults.
    Pool,
}

impl Contender {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::TonicBalance => "tonic-balance",
            Self::Pool => "pool",
        }
    }
}

/// A plain channel to the first place.
pub(crate) async fn channel(places: &[String]) -> Result<BigtableClient<Channel>> {
    let first = places
        .first()
        .ok_or_else(|| Error::new("there are no places to connect to"))?;
    let channel = endpoint(first)?
        .connect()
        .await
        .map_err(|error| Error::because(format!("can't connect to {first}"), error))?;
    warm(BigtableClient::new(channel)).await
}

/// tonic's balance round the places. The first connection is to the first place, and answers before the others are dialled.
pub(crate) async fn tonic_balance(places: &[String]) -> Result<BigtableClient<Channel>> {
    let (channel, changes) = Channel::balance_channel(BALANCE);
    for (number, place) in places.iter().cycle().take(BALANCE).enumerate() {
        // Keyed by number: tonic's balance_list keys by address and so keeps one connection to each.
        let sent = changes.send(Change::Insert(number, endpoint(place)?)).await;
        sent.map_err(|_| Error::new("tonic's balance took no more connections"))?;
        if number == 0 {
            warm(BigtableClient::new(channel.clone())).await?;
        }
    }
    // tonic ends the balance's list, not its connections, when the sender is dropped.
    drop(changes);
    warm(BigtableClient::new(channel)).await
}

fn endpoint(place: &str) -> Result<Endpoint> {
    Endpoint::from_shared(place.to_owned())
        .map_err(|error| Error::because(format!("{place:?} is no address; write host:port"), error))
}

/// Sends a few calls, so that the load meets connections that are up.
pub(crate) async fn warm<T: Transport>(mut client: BigtableClient<T>) -> Result<BigtableClient<T>> {
    for _ in 0..WARM_UPS {
        let request = PingAndWarmRequest {
            name: rows::INSTANCE.to_owned(),
            ..PingAndWarmRequest::default()
        };
        // Google's emulator has no PingAndWarm; that it says so shows as well that the connection works.
        match client.ping_and_warm(request).await {
            Err(status) if status.code() != tonic::Code::Unimplemented => {
                return Err(Error::because(
                    "the first call failed although no fault was on",
                    status,
                ));
            }
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
    Ok(client)
}
