//! Steadfast's pool as a contender.

use std::time::Duration;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use steadfast::{Places, Pool, rules::bigtable::ReadRows};
use tokio::time::timeout;

use crate::contend::{Counts, Job, run};
use crate::error::{Error, Result};
use crate::helper::Orders;

/// How long the channels may take until all are ready, on servers of this host that answer.
const READY: Duration = Duration::from_secs(10);

/// Runs the job on a pool over all places.
pub(crate) async fn with_pool(orders: &mut Orders, job: &Job) -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let counters = recorder.snapshotter();
    metrics::set_global_recorder(recorder)
        .map_err(|error| Error::because("can't listen to the pool's metrics", error))?;
    match open(&job.places).await {
        Ok((pool, client)) => {
            let channels = || pool.snapshot().channels.len();
            run(orders, job, Ok(client), channels, || {
                Some(counted(&counters))
            })
            .await
        }
        Err(error) => run::<Pool>(orders, job, Err(error), || 0, || None).await,
    }
}

/// What the pool's layers did by themselves, as their metrics tell it.
fn counted(counters: &Snapshotter) -> Counts {
    let mut counts = Counts::default();
    for (key, _, _, value) in counters.snapshot().into_vec() {
        let DebugValue::Counter(count) = value else {
            continue;
        };
        let labelled = |name, value| {
            let mut labels = key.key().labels();
            labels.any(|label| label.key() == name && label.value() == value)
        };
        match key.key().name() {
            "steadfast.failed_locally" => counts.failed_locally += count,
            "steadfast.retry" => counts.retried += count,
            "steadfast.resume" => counts.resumed += count,
            "steadfast.quarantine" if labelled("enforced", "true") => counts.quarantined += count,
            _ => {}
        }
    }
    counts
}

/// A pool with every default, and with the rule by which BigTable's reads go on where they broke. It is there once there is a ready channel for each place.
async fn open(places: &[String]) -> Result<(Pool, BigtableClient<Pool>)> {
    let first = places.first().cloned().unwrap_or_default();
    let pool = Pool::builder(first)
        .places(Places::list(places.iter().map(String::as_str)))
        .resume(ReadRows)
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
