//! What watching a channel costs a call: nothing that is allocated.

mod common;

use common::{dial, in_time};
use http::Request;
use steadfast_egress::{Egress, EgressConfig};
use steadfast_testkit::{
    alloc::{CountingAllocator, count},
    peer::{Peer, Script},
};
use tonic::{body::Body, transport::Endpoint};
use tower::{Service, ServiceExt};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// What a clone and a call of a warm service allocate.
async fn costs<S>(service: S) -> (u64, u64)
where
    S: Service<Request<Body>> + Clone,
    S::Error: std::fmt::Debug,
{
    let mut costs = (0, 0);
    for _ in 0..20 {
        costs.0 = count(|| service.clone());
        let mut service = service.clone();
        in_time(service.ready()).await.unwrap();
        let request = Request::post("/steadfast.test.Echo/Unary");
        let request = request.body(Body::empty()).unwrap();
        let mut call = None;
        costs.1 = count(|| call = Some(service.call(request)));
        in_time(call.unwrap()).await.unwrap();
    }
    costs
}

#[tokio::test]
async fn a_call_allocates_what_tonics_channel_does() {
    let peer = Peer::start(Script::good()).unwrap();
    let endpoint = Endpoint::from_shared(peer.uri()).unwrap();
    let egress = Egress::new(peer.uri(), EgressConfig::default()).unwrap();
    let bare = costs(endpoint.connect().await.unwrap()).await;
    let watched = costs(dial(&egress).await.into_service()).await;
    assert_eq!(watched, bare, "(clone, call)");
    assert!(bare.1 > 0, "nothing was counted");
}
