//! The caller: a tonic client over the layers.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use steadfast_balance::{BalanceConfig, BalanceLayer, Places};
use steadfast_core::{BoxError, ChannelId, Each, Place};
use steadfast_penalty::{PenaltyConfig, PenaltyWindowLayer};
use steadfast_resume::{
    Pass, Progress, Rest, ResumableStreamLayer, ResumeConfig, Rule, RuleSnapshot,
};
use tokio::time::{sleep, timeout};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};
use tower::ServiceBuilder;

use super::{Dial, LIMIT, MESSAGES, Options, serve::UNREADABLE};

const METHOD: &str = "/steadfast.lab.Cuts/Read";

/// Channels of the pool.
const CHANNELS: usize = 3;

/// Far more than a stream takes.
const HANG: Duration = Duration::from_secs(120);

/// What the caller got.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) messages: Vec<Bytes>,
    /// How it ended: None is OK.
    pub(super) error: Option<Status>,
    pub(super) counts: RuleSnapshot,
    /// Requests in flight afterwards, of which there should be none.
    pub(super) left: u32,
}

/// Reads one stream. None if it never ended.
pub(super) async fn read(dial: Dial, options: Options) -> Option<Read> {
    let config = ResumeConfig {
        gap_timeout: options.gap,
        max_attempts: options.attempts,
        message_limit: LIMIT,
        ..ResumeConfig::default()
    };
    let resume = ResumableStreamLayer::new(config).expect("in their ranges");
    let resume = resume.rule(Numbers).expect("a method");
    let pool = ServiceBuilder::new()
        .layer(
            BalanceLayer::new(BalanceConfig::fixed(CHANNELS))
                .expect("in their ranges")
                .places(Places::list(["server"])),
        )
        .layer(Each(
            PenaltyWindowLayer::new(PenaltyConfig::default()).expect("in their ranges"),
        ))
        .service(move |_: ChannelId, _: Place| connect(dial.clone()));
    timeout(HANG, pool.warm(CHANNELS)).await.ok()?.ok()?;
    let service = ServiceBuilder::new()
        .layer(resume.clone())
        .service(pool.clone());
    let client = Grpc::new(service)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(LIMIT);
    let mut messages = Vec::new();
    let ended = timeout(HANG, stream(client, &mut messages)).await.ok()?;
    let mut left = u32::MAX;
    // A request is out of flight when its channel's task saw the drop.
    for _ in 0..1_000 {
        left = pool.snapshot().channels.iter().map(|it| it.in_flight).sum();
        if left == 0 {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    Some(Read {
        messages,
        error: ended.err(),
        counts: resume.snapshot().rules.remove(0),
        left,
    })
}

async fn stream<S>(mut client: Grpc<S>, messages: &mut Vec<Bytes>) -> Result<(), Status>
where
    S: tonic::client::GrpcService<tonic::body::Body>,
    S::Error: Into<BoxError>,
    S::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<BoxError> + Send,
{
    let ready = client.ready().await;
    ready.map_err(|error| Status::from_error(error.into()))?;
    let request = [0_u32.to_be_bytes(), MESSAGES.to_be_bytes()].concat();
    let path = http::uri::PathAndQuery::from_static(METHOD);
    let request = Request::new(Bytes::from(request));
    let response = client.server_streaming(request, path, Raw).await?;
    let mut stream = response.into_inner();
    while let Some(message) = stream.message().await? {
        messages.push(message);
    }
    Ok(())
}

async fn connect(dial: Dial) -> Result<Channel, BoxError> {
    Ok(match dial {
        Dial::Memory(network) => {
            let endpoint = Endpoint::from_static("http://memory");
            endpoint.connect_with_connector(network).await?
        }
        Dial::Tcp(address) => {
            Endpoint::new(format!("http://{address}"))?
                .connect()
                .await?
        }
    })
}

/// The messages from one number to another.
struct Numbers;

#[derive(Debug)]
struct Range {
    from: u32,
    to: u32,
}

impl Rule for Numbers {
    fn method(&self) -> &str {
        METHOD
    }

    fn begin(&self, request: &[u8]) -> Result<Box<dyn Progress>, BoxError> {
        let number = |at: usize| -> Result<u32, BoxError> {
            let bytes = request.get(at..at + 4).ok_or("a request of 8 bytes")?;
            Ok(u32::from_be_bytes(bytes.try_into()?))
        };
        Ok(Box::new(Range {
            from: number(0)?,
            to: number(4)?,
        }))
    }
}

impl Progress for Range {
    fn message(&mut self, message: &[u8]) -> Result<Pass, BoxError> {
        if message == UNREADABLE {
            return Err("unreadable, as planned".into());
        }
        self.from += 1;
        Ok(Pass::AsIs)
    }

    fn rest(&mut self) -> Result<Rest, BoxError> {
        if self.from == self.to {
            return Ok(Rest::Complete);
        }
        Ok(Rest::request(
            [self.from.to_be_bytes(), self.to.to_be_bytes()].concat(),
        ))
    }
}

/// Messages as they are.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
