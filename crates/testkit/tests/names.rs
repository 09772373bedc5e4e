//! The resolver double, by itself and under hyper-util's connector.

mod common;

use common::*;
use hyper_util::client::legacy::connect::HttpConnector;
use steadfast_testkit::{
    names::Names,
    peer::{Peer, Script},
};
use tonic::transport::Endpoint;

#[tokio::test]
async fn the_list_changes_fails_and_hangs() {
    let names = Names::new([]);
    assert!(names.resolve("a").await.unwrap().is_empty());
    let addresses = ["127.0.0.1:1", "[::1]:2"].map(|addr| addr.parse().unwrap());
    names.set(addresses);
    assert_eq!(names.resolve("b").await.unwrap(), addresses);
    names.fail("no such host");
    let error = names.resolve("c").await.unwrap_err();
    assert_eq!(error.to_string(), "no such host");
    names.hang();
    let hangs = tokio::spawn({
        let names = names.clone();
        async move { names.resolve("d").await }
    });
    names.wait_for_lookups(4, HANG).await.unwrap();
    pending(names.resolve("e")).await;
    names.set(addresses);
    assert_eq!(soon(hangs).await.unwrap().unwrap(), addresses);
    assert_eq!(names.names(), ["a", "b", "c", "d", "e"]);
    let state = names.wait_for_lookups(6, QUIET).await.unwrap_err();
    assert!(state.to_string().contains("\"e\""), "{state}");
}

#[tokio::test]
async fn it_resolves_for_a_real_client() {
    let peer = Peer::start(Script::good()).unwrap();
    let names = Names::new([peer.addr()]);
    let uri = format!("http://any.test:{}", peer.addr().port());
    let endpoint = Endpoint::from_shared(uri).unwrap();
    let mut http = HttpConnector::new_with_resolver(names.clone());
    http.enforce_http(false);
    let channel = endpoint.connect_with_connector_lazy(http);
    raw(&channel).await.unwrap();
    assert_eq!(names.names(), ["any.test"]);
    names.fail("no such host");
    peer.inject(0, [steadfast_testkit::peer::Step::Fin]).await;
    peer.wait_until(HANG, |state| state.open_connections() == 0)
        .await
        .unwrap();
    let mut error = String::new();
    // The first call may still meet the connection that is closing.
    while !error.contains("dns error") {
        error = chain(&raw(&channel).await.unwrap_err());
    }
    assert!(names.lookups() >= 2);
}
