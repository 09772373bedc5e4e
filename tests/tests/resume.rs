//! ResumableStream over whole stacks: Balance, StallDetect and PenaltyWindow around tonic channels, on a paused clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message;
use steadfast_balance::{Balance, BalanceConfig, BalanceLayer, Places};
use steadfast_core::{Attempt, BoxError, ChannelId, Each, Place, Prefer, now};
use steadfast_penalty::{PenaltyConfig, PenaltyWindow, PenaltyWindowLayer};
use steadfast_proto::{EchoReply, EchoRequest, echo_client::EchoClient};
use steadfast_resume::{
    Pass, Progress, Rest, ResumableStream, ResumableStreamLayer, ResumeConfig, Rule,
};
use steadfast_stall::{HealthProbe, StallConfig, StallDetect, StallDetectLayer};
use steadfast_testkit::{
    memory::{self, Network},
    peer::{Answer, Peer, Request, Script, Step},
    proxy::Which,
};
use tokio::time::sleep;
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};
use tower::{Layer, ServiceBuilder};

const SECOND: Duration = Duration::from_secs(1);
const STREAM: &str = "/steadfast.test.Echo/ServerStream";
const ROWS: u32 = 20;

type Pool = Balance<StallDetect<PenaltyWindow<steadfast_core::Bottom<Channel>>>>;

/// The replies from one index up: the request's payload tells which, its count how many in all.
struct Rows;

struct Left {
    from: u32,
    to: u32,
}

fn request(from: u32) -> EchoRequest {
    EchoRequest {
        payload: from.to_be_bytes().to_vec(),
        count: ROWS,
        ..EchoRequest::default()
    }
}

fn asked(request: &[u8]) -> Result<Left, BoxError> {
    let request = EchoRequest::decode(request)?;
    Ok(Left {
        from: u32::from_be_bytes(request.payload[..].try_into()?),
        to: request.count,
    })
}

impl Rule for Rows {
    fn method(&self) -> &str {
        STREAM
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        Ok(Box::new(asked(request)?))
    }
}

impl Progress for Left {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        self.from = EchoReply::decode(message)?.index + 1;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        Ok(match self.from == self.to {
            true => Rest::Complete,
            false => Rest::request(request(self.from).encode_to_vec()),
        })
    }
}

/// What the server does with a stream.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    /// Nothing at all.
    NoHead,
    /// So many rows, then nothing.
    Stops(u32),
    /// All of them, each after this time.
    All(Duration),
}

fn rows(body: &[u8], does: Does) -> Vec<Step> {
    let Left { from, to } = asked(&body[5..]).expect("a request of these tests");
    let (until, pause) = match does {
        Does::NoHead => return Vec::new(),
        Does::Stops(rows) => (to.min(from + rows), None),
        Does::All(pause) => (to, (!pause.is_zero()).then_some(pause)),
    };
    let mut steps = vec![Step::headers()];
    for index in from..until {
        steps.extend(pause.map(Step::Wait));
        let reply = EchoReply {
            index,
            ..EchoReply::default()
        };
        steps.push(Step::Message(reply.encode_to_vec().into()));
    }
    if until == to {
        steps.push(Step::status(0, ""));
    }
    steps
}

/// One server with as many connections as are dialled, a pool to it, and what carries streams on.
struct Bed {
    network: Network,
    peer: Peer,
    stall: StallDetectLayer,
    penalty: PenaltyWindowLayer,
    resume: ResumableStreamLayer,
    pool: Pool,
}

