//! Steadfast's pool as a contender.

use std::time::Duration;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use steadfast::{Places, Pool};
use tokio::time::timeout;

use crate::contend::{Job, run};
use crate::error::{Error, Result};
use crate::helper::Orders;

/// How long the channels may take until all are ready, on servers of this host that answer.
const READY: Duration = Duration::from_secs(10);

/// Runs the job on a pool over all places.
pub(crate) async fn with_pool(orders: &mut Orders, job: &Job) -> Result<()> {
    match open(&job.places).await {
        Ok((pool, client)) => run(orders, job, Ok(client), || pool.snapshot().channels.len()).await,
        Err(error) => run::<Pool>(orders, job, Err(error), || 0).await,
    }
}

/// A pool with every default, once there is a ready channel for each place.
async fn open(places: &[String]) -> Result<(Pool, BigtableClient<Pool>)> {
    let first = places.first().cloned().unwrap_or_default();
    let pool = Pool::builder(first)
        .places(Places::list(places.iter().map(String::as_str)))
        .build()
        .map_err(|error| Error::because(format!("can't build a pool for {places:?}"), error))?;
    let failed = || format!("no {} channels were ready in {READY:?}", places.len());
    timeout(READY, pool.warm(places.len()))
        .await
        .map_err(|elapsed| Error::because(failed(), elapsed))?
        .map_err(|error| Error::because(failed(), error))?;
    let client = super::warm(BigtableClient::new(pool.clone())).await?;
    Ok((pool, client))
}
