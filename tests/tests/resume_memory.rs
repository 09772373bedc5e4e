//! A stream that is resumed, and a caller that reads it slowly.

use std::time::Duration;

use bytes::Bytes;
use steadfast_balance::{BalanceConfig, BalanceLayer, Places};
use steadfast_core::{BoxError, ChannelId, Place};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_resume::{Pass, Progress, Rest, ResumableStreamLayer, Rule};
use steadfast_testkit::{
    alloc::{CountingAllocator, live_bytes},
    memory,
    peer::{Answer, Peer, Script, Step},
};
use tokio::time::sleep;
use tonic::transport::Endpoint;
use tower::{Layer, ServiceBuilder};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Takes any message.
struct Any;

impl Rule for Any {
    fn method(&self) -> &str {
        "/steadfast.test.Echo/ServerStream"
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(Self))
    }
}

impl Progress for Any {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::cannot("it isn't to break"))
    }
}

const MESSAGES: usize = 400;
const SIZE: usize = 32 << 10;
const WINDOW: u32 = 64 << 10;

/// R7: a caller that is slow is neither silent, for which a time-out would come, nor does memory grow: the server is stopped
/// by the window, and no more than a message is held.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_stops_the_server() {
    let (network, incoming) = memory::network();
    // One buffer for all messages, so that what the server has yet to send weighs nothing.
    let message = Bytes::from([&b"\x0a\x80\x80\x02"[..], &vec![7; SIZE]].concat());
    let peer = Peer::serve(incoming, move |_| {
        let messages = vec![Step::Message(message.clone()); MESSAGES];
        let steps = [
            vec![Step::AwaitRequest, Step::headers()],
            messages,
            vec![Step::status(0, "")],
        ];
        Script::always(Answer::steps(steps.concat()))
    });
    let dial = network.clone();
    let pool = ServiceBuilder::new()
        .layer(
            BalanceLayer::new(BalanceConfig::fixed(1))
                .unwrap()
                .places(Places::list(["a"])),
        )
        .service(move |_: ChannelId, _: Place| {
            let dial = dial.clone();
            async move {
                let endpoint =
                    Endpoint::from_static("http://memory").initial_stream_window_size(WINDOW);
                endpoint.connect_with_connector(dial).await
            }
        });
    pool.warm(1).await.unwrap();
    let resume = ResumableStreamLayer::default().rule(Any).unwrap();
    let mut client = EchoClient::new(resume.layer(pool.clone()));
    let mut stream = client
        .server_stream(EchoRequest::default())
        .await
        .unwrap()
        .into_inner();
    let sent = || network.state().connections[0].to_client;
    let mut lives = Vec::new();
    for read in 1..=MESSAGES {
        assert_eq!(stream.message().await.unwrap().unwrap().payload.len(), SIZE);
        sleep(Duration::from_secs(60)).await;
        lives.push(live_bytes());
        // A window, what lies in the connection, and a message that is read in part.
        let ahead = sent() as usize - read * SIZE;
        assert!(
            ahead < (64 << 10) * 2 + 3 * SIZE,
            "{ahead} bytes are ahead of the reader"
        );
    }
    assert_eq!(stream.message().await.unwrap(), None);
    let (first, rest) = lives.split_at(20);
    let (low, high) = (first.iter().min().unwrap(), first.iter().max().unwrap());
    assert!(high - low < (SIZE * 8) as u64, "{low} to {high}");
    for live in rest {
        assert!(
            *live <= high + SIZE as u64,
            "{live} bytes live, {high} at first"
        );
    }
    assert_eq!(resume.snapshot().rules[0].resumed, 0);
    drop(peer);
}