impl Bed {
    /// A server that does with the n-th stream what is told, and answers all else at once.
    async fn new(
        channels: usize,
        config: ResumeConfig,
        does: impl Fn(u64) -> Does + Send + Sync + 'static,
    ) -> Self {
        let (network, incoming) = memory::network();
        let (streams, does) = (AtomicU64::new(0), Arc::new(does));
        let answer = Arc::new(move |request: &Request| {
            if request.path != STREAM {
                return Answer::good();
            }
            let does = does(streams.fetch_add(1, Ordering::SeqCst));
            Answer::steps([Step::respond(move |body| rows(body, does))])
        });
        let peer = Peer::serve(incoming, move |_| {
            let answer = Arc::clone(&answer);
            Script::new(move |request| answer(request))
        });
        let stall = StallDetectLayer::new(StallConfig::default(), HealthProbe::new()).unwrap();
        let penalty = PenaltyWindowLayer::new(PenaltyConfig::default()).unwrap();
        let dial = network.clone();
        let factory = move |_: ChannelId, _: Place| {
            let endpoint = Endpoint::from_static("http://memory");
            let dial = dial.clone();
            async move { endpoint.connect_with_connector(dial).await }
        };
        let balance = BalanceLayer::new(BalanceConfig::fixed(channels)).unwrap();
        let pool = ServiceBuilder::new()
            .layer(balance.places(Places::list(["a"])))
            .layer(Each(stall.clone()))
            .layer(Each(penalty.clone()))
            .service(factory);
        pool.warm(channels).await.unwrap();
        let resume = ResumableStreamLayer::new(config).unwrap();
        Self {
            network,
            peer,
            stall,
            penalty,
            resume: resume.rule(Rows).unwrap(),
            pool,
        }
    }

    fn client(&self) -> EchoClient<ResumableStream<Pool>> {
        EchoClient::new(self.resume.layer(self.pool.clone()))
    }

    async fn open(
        &self,
        prefer: Option<ChannelId>,
    ) -> (Result<Streaming<EchoReply>, Status>, Attempt) {
        let (mut request, attempt) = (tonic::Request::new(request(0)), Attempt::new());
        request.extensions_mut().insert(attempt.clone());
        if let Some(prefer) = prefer {
            request.extensions_mut().insert(Prefer(prefer));
        }
        let stream = self.client().server_stream(request).await;
        (stream.map(tonic::Response::into_inner), attempt)
    }

    fn in_flight(&self) -> Vec<(ChannelId, u32)> {
        let channels = self.pool.snapshot().channels;
        channels.iter().map(|it| (it.id, it.in_flight)).collect()
    }
}

async fn indices(mut stream: Streaming<EchoReply>) -> Result<Vec<u32>, Status> {
    let mut indices = Vec::new();
    while let Some(reply) = stream.message().await? {
        indices.push(reply.index);
    }
    Ok(indices)
}

fn all() -> Vec<u32> {
    (0..ROWS).collect()
}

/// R2, R5, P1: a stall before the head and one in the body trip the gap; the next attempt avoids the channel though it
/// is the least loaded; the abandoned attempt leaves nothing in flight and nobody waiting, and its channel is charged.
#[tokio::test(start_paused = true)]
async fn a_stalled_attempt_goes_on_elsewhere() {
    for first in [Does::NoHead, Does::Stops(7)] {
        let bed = Bed::new(2, ResumeConfig::default(), move |stream| match stream {
            // Five long ones keep a channel busy.
            0..=4 => Does::All(600 * SECOND),
            5 => first,
            _ => Does::All(Duration::ZERO),
        })
        .await;
        let busy = bed.in_flight()[0].0;
        let mut held = Vec::new();
        for _ in 0..5 {
            let long = ResumableStreamLayer::default().layer(bed.pool.clone());
            let mut request = tonic::Request::new(request(0));
            request.extensions_mut().insert(Prefer(busy));
            held.push(EchoClient::new(long).server_stream(request).await.unwrap());
        }
        let idle = bed.in_flight()[1].0;
        assert_eq!(bed.in_flight(), [(busy, 5), (idle, 0)]);
        let began = now();
        let reading = async {
            let (stream, attempt) = bed.open(None).await;
            (indices(stream.unwrap()).await.unwrap(), attempt)
        };
        let (read, attempt) = reading.await;
        assert_eq!(read, all());
        assert_eq!(now() - began, 5 * SECOND);
        assert_eq!(
            attempt.channel(),
            Some(busy),
            "it went to the other channel"
        );
        let charged: Vec<_> = bed.penalty.snapshot().iter().map(|it| it.0).collect();
        assert_eq!(charged, [idle]);
        sleep(SECOND).await;
        assert_eq!(bed.in_flight(), [(busy, 5), (idle, 0)]);
        // The server was told, and nobody waits for a channel.
        assert_eq!(bed.peer.resets().len(), 1);
        assert_eq!(bed.pool.snapshot().waiting, 0);
        assert!(bed.network.state().open_connections() == 2);
    }
}

