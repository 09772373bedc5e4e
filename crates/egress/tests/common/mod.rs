//! What the tests of this crate share.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::{future::Future, sync::Arc, time::Duration};

use steadfast_core::{ChannelId, Meter, Metered, NewChannel};
use steadfast_egress::{DialError, Egress, EgressChannel, EgressConfig};
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use tokio::{sync::Notify, time::timeout};
use tonic::{Response, Status};

/// Much longer than anything here takes.
pub(crate) const HANG: Duration = Duration::from_secs(30);

pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    timeout(HANG, future).await.expect("it hangs")
}

/// The default with a short budget.
pub(crate) fn short(budget_ms: u64) -> EgressConfig {
    EgressConfig {
        connect_budget: Duration::from_millis(budget_ms),
        ..EgressConfig::default()
    }
}

pub(crate) async fn dial(egress: &Egress) -> Metered<EgressChannel> {
    let place = egress.places().remove(0);
    let dial = egress.new_channel(ChannelId::next(), &place);
    in_time(dial).await.expect("the dial")
}

pub(crate) async fn fails(egress: &Egress) -> DialError {
    let place = egress.places().remove(0);
    let dial = egress.new_channel(ChannelId::next(), &place);
    *in_time(dial)
        .await
        .expect_err("the dial succeeded")
        .downcast()
        .expect("a DialError")
}

pub(crate) async fn echo(channel: &Metered<EgressChannel>) -> Result<Response<EchoReply>, Status> {
    let mut client = EchoClient::new(channel.clone());
    in_time(client.unary(EchoRequest::default())).await
}

/// Waits until the meter is condemned: why.
pub(crate) async fn condemned(meter: &Meter) -> Arc<str> {
    let bell = Arc::new(Notify::new());
    meter.ring_on_change(Arc::clone(&bell));
    in_time(async {
        loop {
            let rung = bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            match meter.condemned_for() {
                Some(cause) => return cause,
                None => rung.await,
            }
        }
    })
    .await
}
