//! Ten times more calls than there are places for.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use http::{Request, Response};
use http_body_util::Empty;
use steadfast_core::{BoxError, now};
use steadfast_sparse::{FlowId, SparseConfig, SparseFlowLayer, SparseReading};
use steadfast_testkit::alloc::{CountingAllocator, live_bytes};
use tokio::{task::JoinSet, time::sleep};
use tonic::{Code, Status};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const LONGEST: Duration = Duration::from_secs(1);
/// 16 places and calls of 100 ms: 160 a second.
const CAPACITY: u32 = 160;

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    waited_too_long: AtomicU64,
}

/// So many calls a second for so long, of 20 flows of which the first two bring most.
fn load<S, B>(service: &S, rate: u32, length: Duration, counts: &Arc<Counts>) -> impl Future
where
    S: Service<Request<()>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    let (service, counts) = (service.clone(), Arc::clone(counts));
    async move {
        let mut random = Rng::with_seed(3);
        let mut open = JoinSet::new();
        let mut due = 0.0;
        for _ in 0..length.as_millis() {
            due += f64::from(rate) / 1000.0;
            while due >= 1.0 {
                due -= 1.0;
                let flow = random.u32(0..40).saturating_sub(20) % 20;
                let mut request = Request::new(());
                request.extensions_mut().insert(FlowId::of(flow));
                let (mut service, counts) = (service.clone(), Arc::clone(&counts));
                open.spawn(async move {
                    let begun = now();
                    let came = service.call(request).await;
                    let took = now() - begun;
                    match came {
                        Ok(_) => {
                            counts.served.fetch_add(1, Relaxed);
                            assert!(took <= LONGEST + Duration::from_millis(102), "{took:?}");
                        }
                        Err(error) => {
                            let status: &Status = error.downcast_ref().unwrap();
                            assert_eq!(status.code(), Code::ResourceExhausted);
                            assert!(status.metadata().contains_key("grpc-retry-pushback-ms"));
                            if took == Duration::ZERO {
                                counts.refused.fetch_add(1, Relaxed);
                            } else {
                                counts.waited_too_long.fetch_add(1, Relaxed);
                                assert!(took <= LONGEST + Duration::from_millis(2), "{took:?}");
                            }
                        }
                    }
                });
            }
            sleep(Duration::from_millis(1)).await;
            while open.try_join_next().is_some() {}
        }
        while let Some(joined) = open.join_next().await {
            joined.unwrap();
        }
    }
}

/// F6: at ten times the capacity for a minute every bound holds, those over it are refused at once with a hint,
/// nobody waits past the limit, and afterwards the memory is what it was.
#[tokio::test(start_paused = true)]
async fn ten_times_overload() {
    let config = SparseConfig {
        longest_wait: Some(LONGEST),
        max_waiting: 400,
        ..SparseConfig::default()
    };
    let (own, all) = (config.max_waiting_per_flow, config.max_waiting);
    let layer = SparseFlowLayer::client(config).unwrap();
    let service = layer.layer(tower::service_fn(|_: Request<()>| async {
        sleep(Duration::from_millis(100)).await;
        Ok::<_, BoxError>(Response::new(Empty::<bytes::Bytes>::new()))
    }));
    // At half of the capacity nobody is refused.
    let counts = Arc::new(Counts::default());
    load(&service, CAPACITY / 2, LONGEST * 5, &counts).await;
    assert_eq!(
        counts.refused.load(Relaxed) + counts.waited_too_long.load(Relaxed),
        0
    );
    // A short overload, so that what is only made once is there: the runtime's own, and three small tables.
    let before = live_bytes();
    load(&service, CAPACITY * 10, LONGEST * 2, &counts).await;
    assert!(
        live_bytes() <= before + 8 * 1024,
        "{before} {}",
        live_bytes()
    );

    let watched = layer.clone();
    let watch = tokio::spawn(async move {
        let mut most = 0;
        loop {
            sleep(Duration::from_millis(7)).await;
            let reading = watched.snapshot();
            let waiting = reading.waiting.iter().sum::<u32>();
            most = most.max(waiting);
            assert!(
                waiting <= all && reading.running.iter().sum::<u32>() <= 16,
                "{reading:?}"
            );
            for flow in watched.flows() {
                assert!(flow.waiting.iter().sum::<u32>() <= own, "{flow:?}");
            }
        }
    });
    let counts = Arc::new(Counts::default());
    let before = live_bytes();
    load(&service, CAPACITY * 10, Duration::from_secs(60), &counts).await;
    assert_eq!(layer.snapshot(), SparseReading::default());
    let after = live_bytes();
    watch.abort();
    assert!(
        watch.await.unwrap_err().is_cancelled(),
        "no bound was broken"
    );

    let (served, refused) = (counts.served.load(Relaxed), counts.refused.load(Relaxed));
    let waited = counts.waited_too_long.load(Relaxed);
    let full = u64::from(CAPACITY) * 60;
    assert!(
        (full * 98 / 100..full * 104 / 100).contains(&served),
        "{served} of {full} served"
    );
    assert!(refused > full * 6, "{refused} refused at once");
    assert!(waited > 0, "{waited} waited as long as one may");
    let off = after.abs_diff(before) as f64 / before as f64;
    assert!(off <= 0.01, "{before} bytes before, {after} after");
}
