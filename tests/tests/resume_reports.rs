//! What people reported of streams that break or stall, with a whole pool above.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use steadfast::{
    AttemptsPer, BidiRule, BoxError, Conversation, Pass, Pool, Rest, Rule, StreamProgress,
};
use steadfast_proto::{EchoRequest, echo_client::EchoClient};
use steadfast_testkit::{
    peer::{Peer, Script},
    proxy::{FaultProxy, Which},
};
use steadfast_tests::{
    echo::EchoProcess,
    soon,
    whole::{STREAM, builder, channel_at, quick, ready},
};
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request};

const BIDI: &str = "/steadfast.test.Echo/Bidi";

/// Each message of the caller is answered by one: those that weren't are sent again.
struct Answered;

#[derive(Default)]
struct Unanswered(Mutex<VecDeque<Bytes>>);

impl BidiRule for Answered {
    fn method(&self) -> &str {
        BIDI
    }

    fn begin(&self) -> Arc<dyn Conversation> {
        Arc::new(Unanswered::default())
    }
}

impl Conversation for Unanswered {
    fn sent(&self, message: &[u8]) -> Result<Pass, BoxError> {
        let mut waiting = self.0.lock().unwrap();
        waiting.push_back(Bytes::copy_from_slice(message));
        Ok(Pass::AsIs)
    }

    fn received(&self, _: &[u8]) -> Result<Pass, BoxError> {
        let answered = self.0.lock().unwrap().pop_front();
        answered
            .map(|_| Pass::AsIs)
            .ok_or_else(|| "nothing was asked".into())
    }

    fn is_owed(&self) -> bool {
        !self.0.lock().unwrap().is_empty()
    }

    fn rest(&self) -> Result<Rest, BoxError> {
        let requests = self.0.lock().unwrap().iter().cloned().collect();
        Ok(Rest::Send {
            requests,
            first: Vec::new(),
        })
    }
}

/// A pool of two channels to the echo server, each through a proxy of its own, the first of which is the nearer one.
async fn two(proxies: &[FaultProxy; 2], gap: Duration) -> Pool {
    let places = proxies.each_ref().map(FaultProxy::uri);
    let mut config = quick(2);
    // Nothing but the gap may end a stream here.
    config.stall.enabled = false;
    config.resume.gap_timeout = gap;
    config.resume.attempts_per = AttemptsPer::Progress;
    ready(builder(&places, config).resume_bidi(Answered), 2).await
}

/// R2, R5, R4: a virtual machine's pause froze a conversation open, and every wait on its path was without a bound. The
/// gap ends the wait, it goes on on the other connection, and what the first one brings when it thaws isn't seen.
#[tokio::test]
async fn a_conversation_whose_peer_is_frozen_goes_on_elsewhere() {
    let echo = EchoProcess::start().await;
    let start = |_| FaultProxy::start(echo.addr()).unwrap();
    let proxies = [0, 1].map(start);
    let pool = two(&proxies, Duration::from_millis(300)).await;
    let stuck = channel_at(&pool, &proxies[0].uri());
    let (asks, receiver) = mpsc::unbounded_channel();
    let ask = |number: u32| {
        let payload = number.to_string().into_bytes();
        asks.send(EchoRequest {
            payload,
            ..EchoRequest::default()
        })
        .unwrap();
    };
    ask(0);
    let mut request = Request::new(UnboundedReceiverStream::new(receiver));
    request.extensions_mut().insert(steadfast::Prefer(stuck));
    let mut client = EchoClient::new(pool.clone());
    let mut replies = soon("the head", client.bidi(request))
        .await
        .unwrap()
        .into_inner();
    for number in 0..20_u32 {
        let reply = soon("an answer", replies.message()).await.unwrap().unwrap();
        assert_eq!(reply.payload, number.to_string().into_bytes());
        // The answers to these two are on their way when it freezes, and come when it thaws.
        if number == 4 {
            proxies[0].freeze(Which::All);
        }
        if number == 12 {
            proxies[0].thaw(Which::All);
            sleep(Duration::from_millis(200)).await;
        }
        ask(number + 1);
    }
    let counts = &pool.resume().snapshot().rules[0];
    assert!(counts.resumed > 0 && counts.gap_timeouts > 0, "{counts:?}");
}

/// R2: a conversation in which nobody was asked anything may be quiet for as long as it likes.
#[tokio::test]
async fn a_quiet_conversation_is_left_alone() {
    let echo = EchoProcess::start().await;
    let start = |_| FaultProxy::start(echo.addr()).unwrap();
    let proxies = [0, 1].map(start);
    let pool = two(&proxies, Duration::from_millis(500)).await;
    let (asks, receiver) = mpsc::unbounded_channel();
    asks.send(EchoRequest::default()).unwrap();
    let mut client = EchoClient::new(pool.clone());
    let opened = soon(
        "the head",
        client.bidi(UnboundedReceiverStream::new(receiver)),
    )
    .await;
    let mut replies = opened.unwrap().into_inner();
    for _ in 0..2 {
        soon("an answer", replies.message()).await.unwrap().unwrap();
        // Far longer than the gap, while the caller waits.
        let quiet = tokio::time::timeout(Duration::from_millis(1_200), replies.message()).await;
        assert!(quiet.is_err());
        asks.send(EchoRequest::default()).unwrap();
    }
    assert_eq!(pool.resume().snapshot().rules[0].resumed, 0);
}

/// Takes any message, and can always ask again.
struct Any;

impl Rule for Any {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, _: &[u8]) -> Result<Box<dyn StreamProgress>, BoxError> {
        Ok(Box::new(Self))
    }
}

impl StreamProgress for Any {
    fn message(&mut self, _: &[u8]) -> Result<Pass, BoxError> {
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(Rest::request(""))
    }
}

/// R7, P1: a message over the limit, as it is or when it is unpacked, is no failure of its channel: the stream ends with
/// OUT_OF_RANGE, nothing is sent again, and nothing is charged. What is unpacked stops at the limit.
#[tokio::test]
async fn a_message_over_the_limit_is_not_resumed_and_not_charged() {
    for (script, packed) in [
        (Script::big(8 << 20), false),
        (Script::zip_bomb(64 << 20), true),
    ] {
        let peer = Peer::start(script).unwrap();
        let mut config = steadfast_tests::lower_layers();
        config.balance = steadfast::BalanceConfig::fixed(2);
        let pool = steadfast_tests::whole::builder(&[peer.uri()], config);
        let pool = ready(pool.resume(Any), 2).await;
        let mut client = EchoClient::new(pool.clone());
        if packed {
            client = client.accept_compressed(tonic::codec::CompressionEncoding::Gzip);
        }
        let ended = async {
            let mut replies = client
                .server_stream(EchoRequest::default())
                .await?
                .into_inner();
            while replies.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        };
        let status = soon("the end", ended).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
        assert!(
            status.message().contains("resume.message_limit"),
            "{status:?}"
        );
        let streams = peer
            .requests()
            .iter()
            .filter(|it| it.path == STREAM)
            .count();
        assert_eq!(streams, 1);
        assert!(pool.penalty().snapshot().is_empty());
        assert_eq!(pool.resume().snapshot().rules[0].resumed, 0);
    }
}