/// R2, S4: a read that is stalled before its head, the only caller that waits, with each other time-out at an hour,
/// gets its rows from another channel within 2 s of the quarantine.
#[tokio::test(start_paused = true)]
async fn a_quarantine_is_resumed() {
    let hour = 3_600 * SECOND;
    for first in [Does::NoHead, Does::Stops(3)] {
        let config = ResumeConfig {
            gap_timeout: hour,
            header_timeout: 2 * hour,
            budget_percent: 0,
            budget_per_second: 0,
            ..ResumeConfig::default()
        };
        let bed = Bed::new(3, config, move |stream| match stream {
            0 => first,
            _ => Does::All(Duration::ZERO),
        })
        .await;
        // The others keep receiving.
        let mut busy = tokio::task::JoinSet::new();
        let channels: Vec<_> = bed.in_flight().iter().map(|(id, _)| *id).collect();
        for id in &channels[1..] {
            let (pool, id) = (bed.pool.clone(), *id);
            busy.spawn(async move {
                loop {
                    let mut request = tonic::Request::new(EchoRequest::default());
                    request.extensions_mut().insert(Prefer(id));
                    EchoClient::new(pool.clone()).unary(request).await.unwrap();
                    sleep(SECOND / 10).await;
                }
            });
        }
        sleep(3 * SECOND).await;
        let quarantine = async {
            loop {
                let states = bed.stall.snapshot();
                let out = |it: &&steadfast_stall::ChannelState| {
                    it.condition == steadfast_stall::Condition::Quarantined
                };
                if let Some(out) = states.iter().find(out) {
                    return (now(), out.id);
                }
                sleep(SECOND / 1_000).await;
            }
        };
        let reading = async {
            let (stream, attempt) = bed.open(Some(channels[0])).await;
            let read = indices(stream.unwrap()).await.unwrap();
            (read, attempt, now())
        };
        let freeze = async {
            sleep(SECOND / 2).await;
            bed.network.freeze(Which::One(0));
        };
        let ((out_at, out), (read, attempt, read_at), ()) =
            tokio::join!(quarantine, reading, freeze);
        assert_eq!(read, all());
        assert_eq!(out, channels[0]);
        assert!(read_at - out_at < 2 * SECOND, "{:?}", read_at - out_at);
        assert_ne!(attempt.channel(), Some(out));
    }
}

/// R7: a slow reader stops the server by its window: at most one message is held, and no time-out comes.
#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_no_silence() {
    let bed = Bed::new(2, ResumeConfig::default(), |_| Does::All(Duration::ZERO)).await;
    let (stream, _) = bed.open(None).await;
    let mut stream = stream.unwrap();
    for index in 0..ROWS {
        sleep(600 * SECOND).await;
        assert_eq!(stream.message().await.unwrap().unwrap().index, index);
    }
    assert_eq!(stream.message().await.unwrap(), None);
    assert_eq!(bed.resume.snapshot().rules[0].resumed, 0);
}

/// R2: a stream whose messages come more often than the gap time-out is left alone; of one whose messages are farther apart
/// the last attempt, which has no limit, brings all.
#[tokio::test(start_paused = true)]
async fn pauses_below_and_above_the_gap() {
    for (pause, resumed) in [(4 * SECOND, 0), (6 * SECOND, 2)] {
        let bed = Bed::new(3, ResumeConfig::default(), move |_| Does::All(pause)).await;
        let began = now();
        let (stream, _) = bed.open(None).await;
        assert_eq!(indices(stream.unwrap()).await.unwrap(), all());
        let counts = &bed.resume.snapshot().rules[0];
        assert_eq!((counts.resumed, counts.gap_timeouts), (resumed, resumed));
        let took = now() - began;
        let expected = pause * ROWS + 5 * SECOND * resumed as u32;
        assert!(took >= expected && took < expected + SECOND, "{took:?}");
    }
}
