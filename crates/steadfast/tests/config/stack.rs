//! What a pool of a configuration does.

use http_body_util::BodyExt;
use steadfast::{BoxError, Pool, Standing};
use steadfast_testkit::peer::{Answer, Peer, Script, Step};
use tower::ServiceExt;

use super::file;

/// A server that refuses every call with Unavailable.
pub(crate) fn failing() -> Peer {
    let unavailable = Answer::steps([Step::AwaitRequest, Step::trailers_only(14, "no")]);
    Peer::start(Script::always(unavailable)).unwrap()
}

/// One call and the whole of its response.
pub(crate) async fn call(pool: Pool) -> Result<(), BoxError> {
    let request = http::Request::post("/s/m")
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::empty())?;
    pool.oneshot(request).await?.into_body().collect().await?;
    Ok(())
}

/// X3: a layer that is switched off leaves no trace; with it on, the same failures do.
#[tokio::test]
async fn a_penalty_that_is_off_leaves_no_trace() {
    for (mode, enabled) in [
        ("flat", false),
        ("reserve", false),
        ("flat", true),
        ("reserve", true),
    ] {
        let text = format!("penalty.mode = '{mode}'\npenalty.enabled = {enabled}");
        let server = failing();
        let pool = Pool::builder(server.uri())
            .config(file(&text).unwrap())
            .without_env()
            .build()
            .unwrap();
        pool.warm(4).await.unwrap();
        for _ in 0..20 {
            call(pool.clone()).await.unwrap();
        }
        let snapshot = pool.snapshot();
        let mut channels = snapshot.channels.iter();
        let marked =
            channels.any(|channel| channel.charge > 0 || channel.standing != Standing::Open);
        assert_eq!(marked, enabled, "{mode}: {snapshot:?}");
        assert_eq!(pool.penalty().snapshot().is_empty(), !enabled, "{mode}");
    }
}
