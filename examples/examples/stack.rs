//! The same stack by hand, with a layer of one's own on each channel, and a handle that tells which
//! channel served a call.
//!
//! `cargo run -p steadfast-examples --example stack -- http://127.0.0.1:50051`; without a server it shows
//! what a pool says that can't connect.

use std::time::Duration;

use steadfast::{
    Attempt, BalanceConfig, BalanceLayer, Each, Egress, EgressConfig, Keep, PenaltyConfig,
    PenaltyWindowLayer,
};
use steadfast_proto::{HelloRequest, greeter_client::GreeterClient};
use tonic::service::InterceptorLayer;
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let token = InterceptorLayer::new(|mut request: tonic::Request<()>| {
        request.metadata_mut().insert(
            "x-token",
            tonic::metadata::MetadataValue::from_static("secret"),
        );
        Ok(request)
    });
    let pool = ServiceBuilder::new()
        .layer(BalanceLayer::new(BalanceConfig::fixed(2))?)
        .layer(Each(PenaltyWindowLayer::new(PenaltyConfig::default())?))
        .layer(Each(Keep(token)))
        .service(Egress::new(uri, EgressConfig::default())?);
    let mut client = GreeterClient::new(pool.clone());

    let attempt = Attempt::new();
    let mut request = tonic::Request::new(HelloRequest {
        name: "stack".into(),
    });
    request.extensions_mut().insert(attempt.clone());
    match client.say_hello(request).await {
        Ok(reply) => println!("{}", reply.into_inner().message),
        Err(status) => println!("{status}"),
    }
    println!(
        "served by {:?}, which ended as {:?}",
        attempt.channel(),
        attempt.outcome()
    );
    let report = pool.close(Duration::from_secs(5)).await;
    println!(
        "closed: {} calls ended by themselves, {} were cut",
        report.finished, report.cut
    );
    Ok(())
}
